"""The page of `bayesdiv compare`: losses and simple models over the same splits."""

import math
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from bayesdiv.app import metric
from bayesdiv.app.data.splits import Splits
from bayesdiv.app.metric import number
from bayesdiv.app.report import classes, quantities
from bayesdiv.app.report.markup import Html, chart, charts, element, framed, joined, section, table
from bayesdiv.app.report.page import Histories, training
from bayesdiv.app.report.reading import Forecasts
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.metrics import SHARE, TARGET
from bayesdiv.metrics import TABLE as METRICS

RANGES = {SHARE: (0.0, 1.0), TARGET: (0.0, math.inf)}
"""What a metric of a unit can be, where that has an end."""

Measures = Mapping[str, Sequence[Mapping[str, float]]]
"""The test metrics of each seed, by the names of losses and simple models."""


def page(
    title: str,
    results: Mapping[str, Sequence[Mapping[str, Any]]],
    histories: Histories,
    forecasts: Forecasts,
    splits: Splits,
    samples: int,
) -> str:
    """Metrics over seeds, calibration and training, whose validation took so many `samples`."""
    every = {name: [run["test"] for run in each] for name, each in results.items()}
    measures = {name: each for name, each in every.items() if each}
    share = len(splits.test.y) / splits.num_data
    keys = list(dict.fromkeys(key for found in measures.values() for run in found for key in run))
    kind = classes if isinstance(splits.task, Classification) else quantities
    over = " over seeds" if max(map(len, measures.values())) > 1 else ""
    parts = [
        section(f"Verdict{over}", element("p", " ".join(_verdict(measures, keys, share)))),
        section(f"Metrics{over}", *_metrics(measures, keys, share)),
        section("Calibration on test data", charts(kind.calibration(forecasts))),
        training(histories, splits.task.main, samples),
    ]
    return framed(title, [(name, name, name) for name in measures], parts)


def values_of(measures: Measures, key: str) -> dict[str, list[float]]:
    """A metric over the seeds that have it, by name."""
    found = {name: [run[key] for run in each if key in run] for name, each in measures.items()}
    return {name: each for name, each in found.items() if each}


def _verdict(measures: Measures, keys: Sequence[str], share: float) -> list[str]:
    seeds = max(map(len, measures.values()))
    if seeds == 1:
        return ["One seed was trained: it gives no interval, so nothing here is called better."]
    best = {}
    for key in keys:
        found = {n: each for n, each in values_of(measures, key).items() if len(each) == seeds}
        best[metric.title(key)] = metric.clearly_best(key, found, share)
    clear = [f"{name} has clearly the best {title}." for title, name in best.items() if name]
    open_ = [title for title, name in best.items() if name is None]
    none = f"No row is clearly better than every other in {' or '.join(open_)}." if open_ else ""
    said = (
        f"“Clearly” means that the 95 % interval of the difference over {seeds} splits excludes 0."
    )
    return [*clear, none, said]


def _metrics(measures: Measures, keys: Sequence[str], share: float) -> tuple[Html, Html]:
    drawn, cells = [], {name: [joined(name)] for name in measures}
    for key in keys:
        values, title = [], metric.title(key)
        unit = METRICS[key].unit if key in METRICS else ""
        least, most = RANGES.get(unit, (-math.inf, math.inf))
        for name, each in values_of(measures, key).items():
            middle, wide = mean(each), metric.margin(each, share)
            wide = wide if math.isfinite(wide) else 0.0
            ends = max(least, middle - wide), min(most, middle + wide)
            place = {"row": name, "run": name, "middle": middle}
            values.append({**place, "low": ends[0], "high": ends[1], "seeds": len(each)})
            hint = element("span", f" {' to '.join(map(number, ends))}", class_="hint")
            cells[name].append(joined(number(middle), hint if len(each) > 1 else ""))
        said = "mean and 95 % interval" if max(map(len, measures.values())) > 1 else ""
        # Room beyond the values would have ticks where no value can be.
        options = {"scale": {"padding": 0}} if unit in RANGES else {}
        drawn.append(chart(title, said, values, "whiskers", field="row", x=title, **options))
        for row in cells.values():
            row += [joined("–")] * (len(drawn) + 1 - len(row))
    head = ["row", *map(metric.title, keys)]
    numbers = table("Metrics, test data", head, cells.values())
    return numbers, charts(*drawn)
