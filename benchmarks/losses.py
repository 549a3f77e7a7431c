"""What the divergence is worth: KL, λKL, JS-G and JS-A by one recipe, on the standard splits.

    python -m benchmarks.losses [--data FOLDER] [--processes 16] [--limit SECONDS]

The same network, likelihood, schedule and stopping rule for every loss, that of
`BayesianRegressor()`. Each loss has three candidate settings. In every split a fifth of the
training rows chooses among them, with two members each; the chosen one learns all training rows,
with the four members of the default, and the test rows judge it. So every loss has the same budget,
and no choice has seen the test rows of its split. Splits of a table share rows, which the choice of
the recipe itself has seen, see benchmarks/tables/README.md: it is the same for all losses.

A line is written to tables/losses.csv after every split and loss; a second call goes on where the
first was stopped. At the end come paired differences to KL and to λKL with 95 % intervals:
Student's t over splits with the variance of Nadeau and Bengio, s² (1/k + n_test/n_train), since
splits overlap. They are of the splits that every loss has; `--limit 0` writes losses.md from the
lines there are, and the page of the documentation.
"""

import argparse
import math
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.tables.study import known, validation, work
from benchmarks.uci import PUBLISHED, Job, ours, read, standard_splits

HERE = Path(__file__).parent
FIELDS = ("loss", "table", "split", "chosen", "nll", "rmse", "coverage", "train", "test", "seconds")
SETS = ("yacht", "boston_housing", "energy_heating", "concrete", "wine_red")
LOSSES = ("KL", "λKL", "JS-G", "JS-A")
# λKL shows what a factor alone is worth; the divergences must be worth more than that.
PAIRS = (("λKL", "KL"), ("JS-G", "KL"), ("JS-A", "KL"), ("JS-G", "λKL"), ("JS-A", "λKL"))


def candidates() -> dict[str, dict[str, dict[str, Any]]]:
    """Three settings of each loss, by name."""
    from bayesdiv import JSA, JSG, KL, FanIn

    def under(divergence: Any, strength: float, gain: float = 1.0) -> dict[str, Any]:
        return {"divergence": divergence, "strength": strength, "prior": FanIn(gain)}

    return {
        "KL": {f"prior gain {gain}": under(KL(), 1.0, gain) for gain in (0.5, 1.0, 2.0)},
        "λKL": {f"λ = {strength}": under(KL(), strength) for strength in (0.03, 0.1, 0.3)},
        "JS-G": {
            f"α = {alpha}, λ = {strength}": under(JSG(alpha), strength)
            for alpha, strength in ((0.1, 0.1), (0.1, 0.3), (0.3, 0.3))
        },
        "JS-A": {
            f"α = {alpha}, λ = {strength}": under(JSA(alpha), strength)
            for alpha, strength in ((0.1, 1.0), (0.3, 0.3), (0.3, 1.0))
        },
    }


PAGE = HERE.parent / "docs/concepts/losses.md"
HEAD = """# What the divergence is worth

KL, λKL (KL with a tuned factor λ), JS-G and JS-A with the same network, likelihood, schedule and
stopping rule, on {tables} UCI tables with {splits} each. Every loss has three candidate settings:
KL three widths of the prior, λKL three values of λ, JS-G and JS-A three pairs of α and λ each. It
chooses among them on a fifth of the training rows of each split, so all have the same budget. For
NLL and RMSE lower is better, so a negative difference favours the loss that is named first. The
differences are paired over splits, with 95 % intervals that allow for their overlap; a loss is
*ahead* or *behind* where the interval excludes 0.

Compare with KL, and with λKL: a factor in front of KL is the simplest way to hold the weights less
tightly, so a divergence is worth what it gains beyond that. This page is written by `python -m
benchmarks.losses`, from `benchmarks/tables/losses.csv`.

"""


class Trial(NamedTuple):
    """One loss on one split."""

    loss: str
    job: Job


def run(trial: Trial) -> dict[str, Any]:
    """Choose among the candidates, learn all training rows, measure on the test rows."""
    import torch

    torch.set_num_threads(1)
    began, number, split = time.perf_counter(), trial.job.split, read(trial.job)
    settings, inner = candidates()[trial.loss], validation(split, number)
    tried = {name: ours(inner, number, members=2, **given) for name, given in settings.items()}
    # A fit that diverged has no NLL to be chosen by.
    chosen = min(tried, key=lambda n: tried[n]["nll"] if math.isfinite(tried[n]["nll"]) else 1e9)
    found = ours(split, number, **settings[chosen])
    return {
        "loss": trial.loss,
        "table": trial.job.name,
        "split": number,
        "chosen": chosen,
        **{key: round(found[key], 5) for key in ("nll", "rmse", "coverage")},
        "train": len(split.y),
        "test": len(split.truth),
        "seconds": round(time.perf_counter() - began, 1),
    }


def interval(differences: list[float], train: int, test: int) -> tuple[float, float]:
    """Mean and half width of the 95 % interval of paired differences over overlapping splits."""
    from scipy.stats import t

    count = len(differences)
    variance = float(np.var(differences, ddof=1)) * (1 / count + test / train)
    return float(np.mean(differences)), float(t.ppf(0.975, count - 1)) * math.sqrt(variance)


Rows = list[dict[str, str]]


def common(rows: Rows, table: str) -> dict[str, Rows]:
    """The rows of each loss on the splits of a table that every loss has, in the same order."""
    by = {
        loss: {int(r["split"]): r for r in rows if (r["table"], r["loss"]) == (table, loss)}
        for loss in LOSSES
    }
    splits = sorted(set.intersection(*(set(each) for each in by.values())))
    return {loss: [by[loss][split] for split in splits] for loss in LOSSES}


def compared(own: dict[str, Rows], loss: str, other: str, key: str) -> tuple[float, float, str]:
    """A loss less another: mean, half width of its interval, and what that says."""
    pairs = [float(a[key]) - float(b[key]) for a, b in zip(own[loss], own[other], strict=True)]
    mean, half = interval(pairs, int(own[loss][0]["train"]), int(own[loss][0]["test"]))
    verdict = "ahead" if mean + half < 0 else "behind" if mean - half > 0 else "undecided"
    return mean, half, verdict


def tables_of(rows: Rows) -> dict[str, dict[str, Rows]]:
    """The tables with two splits or more that every loss has; files may be written half."""
    found = {name: common(rows, name) for name in PUBLISHED}
    return {name: own for name, own in found.items() if len(own["KL"]) >= 2}


def sentences(rows: Rows, key: str) -> list[str]:
    """What each loss is worth beside another, counted over tables."""
    found = []
    for loss, other in PAIRS:
        each = {n: compared(own, loss, other, key)[2] for n, own in tables_of(rows).items()}
        counts = [
            f"{verdict} on {sum(one == verdict for one in each.values())}"
            for verdict in ("ahead", "behind", "undecided")
        ]
        found.append(
            f"{loss} against {other}, {key.upper()} on {len(each)} tables: {', '.join(counts)}."
        )
    return found


def summary(rows: Rows) -> str:
    """Means of each loss, their differences, and what these say, for NLL and RMSE."""
    lines: list[str] = []
    head = [*LOSSES, *(f"{loss} − {other}" for loss, other in PAIRS)]
    for key in ("nll", "rmse"):
        lines += [f"## {key.upper()}", "", f"| table (splits) | {' | '.join(head)} |"]
        lines += ["|---" * (len(head) + 1) + "|"]
        for name, own in tables_of(rows).items():
            cells = [f"{np.mean([float(r[key]) for r in own[loss]]):.3f}" for loss in LOSSES]
            for loss, other in PAIRS:
                mean, half, verdict = compared(own, loss, other, key)
                cells.append(f"{mean:+.3f} ± {half:.3f} {verdict}")
            lines.append(f"| {name} ({len(own['KL'])}) | {' | '.join(cells)} |")
        lines += ["", *(f"- {sentence}" for sentence in sentences(rows, key)), ""]
    return "\n".join(lines)


def page(rows: Rows) -> str:
    """The page of the documentation."""
    counts = sorted({len(own["KL"]) for own in tables_of(rows).values()})
    splits = " to ".join(str(count) for count in dict.fromkeys([counts[0], counts[-1]]))
    return HEAD.format(tables=len(tables_of(rows)), splits=f"{splits} splits") + summary(rows)


def main() -> None:
    """Run what is left, then print and write the tables."""
    default = os.environ.get("BAYESDIV_DATA")
    data = Path(default) / "uci" if default else HERE.parents[1] / "shared/data/uci"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=data, help="folder of the tables")
    parser.add_argument("--out", type=Path, default=HERE / "tables", help="folder of results")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(PUBLISHED))
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds, no fit after them")
    given = parser.parse_args()
    if not (given.data / "standard_splits.json").exists():
        print(f"skipped: there is no standard_splits.json in {given.data}; give --data")
        return
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # of each process; there are several
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "losses.csv"
    done = {(r["loss"], r["table"], int(r["split"])) for r in known(path)}
    splits = standard_splits(given.data)
    left = [
        Trial(loss, Job(given.data, name, split, "bayesdiv"))
        for split in range(given.splits)
        for name in given.sets
        for loss in LOSSES
        if (loss, name, split) not in done and split < len(splits[name]["test"])
    ]
    work(run, left, path, FIELDS, given.processes, given.limit)
    table = summary(known(path))
    (given.out / "losses.md").write_text(table)
    if given.out == HERE / "tables":
        PAGE.write_text(page(known(path)))
    print(table)


if __name__ == "__main__":
    main()
