"""Do 90 % intervals and sets hold 90 %? Twenty random splits of public tables, one small network.

    python benchmarks/coverage.py [--splits 20] [--level 0.9]

A fifth of the rows is held out for calibration and a fifth for the test, 1,000 rows each at most;
the network, 50 hidden units under JS-A, learns from the rest, 2,000 rows at most. The splits of a
table are the trials of one stack. Tables are read from the folder that BAYESDIV_DATA names, or from
shared/data beside the checkout; one that cannot be read is skipped with the reason.

The band is where 95 % of such means lie if rows are exchangeable: given the table, splits are
independent and each has a beta-binomial coverage around k/(n + 1), see `bayesdiv.calibration`. A
target with ties may lie above it.
"""

import argparse
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

import bayesdiv as bd
from bayesdiv.app.data import uci
from bayesdiv.app.data.splits import DataError
from bayesdiv.app.nets.tables import MLP
from bayesdiv.calibration import Central, Intervals, Quantiles, Scaled, Sets

HELD_OUT, MOST, MOST_TRAINED = 0.2, 1000, 2000
EPOCHS, DRAWS, KEPT = 300, 2, 30
SCORES = {"scaled": Scaled(), "quantiles": Quantiles(), "central": Central()}


class Splits(NamedTuple):
    """Rows of each split, (splits, rows, …), standardised by those trained on."""

    train: tuple[Tensor, Tensor]
    held_out: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


class Line(NamedTuple):
    """Coverage of each split, (splits,), and the mean width or size, by the way it is made."""

    name: str
    held_out: int
    test: int
    coverage: dict[str, np.ndarray]
    width: dict[str, float]


def numbers() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """The fourteen regression tables that can be read."""
    for name in uci.SETS:
        try:
            table = uci.read(name)
        except DataError as error:
            print(f"skipped {name}: {error}")
            continue
        frame = table.frame
        yield name, frame.drop(columns=table.target).to_numpy(float), frame[table.target].to_numpy()


def classes() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Tables of classes that come with scikit-learn."""
    from sklearn import datasets

    for name in ("breast_cancer", "digits", "iris", "wine"):
        yield name, *getattr(datasets, f"load_{name}")(return_X_y=True)


def split(x: np.ndarray, y: np.ndarray, count: int) -> Splits:
    rows = len(y)
    held = min(MOST, round(HELD_OUT * rows))
    trained = min(MOST_TRAINED, rows - 2 * held)
    order = torch.stack(
        [torch.randperm(rows, generator=torch.Generator().manual_seed(s)) for s in range(count)]
    )
    order = order[:, : trained + 2 * held]
    inputs, targets = torch.from_numpy(x.astype(float)), torch.from_numpy(np.asarray(y))
    inputs = standardised(inputs[order], inputs[order[:, :trained]])
    targets = targets[order]
    if targets.is_floating_point():
        targets = standardised(targets, targets[:, :trained])
    ends = [0, trained, trained + held, trained + 2 * held]
    parts = [slice(*pair) for pair in itertools.pairwise(ends)]
    return Splits(*((inputs[:, part], targets[:, part]) for part in parts))


def standardised(values: Tensor, by: Tensor) -> Tensor:
    scale = by.std(1, keepdim=True)
    return ((values - by.mean(1, keepdim=True)) / scale.where(scale > 0, 1.0)).float()


def trained(parts: Splits, outputs: int, likelihood: nn.Module) -> bd.Bayesian:
    """One network per split, all in one program."""
    torch.manual_seed(0)
    x, y = parts.train
    count, rows, inputs = x.shape
    alone = [
        bd.bayesianize(MLP(inputs, outputs, (50,)).build(), bd.FanIn(), start=0.05)
        for _ in range(count)
    ]
    model = bd.stacked(alone)
    objective = bd.Objective(likelihood, bd.JSA(0.3), num_data=rows, samples=DRAWS)
    optimizer = torch.optim.Adam([*model.parameters(), *objective.parameters()], lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in bd.fit(model, objective, [(x, y)], optimizer, EPOCHS, seed=0):
        schedule.step()
    return model


def predicted(model: bd.Bayesian, likelihood: nn.Module, x: Tensor) -> list[bd.Predictive]:
    """The predictions of each split."""
    found = bd.predict(model, likelihood, x, samples=KEPT).conditional
    if isinstance(found, Categorical):
        return [bd.Predictive(Categorical(logits=each)) for each in found.logits.unbind(1)]
    pairs = zip(found.loc.unbind(1), found.scale.unbind(1), strict=True)
    return [bd.Predictive(Normal(loc, scale)) for loc, scale in pairs]


def of_numbers(name: str, x: np.ndarray, y: np.ndarray, count: int, level: float) -> Line:
    parts = split(x, y.astype(float), count)
    likelihood = bd.Gaussian(torch.ones(count))
    model = trained(parts, 1, likelihood)
    held_out, test = (predicted(model, likelihood, part[0]) for part in parts[1:])

    def ends(way: str, trial: int) -> tuple[Tensor, Tensor]:
        if way == "network":
            return test[trial].interval(level)
        y = parts.held_out[1][trial]
        return Intervals.fit(held_out[trial], y, level, score=SCORES[way])(test[trial])

    inside, width = {}, {}
    for way in ("network", *SCORES):
        low, high = (
            torch.stack(end) for end in zip(*(ends(way, t) for t in range(count)), strict=True)
        )
        hit = (low <= parts.test[1]) & (parts.test[1] <= high)
        inside[way] = hit.double().mean(1).numpy()
        width[way] = (high - low).median(1).values.mean().item()
    return Line(name, parts.held_out[1].shape[1], parts.test[1].shape[1], inside, width)


def of_classes(name: str, x: np.ndarray, y: np.ndarray, count: int, level: float) -> Line:
    parts = split(x, y.astype(np.int64), count)
    likelihood = bd.Classes()
    model = trained(parts, int(y.max()) + 1, likelihood)
    held_out, test = (predicted(model, likelihood, part[0]) for part in parts[1:])
    torch.manual_seed(0)
    inside, width = {}, {}
    for way, share in {"drawn share": None, "share 1": 1.0}.items():
        fitted = [
            Sets.fit(each, labels, level, share=share)
            for each, labels in zip(held_out, parts.held_out[1], strict=True)
        ]
        member = torch.stack([sets(each) for sets, each in zip(fitted, test, strict=True)])
        hit = member.gather(-1, parts.test[1].unsqueeze(-1)).squeeze(-1)
        inside[way] = hit.double().mean(1).numpy()
        width[way] = member.double().sum(-1).mean().item()
    return Line(name, parts.held_out[1].shape[1], parts.test[1].shape[1], inside, width)


def rank(count: int, level: float) -> int:
    """Which of so many ascending scores is the conformal threshold, counted from 1."""
    return math.ceil((count + 1) * Fraction(str(level)))


def band(line: Line, count: int, level: float) -> tuple[float, float]:
    """Where the mean of `count` beta-binomial coverages lies with probability 95 %."""
    random = np.random.default_rng(0)
    k = rank(line.held_out, level)
    chance = random.beta(k, line.held_out + 1 - k, (20_000, count))
    means = random.binomial(line.test, chance).mean(1) / line.test
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |")


def table(lines: list[Line], count: int, level: float) -> None:
    ways = list(lines[0].coverage)
    print()
    row("table", "calibration rows", "band", *ways, *(f"width, {way}" for way in ways))
    row(*["---"] * (3 + 2 * len(ways)))
    inside = dict.fromkeys(ways, 0)
    for line in lines:
        low, high = band(line, count, level)
        means = {way: float(line.coverage[way].mean()) for way in ways}
        for way in ways:
            inside[way] += low <= means[way] <= high
        covered = [f"{100 * means[way]:.1f}" for way in ways]
        widths = [f"{line.width[way]:.2f}" for way in ways]
        row(
            line.name, f"{line.held_out}", f"{100 * low:.1f} to {100 * high:.1f}", *covered, *widths
        )
    whole = [100 * np.mean([line.coverage[way].mean() for line in lines]) for way in ways]
    promised = 100 * np.mean([rank(line.held_out, level) / (line.held_out + 1) for line in lines])
    empty = [""] * len(ways)
    row("mean", "", f"{promised:.1f}", *(f"{mean:.1f}" for mean in whole), *empty)
    row("in the band", "", "", *(f"{inside[way]} of {len(lines)}" for way in ways), *empty)


Measure = Callable[[str, np.ndarray, np.ndarray, int, float], Line]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--level", type=float, default=0.9)
    parser.add_argument("--only", nargs="+", default=[], help="these tables alone")
    given = parser.parse_args()
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    if "BAYESDIV_DATA" not in os.environ and beside.exists():
        os.environ["BAYESDIV_DATA"] = str(beside)
    started = time.perf_counter()
    kinds: list[tuple[Measure, Iterator[tuple[str, np.ndarray, np.ndarray]]]] = [
        (of_numbers, numbers()),
        (of_classes, classes()),
    ]
    for measure, found in kinds:
        lines = [
            measure(name, x, y, given.splits, given.level)
            for name, x, y in found
            if not given.only or name in given.only
        ]
        if lines:
            table(lines, given.splits, given.level)
    threads = torch.get_num_threads()
    print(
        f"\n{time.perf_counter() - started:.0f} s, {threads} threads, PyTorch {torch.__version__}"
    )


if __name__ == "__main__":
    main()
