"""What a report says about targets that are numbers: errors, intervals, the least sure rows."""

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from bayesdiv import metrics
from bayesdiv.app.metric import number, percent
from bayesdiv.app.report.markup import Columns, Html, Values, chart, charts, rows, section, thinned
from bayesdiv.app.report.reading import Forecasts, Tested
from bayesdiv.app.tasks.regression import Regression
from bayesdiv.compute.noise import seeded

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
MOST_POINTS = 400  # in a chart: more hide each other
BINS = 10  # of the PIT
NAME = "numbers"


def sections(known: Sequence[Tested]) -> list[Html]:
    """Errors of each run, and whether its intervals hold as many targets as they say."""
    predicted, residuals, pits, risks = [], [], [], []
    for one in known:
        run, distance = one.run.name, cast(Regression, one.splits.task).to_distance
        order = thinned(one.y.argsort(stable=True), MOST_POINTS)
        points = rows(_points(one, order), run=run)
        predicted.append(_predicted(one, points))
        residuals += points
        with seeded(0):  # the same page twice
            counts = torch.histc(metrics.pit(one.predictive, one.y).float(), BINS, 0, 1).int()
        middles = [(k + 0.5) / BINS for k in range(BINS)]
        columns: Columns = {"PIT": middles, "share of rows": (counts / len(one.y)).tolist()}
        pits += rows({**columns, "rows": counts.tolist()}, run=run)
        order = one.predictive.variance.argsort(stable=True)
        error = distance(one.predictive.mean - one.y)[order]
        count = torch.arange(1, len(order) + 1)
        curve = {"share answered": count / len(order)}
        curve["RMSE"] = (error.square().cumsum(0) / count).sqrt()
        risks += rows({name: thinned(each, 100).tolist() for name, each in curve.items()}, run=run)
    chance = 1.96 * math.sqrt((1 - 1 / BINS) / (BINS * len(known[0].y)))
    edges = [max(0.0, 1 / BINS + side * chance) for side in (-1, 1)]
    between = "95 % of the bins of a calibrated forecast are between the dashed lines"
    said = "should scatter around 0 without a trend"
    errors = charts(*predicted, chart("Residuals", said, residuals, "residuals"))
    drawn = charts(
        calibration({one.run.name: [(one.predictive, one.y)] for one in known}),
        chart("PIT", between, pits, "pit", edges=edges),
        chart("Risk against coverage", "RMSE of the rows it is surest of", risks, "risk", y="RMSE"),
    )
    return [section("Errors", errors), section("Intervals", drawn)]


def _points(one: Tested, order: Tensor) -> dict[str, list[float]]:
    units, (low, high) = cast(Regression, one.splits.task).to_units, one.interval
    found = {"predicted": one.predictive.mean, "actual": one.y, "low": low, "high": high}
    drawn = {name: units(values[order]).tolist() for name, values in found.items()}
    return {"row": [one.places[k] for k in order], **drawn}


def _predicted(one: Tested, points: Values) -> Html:
    low, high = one.interval
    inside = ((low <= one.y) & (one.y <= high)).double().mean().item()
    width = cast(Regression, one.splits.task).to_distance(high - low).mean().item()
    said = f"{percent(inside)} of all targets inside, mean width {number(width)}"
    if len(points) < len(one.y):
        said += f"; {len(points)} of {len(one.y):,} rows drawn"
    title, x = f"Predicted against actual: {one.run.label}", f"actual {one.splits.target}"
    return chart(title, said, points, "predicted", x=x)


def calibration(forecasts: Forecasts) -> Html:
    """How many targets, of all seeds, are inside intervals of each level."""
    values = []
    for name, seeds in forecasts.items():
        count = sum(len(y) for _, y in seeds)
        inside = [
            sum(metrics.coverage(each, y, level).item() * len(y) for each, y in seeds) / count
            for level in LEVELS
        ]
        columns: Columns = {"level of the interval": LEVELS, "share of targets inside": inside}
        values += rows(columns, run=name, rows=count)
    return chart("Interval coverage", "", values, "coverage")


def parts(one: Tested) -> dict[str, Tensor]:
    """The two parts of the uncertainty of every row."""
    units, each = cast(Regression, one.splits.task).to_distance, one.predictive
    return {"epistemic": units(each.epistemic.sqrt()), "aleatoric": units(each.aleatoric.sqrt())}


def listed(one: Tested) -> tuple[dict[str, list[str]], dict[str, Tensor]]:
    """What is said of every row, and the orders in which rows are shown."""
    predictive, found = one.predictive, _points(one, torch.arange(len(one.y)))
    low, high, target = found["low"], found["high"], found["actual"]
    ends = zip(low, target, high, strict=True)
    lines = {
        "predicted": [*map(number, found["predicted"])],
        "90 % interval": [f"{number(a)} to {number(b)}" for a, b in zip(low, high, strict=True)],
        "target": [number(b) + ("" if a <= b <= c else " (outside)") for a, b, c in ends],
        **{name: [*map(number, part.tolist())] for name, part in parts(one).items()},
    }
    orders = {
        "Most uncertain": predictive.variance.argsort(descending=True, stable=True),
        "Most wrong": (predictive.mean - one.y).abs().argsort(descending=True, stable=True),
    }
    return lines, orders
