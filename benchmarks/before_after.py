"""Whether anything got slower: every row of our CPU benchmarks, an older checkout against this one.

    git worktree add /tmp/old 51e52c6
    python benchmarks/before_after.py /tmp/old [--rounds 15] [--limit 540] [--only step draw]

Each checkout has a process of its own that imports its own `src` and its own benchmarks (step,
divergence, predict) and builds all their contenders. The two then take turns, row by row: in every
round a row is timed in one process and at once in the other, in alternating order. A row's ratio
is the median over rounds of after / before, its spread the middle half of those ratios. Rows over
1.05 whose whole spread lies above 1 are marked. Without a C compiler: CC=no-such-compiler.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parents[1]
COUNTS = (1_000, 10_000, 100_000, 1_000_000, 5_000_000)
DRAWS = ((1, 10_000), (10, 10_000), (1, 100_000), (10, 100_000), (1, 5_000_000), (10, 1_000_000))
RENAMED = {"over=batched": "over=Vectorized()", "over=loop": "over=Looped()"}
SLOWER = 1.05

Rows = Iterator[tuple[str, Callable[[], object]]]


# --- what one checkout does ----------------------------------------------------------------------


def steps(network: str) -> Rows:
    """Whole training steps, zero_grad to Adam."""
    import step

    for contender in step.gathered(step.TASKS[network], False):
        yield f"step {network}: {contender.draws} draws, {contender.name}", contender.step


def predictions() -> Rows:
    """Class probabilities from 100 draws."""
    import predict

    for predictor in predict.ours():
        for batch in predict.BATCHES:
            call = partial(predictor.predict, predict.X[:batch])
            yield f"predict: batch {batch}, {predictor.name}", call


def totals() -> Rows:
    """Divergences of so many weights, forward and backward."""
    import divergence

    for count in COUNTS:
        for name in ("KL", "JS-G", "JS-A"):
            loss = divergence.KINDS[name](count)
            call = partial(divergence.step, loss, *divergence.parameters(count))
            yield f"total: {name}, {count:,} weights", call


def draws() -> Rows:
    """Draws of so many weights, forward and backward."""
    from torch import nn
    from torch.distributions import Normal

    import bayesdiv as bd

    for samples, count in DRAWS:
        source = nn.Linear(count // 100, 100, bias=False)
        net = bd.bayesianize(source, bd.Prior(Normal, loc=0.0, scale=1.0))

        def call(net: nn.Module = net, samples: int = samples) -> None:
            (weights,) = bd.draw_weights(net, samples)
            weights.sum().backward()

        yield f"draw: {samples} of {count:,} weights", call


KINDS: dict[str, Callable[[], Rows]] = {
    "step": lambda: steps("mlp"),
    "conv": lambda: steps("conv"),
    "total": totals,
    "draw": draws,
    "predict": predictions,
}


def turn(call: Callable[[], object], least: float) -> float:
    """Median time of calls in a row that last `least` seconds in all, after one that warms up."""
    call()
    times: list[float] = []
    while not times or sum(times) < least:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def serve(kinds: list[str], threads: int) -> None:
    """Answer rows by their times, one line each, until the input ends."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    said, sys.stdout = sys.stdout, sys.stderr
    rows = dict(row for kind in kinds for row in KINDS[kind]())
    for old, new in RENAMED.items():
        rows = {name.replace(old + "`", new + "`"): call for name, call in rows.items()}
    print(json.dumps([*rows]), file=said, flush=True)
    for line in sys.stdin:
        row, least = json.loads(line)
        print(json.dumps(turn(rows[row], least)), file=said, flush=True)


# --- both ----------------------------------------------------------------------------------------


class Side:
    """The process of one checkout."""

    def __init__(self, root: Path, kinds: list[str], threads: int) -> None:
        paths = (root / "src", root / "benchmarks")
        limits = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        command = [sys.executable, "-P", "-W", "ignore", str(Path(__file__).resolve()), "--serve"]
        self.process = subprocess.Popen(
            [*command, *kinds, "--threads", str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            env=os.environ | limits | {"PYTHONPATH": os.pathsep.join(map(str, paths))},
        )
        self.rows: list[str] = self._answer()

    def seconds(self, row: str, least: float) -> float:
        """One turn of one row."""
        print(json.dumps([row, least]), file=self.process.stdin, flush=True)
        return float(self._answer())

    def _answer(self) -> Any:
        if self.process.stdout is None or not (line := self.process.stdout.readline()):
            raise SystemExit("a checkout's process ended early: see its message above")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        if self.process.stdin:
            self.process.stdin.close()
        self.process.wait()


class Ratio(NamedTuple):
    """What the rounds say about a row, times in seconds."""

    before: float
    after: float
    low: float
    middle: float
    high: float

    @property
    def slower(self) -> bool:
        """Whether the middle is over 1.05 and the whole spread above 1."""
        return self.middle > SLOWER and self.low > 1


def compared(before: list[float], after: list[float]) -> Ratio:
    ratios = [two / one for one, two in zip(before, after, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return Ratio(statistics.median(before), statistics.median(after), low, middle, high)


def measured(sides: tuple[Side, Side], rounds: int, least: float, limit: float) -> dict[str, Ratio]:
    """All rows that both checkouts have, in as many whole rounds as begin within the limit."""
    end = time.monotonic() + limit
    rows = [row for row in sides[1].rows if row in sides[0].rows]
    times: dict[str, tuple[list[float], list[float]]] = {row: ([], []) for row in rows}
    for number in range(rounds):
        for row in rows:
            for side in (0, 1) if number % 2 else (1, 0):
                times[row][side].append(sides[side].seconds(row, least))
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        if time.monotonic() > end:
            break
    return {row: compared(*each) for row, each in times.items()}


def table(found: dict[str, Ratio], setting: str) -> str:
    lines = [
        "# Before and after",
        "",
        setting,
        "",
        "| row | before, ms | after, ms | after / before | middle half of rounds | |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for row, ratio in found.items():
        mark = "slower" if ratio.slower else ""
        lines.append(
            f"| {row} | {1e3 * ratio.before:.3g} | {1e3 * ratio.after:.3g} | {ratio.middle:.2f} "
            f"| {ratio.low:.2f} to {ratio.high:.2f} | {mark} |"
        )
    return "\n".join(lines) + "\n"


def commit(root: Path) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "--short", "HEAD"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip() or "unknown"


def main() -> None:
    """Time all rows of both checkouts, print and write the table."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path, nargs="?", help="folder of the older checkout")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--limit", type=float, default=float("inf"), help="no round after, seconds")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--least", type=float, default=0.05, help="seconds per row and turn")
    parser.add_argument("--only", choices=KINDS, nargs="+", default=[*KINDS])
    parser.add_argument("--out", type=Path, default=HERE / "results/benchmarks/before_after.md")
    parser.add_argument("--serve", choices=KINDS, nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        return serve(given.serve, given.threads)
    if given.old is None or not (given.old / "src" / "bayesdiv").is_dir():
        parser.error(f"the folder of an older checkout must hold src/bayesdiv, got {given.old}")
    roots = (given.old.resolve(), HERE)
    sides = tuple(Side(root, given.only, given.threads) for root in roots)
    found = measured((sides[0], sides[1]), given.rounds, given.least, given.limit)
    for side in sides:
        side.close()
    setting = (
        f"`python benchmarks/before_after.py {given.old} --rounds {given.rounds} --threads "
        f"{given.threads}` on {time.strftime('%Y-%m-%d')}: {commit(roots[0])} against "
        f"{commit(roots[1])}, torch {torch.__version__}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f}. Slower: {sum(ratio.slower for ratio in found.values())} of "
        f"{len(found)} rows."
    )
    shown = table(found, setting)
    print(shown)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(shown)
    return None


if __name__ == "__main__":
    main()
