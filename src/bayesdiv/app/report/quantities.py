"""What a report says about targets that are numbers: intervals, and where networks are unsure."""

import math

import torch
from torch import Tensor

from bayesdiv import metrics
from bayesdiv.app.report.charts import Axis, Frame, Series, legend
from bayesdiv.app.report.examples import Example, Looked, ends, mean
from bayesdiv.app.report.markup import Html, charts, element, figure, joined, note, section, table
from bayesdiv.app.report.reading import Tested
from bayesdiv.app.rounding import number
from bayesdiv.app.tasks.regression import Regression

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
MOST_INTERVALS = 90  # in a plot: more would touch
UNCERTAINTY = (
    "Epistemic is what comes from not knowing the weights, which more data would remove; "
    "aleatoric is noise. Both as standard deviations, in the units of the target."
)


def sections(looked: Looked) -> list[Html]:
    """Intervals of each run, and whether they hold as many targets as they say."""
    up = _target_axis(looked)
    drawn = [figure(*_intervals(one, look, up)) for one, look in looked]
    coverage = "Coverage of intervals", "on the diagonal as many as they say"
    said = (
        "Test targets (crosses) in ascending order, each with the predictive mean (dot) and its "
        "90 % interval; then, for intervals of every level, how many of the test targets are "
        "inside."
    )
    named = legend((look, one.run.label) for one, look in looked)
    drawn.append(figure(_coverages(looked), *coverage))
    return [section("Intervals", note(said), named, charts(*drawn))]


def _target_axis(looked: Looked) -> Axis:
    """One axis for all runs, so that their intervals can be compared by eye."""
    ends = [end for one, _ in looked for end in (one.y, *one.interval)]
    first = looked[0][0]
    edges = [edge for each in ends for edge in (each.min(), each.max())]
    return Axis.around(first.splits.target, _units(first, torch.stack(edges)))


def _quantity(one: Tested) -> Regression:
    assert isinstance(one.splits.task, Regression)
    return one.splits.task


def _units(one: Tested, values: Tensor) -> list[float]:
    return [float(value) for value in _quantity(one).to_units(values)]


def _intervals(one: Tested, look: Series, up: Axis) -> tuple[Html, str, str]:
    order = one.y.argsort(stable=True)
    step = math.ceil(len(order) / MOST_INTERVALS)
    shown = order[::step]
    low, high = one.interval
    target, mean, lows, highs = (
        _units(one, each[shown]) for each in (one.y, one.predictive.mean, low, high)
    )
    places = [float(k) for k in range(1, len(shown) + 1)]
    across = Axis(
        "test rows by target" if step == 1 else f"every {_nth(step)} test row, by target",
        0.0,
        len(shown) + 1.0,
        least=1.0,
    )
    frame = Frame.of(across, up)
    marks = [
        frame.bars(zip(places, lows, highs, strict=True), look),
        frame.dots(list(zip(places, mean, strict=True)), look, [2.2] * len(places)),
        frame.crosses(zip(places, target, strict=True)),
    ]
    inside = ((low <= one.y) & (one.y <= high)).double().mean().item()
    width = (high - low).mean().item() * _quantity(one).scale
    said = f"{inside:.1%} of all targets inside, mean width {number(width)}"
    drawing = frame.drawn(marks, f"Targets, means and 90 % intervals of {one.run.name}")
    return drawing, one.run.label, said


def _nth(step: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(step, f"{step}th")


def _coverages(looked: Looked) -> Html:
    frame = Frame.of(
        Axis("level of the interval", 0.0, 1.0), Axis("share of test targets inside", 0.0, 1.0)
    )
    marks = [frame.guide((0, 0), (1, 1))]
    for one, look in looked:
        points = [(lv, metrics.coverage(one.predictive, one.y, lv).item()) for lv in LEVELS]
        marks += [frame.line(points, look), frame.dots(points, look, [3.2] * len(points))]
    return frame.drawn(marks, "Share of test targets inside intervals of each level")


def summary(looked: Looked) -> Html:
    """The two parts of the uncertainty in the mean."""
    rows = []
    for one, _ in looked:
        units = _quantity(one).to_distance
        parts = (one.predictive.epistemic, one.predictive.aleatoric)
        rows.append([one.run.name, *(mean(units(part.sqrt())) for part in parts)])
    head = ["mean over test data", "epistemic", "aleatoric"]
    return table("The two parts of the uncertainty", head, rows)


def examples(one: Tested) -> dict[str, list[Example]]:
    """The surest and the least sure predictions."""
    predictive, units = one.predictive, _quantity(one).to_distance
    low, high = one.interval
    columns = {
        "predicted": _units(one, predictive.mean),
        "target": _units(one, one.y),
        "from": _units(one, low),
        "to": _units(one, high),
        "epistemic": units(predictive.epistemic.sqrt()).tolist(),
        "aleatoric": units(predictive.aleatoric.sqrt()).tolist(),
    }

    def make(row: int) -> Example:
        told = {name: number(values[row]) for name, values in columns.items()}
        outside = not columns["from"][row] <= columns["target"][row] <= columns["to"][row]
        lines = {
            "predicted": joined(told["predicted"]),
            "90 % interval": joined(f"{told['from']} to {told['to']}"),
            "target": element("b", f"{told['target']} (outside)", class_="wrong")
            if outside
            else joined(told["target"]),
            "epistemic": joined(told["epistemic"]),
            "aleatoric": joined(told["aleatoric"]),
        }
        return Example(row, lines, one.splits.test.x[row])

    return ends(predictive.variance, make)
