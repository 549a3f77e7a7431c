"""The page of `bayesdiv compare`: losses and simple models over the same splits."""

import math
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any, NamedTuple

import torch

from bayesdiv.app import metric
from bayesdiv.app.data.splits import Splits
from bayesdiv.app.metric import number
from bayesdiv.app.report import classes, markup, quantities
from bayesdiv.app.report.markup import Html, chart, charts, element, joined, section, table, thinned
from bayesdiv.app.report.reading import Forecasts
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.metrics import SHARE, TARGET
from bayesdiv.metrics import TABLE as METRICS

RANGES = {SHARE: (0.0, 1.0), TARGET: (0.0, math.inf)}
"""What a metric of a unit can be, where that has an end."""
Results = Mapping[str, Sequence[Mapping[str, Any]]]
MOST_POINTS = 200  # of a curve: more cannot be seen
Histories = Mapping[str, Sequence[Sequence[Mapping[str, Any]]]]
"""The epochs of each seed, by the name of their run."""


class Compared(NamedTuple):
    """The test metrics of losses and simple models over seeds."""

    values: dict[str, dict[str, list[float]]]  # by metric and name, of the seeds that have it
    best: dict[str, str | None]  # the name that is clearly best in a metric
    seeds: int
    share: float  # test rows / training rows


def compared(results: Results, splits: Splits) -> Compared:
    """The results of each name and seed, by metric."""
    tests = {name: [run["test"] for run in each] for name, each in results.items()}
    seeds, share = max(map(len, tests.values())), len(splits.test.y) / splits.num_data
    best, values = {}, {}
    for key in dict.fromkeys(key for each in tests.values() for run in each for key in run):
        values[key] = {n: [run[key] for run in each if key in run] for n, each in tests.items()}
        whole = {name: each for name, each in values[key].items() if len(each) == seeds}
        best[key] = metric.clearly_best(key, whole, share)
    return Compared(values, best, seeds, share)


def page(
    title: str, results: Results, epochs: Histories, tested: Forecasts, splits: Splits, samples: int
) -> str:
    """Metrics over seeds, calibration and training, whose validation took so many `samples`."""
    names = [name for name, each in results.items() if each]
    found = compared({name: results[name] for name in names}, splits)
    kind = classes if isinstance(splits.task, Classification) else quantities
    over = " over seeds" if found.seeds > 1 else ""
    parts = [
        section(f"Verdict{over}", element("p", " ".join(_verdict(found)))),
        section(f"Metrics{over}", *_metrics(found, names)),
        section("Calibration on test data", charts(kind.calibration(tested))),
        training(epochs, splits.task.main, samples),
    ]
    return markup.framed(title, [(name, name, name) for name in names], parts)


def _verdict(found: Compared) -> list[str]:
    if found.seeds == 1:
        return ["One seed was trained: it gives no interval, so nothing here is called better."]
    best = found.best.items()
    clear = [f"{name} has clearly the best {metric.title(key)}." for key, name in best if name]
    open_ = [metric.title(key) for key, name in best if name is None]
    none = f"No row is clearly better than every other in {' or '.join(open_)}." if open_ else ""
    said = "“Clearly” means that the 95 % interval of the difference over "
    return [*clear, none, f"{said}{found.seeds} splits excludes 0."]


def _metrics(found: Compared, names: Sequence[str]) -> tuple[Html, Html]:
    drawn, cells = [], {name: [joined(name)] for name in names}
    for key, held in found.values.items():
        values, title = [], metric.title(key)
        unit = METRICS[key].unit if key in METRICS else ""
        least, most = RANGES.get(unit, (-math.inf, math.inf))
        for name, each in held.items():
            if not each:
                cells[name].append(joined("–"))
                continue
            middle, wide = mean(each), metric.margin(each, found.share)
            wide = wide if math.isfinite(wide) else 0.0
            ends = max(least, middle - wide), min(most, middle + wide)
            place = {"row": name, "run": name, "middle": middle}
            values.append({**place, "low": ends[0], "high": ends[1], "seeds": len(each)})
            hint = element("span", f" {' to '.join(map(number, ends))}", class_="hint")
            cells[name].append(joined(number(middle), hint if len(each) > 1 else ""))
        said = "mean and 95 % interval" if found.seeds > 1 else ""
        # Room beyond the values would have ticks where no value can be.
        options = {"scale": {"padding": 0}} if unit in RANGES else {}
        drawn.append(chart(title, said, values, "whiskers", field="row", x=title, **options))
    head = ["row", *map(metric.title, found.values)]
    return table("Metrics, test data", head, cells.values()), charts(*drawn)


def training(histories: Histories, measure: str, samples: int) -> Html:
    """NLL, another metric and the divergence by epoch: the mean over seeds, and their range."""
    both = {"training": "nll", "validation": "validation_nll"}
    curves = {part: _curves(histories, key, "NLL") for part, key in both.items()}
    values = [{**value, "part": part} for part, each in curves.items() for value in each]
    draws, title = f"validation with {samples} draws", metric.title(measure)
    found = [chart("Negative log-likelihood", draws, values, "epochs", y="NLL")]
    if values := _curves(histories, f"validation_{measure}", title):
        found.append(chart(f"Validation {title}", draws, values, "epochs", y=title))
    if values := [v for v in _curves(histories, "divergence", "nats") if v["nats"]]:
        found.append(chart("Divergence from the prior", "", values, "epochs", y="nats"))
    return section("Training", charts(*found) if histories else "")


def _curves(histories: Histories, key: str, title: str) -> markup.Values:
    """A value by epoch, thinned where there are more than can be seen; over seeds its mean."""
    found = []
    for name, seeds in histories.items():
        epochs = [lines for lines in zip(*seeds, strict=False) if key in lines[0]]
        kept = [epochs[k] for k in thinned(torch.arange(len(epochs)), MOST_POINTS)]
        each = [[float(line[key]) for line in lines] for lines in kept]
        columns = {"epoch": [lines[0]["epoch"] for lines in kept], title: [*map(mean, each)]}
        ends = {"least": [*map(min, each)], "most": [*map(max, each)]} if len(seeds) > 1 else {}
        found += markup.rows({**columns, **ends}, run=name)
    return found
