"""The verdict of a page: how good each run is, beside simple models, with 95 % intervals."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from bayesdiv.app import calibrated, metric
from bayesdiv.app.baselines import forecasts
from bayesdiv.app.metric import number, percent, rounded
from bayesdiv.app.report.markup import Html, element, joined, note, section, table
from bayesdiv.app.report.reading import Run, Tested
from bayesdiv.app.task import Task
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.app.tasks.regression import Regression
from bayesdiv.metrics import LEVEL
from bayesdiv.metrics import TABLE as METRICS
from bayesdiv.predictive import Predictive

Array = NDArray[np.float64]
MOST = 1000  # resamples of the test rows
ROOM = 10_000_000  # numbers that all resamples together may take
BINS = 15  # of the calibration error


def resamples(rows: int, seed: int = 0) -> Array:
    """How often each row counts, (1 + resamples, rows): once in the first, then at random."""
    count = max(200, min(MOST, ROOM // rows))
    drawn = np.random.default_rng(seed).multinomial(rows, np.full(rows, 1 / rows), count)
    return np.concatenate([np.ones((1, rows)), drawn])


def scores(task: Task, predictive: Predictive, y: torch.Tensor, counts: Array) -> dict[str, Array]:
    """Each metric of all rows and then of every resample, (1 + resamples,), where known here."""
    # A metric is a function of means over rows, so that one product has all resamples.
    if not isinstance(task, Classification):
        low, high = predictive.interval(LEVEL)
        squares = cast(Regression, task).to_distance(predictive.mean - y).square()
        logs = task.log_scale - predictive.log_prob(y).double()
        inside = ((low <= y) & (y <= high)).double()
        means = (counts @ each.numpy() / len(y) for each in (squares, logs, inside))
        squared, nll, coverage = means
        return {"rmse": np.sqrt(squared), "nll": nll, "coverage": coverage}
    sure, called = predictive.probabilities.double().max(1)
    right = (called == y).double()
    bins = torch.bucketize(sure, torch.arange(1, BINS).double() / BINS)
    gaps = torch.eye(BINS).double()[bins] * (sure - right)[:, None]
    logs = -predictive.probabilities.double().gather(1, y[:, None]).squeeze(1).log()
    each = (right, logs, gaps, ((y == 1) & (called != 1)).double(), (y == 1).double(), sure - right)
    hit, nll, gap, missed, there, surplus = (counts @ rows.numpy() / len(y) for rows in each)
    with np.errstate(invalid="ignore"):  # a resample without any row of a class
        found = {"false_negative_rate": missed / there, "ece": np.abs(gap).sum(1)}
    return {"accuracy": hit, "nll": nll, **found, "surplus": surplus}


def ends(values: Array) -> tuple[float, float]:
    """The 95 % interval of what was resampled."""
    usable = values[1:][np.isfinite(values[1:])]
    low, high = np.quantile(usable, (0.025, 0.975)) if len(usable) else (math.nan, math.nan)
    return float(low), float(high)


Measured = Mapping[str, Mapping[str, Array]]
"""The scores of each run and simple model, by their names."""


def measured(known: Sequence[Tested]) -> tuple[Measured, Measured]:
    """The scores of the runs, and those of simple models on the rows of the first."""
    first, seed = known[0], known[0].run.experiment.training.seed
    own = {o.run.name: scores(o.splits.task, o.predictive, o.y, resamples(len(o.y))) for o in known}
    counts = resamples(len(first.y))
    simple = forecasts(first.splits, first.part.x, seed)
    beside = {name: scores(first.splits.task, made, first.y, counts) for name, made, _ in simple}
    return own, beside


def verdict(known: Sequence[Tested], own: Measured, beside: Measured) -> Html:
    """What was learned, how good it is and how sure, in a few sentences with intervals."""
    first, task, count = known[0], known[0].splits.task, len(known)
    what = f"predict {first.splits.target}" if first.splits.target else "name the class"
    draws = sorted({one.predictive.samples for one in known})
    drawn = f"{' or '.join(map(str, draws))} weight draw{'s' * (draws != [1])}"
    unseen = " that training never used" if first.part is first.splits.test else ""
    rows = first.what
    network, tested = f"network{'s' * (count > 1)}", f"{len(first.y):,} {rows} of {first.source}"
    began = f"From {first.splits.num_data:,} training {rows} the {network} learned to {what}."
    where = f"Every figure, curve and table above the section Data is of {tested}{unseen}"
    said = [element("p", f"{began} {where}, and averages {drawn}.")]
    for one in known:
        name = joined(element("b", one.run.label), ": ") if count > 1 else ""
        mine, others = own[one.run.name], beside if _same_rows(one, first) else {}
        how, judged = _calibrated(one)
        text = f"{_good(task, mine, others)} {_promised(mine, judged)} {how}".strip()
        said.append(element("p", name, text))
    if count > 1:
        said.append(element("p", _between(task, known, own)))
    return section("Verdict", element("div", said, class_="verdict"))


def _same_rows(one: Tested, other: Tested) -> bool:
    return one.places == other.places and one.source == other.source


def _good(task: Task, mine: Mapping[str, Array], beside: Measured) -> str:
    key = task.main
    if key not in mine:
        return ""
    value, low, high = (_size(key, each, "%") for each in (mine[key][0], *ends(mine[key])))
    text = f"Its predictions are off by {value} ({metric.title(key)}, "
    if isinstance(task, Classification):
        text = f"It names the right class for {value} of them ("
    text += f"95 % interval {low} to {high})"
    rivals = {name: each[key] for name, each in beside.items() if key in each}
    if not rivals:
        return f"{text}."
    plain, *others = rivals
    best = min(others, key=lambda name: METRICS[key].loss(rivals[name][0]))
    label = f"{best}, the best of {len(others)} simple models on these rows"
    trivial = against(key, mine[key], rivals[plain], f"always answering the {plain}")
    return f"{text}: {trivial} and {against(key, mine[key], rivals[best], label)}."


def against(key: str, mine: Array, other: Array, name: str) -> str:
    """How a value compares with another, and whether the difference is clear."""
    difference = mine - other
    low, high = ends(difference)
    if low <= 0 <= high:
        return f"not clearly different from {name} ({_size(key, low)} to {_size(key, high)})"
    near, far = sorted([abs(low), abs(high)])
    word = "more" if difference[0] > 0 else "less"
    size = f"{_size(key, abs(difference[0]))} {word} than {name}"
    return f"{size} ({_size(key, near)} to {_size(key, far)})"


def _calibrated(one: Tested) -> tuple[str, bool]:
    """By what a run is calibrated, in words, and whether the rows of `one` can judge that."""
    parts, judged = [], True
    for each in calibrated.fitted(one.run.folder):
        same = each["sha256"] == calibrated.digest(*one.part)
        judged = judged and not same
        source = Path(each["source"]).name
        which = f"{one.what} of {source}" if source else f"test {one.what}"
        what = f"{'these very' if same else 'the'} {each['rows']:,} {which}"
        parts.append(f"{each['kind']}, fitted to {what}")
    said = f"It is calibrated ({'; '.join(parts)})." if parts else ""
    if not judged:
        said += " How well its intervals or probabilities hold on them therefore proves nothing: "
        said += f"only {one.what} that neither training nor calibration used can show that."
    return said, judged


def _promised(mine: Mapping[str, Array], judged: bool) -> str:
    if "coverage" in mine:
        low, high = ends(mine["coverage"])
        side = "fewer than promised, so they are too narrow" if high < LEVEL else "as promised"
        side = "more than promised, so they are wider than they need be" if low > LEVEL else side
        share, *around = map(percent, (mine["coverage"][0], low, high))
        held = f"Its 90 % intervals hold {share} of the targets ({' to '.join(around)})"
        return f"{held}{f': {side}' * judged}."
    gap, (low, high) = mine["surplus"][0], ends(mine["surplus"])
    side = "it is too sure" if low > 0 else "it could be surer" if high < 0 else "as it should be"
    points = " to ".join(f"{100 * end:.1f}" for end in (low, high))
    size = f"{100 * abs(gap):.1f} points {'above' if gap > 0 else 'below'} its accuracy"
    return f"Its mean confidence is {size} (difference {points}){f': {side}' * judged}."


def _between(task: Task, known: Sequence[Tested], own: Measured) -> str:
    """Which runs differ beyond their intervals."""
    title, key = metric.title(task.main), task.main
    if not all(_same_rows(one, known[0]) for one in known):
        split = "The runs split the data by different seeds: they are tested on different rows"
        return f"{split}, so their {title} is not compared here."
    pairs = combinations([(one.run.name, own[one.run.name]) for one in known], 2)
    found = [
        f"{one} has {against(key, mine[key], theirs[key], other)}"
        for (one, mine), (other, theirs) in pairs
        if key in mine and key in theirs
    ]
    clear = [text for text in found if "not clearly" not in text]
    if not clear:
        return f"No two runs differ clearly in {title}: the interval of each difference includes 0."
    return f"{title} differs clearly between these runs: {'; '.join(clear)}."


def _size(key: str, value: float, unit: str = "points") -> str:
    """A difference of values, or a value with its unit."""
    return f"{100 * value:.1f} {unit}" if key == "accuracy" else number(value)


def digits(value: float) -> str:
    """As many digits in all rows of a column."""
    if math.isnan(value):
        return "–"
    return rounded(value, 4) if abs(value) < 10 else number(value)


def compared(runs: Sequence[Run], own: Measured, beside: Measured) -> Html:
    """The test metrics of runs and simple models, each with its interval; none is called best."""
    keys = list(dict.fromkeys(key for run in runs for key in run.result["test"]))
    shown = [(run.name, run.loss, {**run.result["test"], **own[run.name]}) for run in runs]
    shown += [(name, "simple model", dict(each)) for name, each in beside.items()]
    rows = [[n, loss, *(_cell(each.get(k, math.nan)) for k in keys)] for n, loss, each in shown]
    known = [METRICS[key] for key in keys if key in METRICS]
    aims = {each.title: element("span", each.aim, class_="hint") for each in known}
    titles = (joined(name, aims.get(name, "")) for name in map(metric.title, keys))
    head = ["run", "divergence", *titles]
    said = "; ".join(each.explained for each in known) + ". Below each value: its 95 % interval, "
    said += "by resampling the test rows. Training again with another seed would widen it."
    return section("Metrics", table("Metrics, test data", head, rows), note(said))


def _cell(found: float | Array) -> Html:
    """A value, with its interval where it was resampled."""
    if not isinstance(found, np.ndarray):
        return joined(digits(found))
    low, high = map(digits, ends(found))
    return joined(digits(found[0]), element("span", f" {low} to {high}", class_="hint"))
