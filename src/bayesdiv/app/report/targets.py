"""What needs the test data: calibration, mistakes, and where the network is sure or unsure."""

import io
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bayesdiv import metrics
from bayesdiv.app.data.columns import Numeric
from bayesdiv.app.data.encoder import Encoder
from bayesdiv.app.report.charts import Axis, Frame, Series, legend
from bayesdiv.app.report.markup import (
    Html,
    boxed,
    data_uri,
    element,
    figure,
    joined,
    note,
    section,
    table,
)
from bayesdiv.app.report.reading import Tested
from bayesdiv.app.rounding import number, rounded
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.app.tasks.regression import Regression

BINS = 15  # of the reliability diagram, as of the calibration error
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
MOST_INTERVALS = 90  # in a plot: more would touch
MOST_CLASSES = 12  # in a matrix: of more classes the mistakes are listed
MOST_COLUMNS = 40  # of an example
EXAMPLES = 6  # the most certain, and as many of the most uncertain

Looked = Sequence[tuple[Tested, Series]]


def classes(looked: Looked) -> list[Html]:
    """Reliability, ROC curve and confusion of networks that predict classes."""
    drawn = [
        figure(_reliability(looked), element("b", "Reliability on test data")),
        figure(_confidences(looked), element("b", "Predictions by confidence")),
    ]
    said = (
        "Of the predictions made with some confidence, how many are right: on the diagonal as many "
        "as promised, below it fewer. A dot is a bin, the larger the more predictions. ECE is the "
        "mean distance from the diagonal."
    )
    title, areas = "Calibration", [""] * len(looked)
    if len(_classes_of(looked[0][0])) == 2:
        positive, title = _classes_of(looked[0][0])[1], "Calibration and ROC curve"
        try:
            areas = [
                f", AUC {number(metrics.auroc(one.predictive, one.y).item())}" for one, _ in looked
            ]
            drawn.append(figure(_roc(looked), element("b", "ROC curve on test data")))
            said += f" AUC is the area under the ROC curve; class {positive} is positive."
        except ValueError as error:  # a class that the test part has none of
            said += f" There is no ROC curve: {error}."
    named = legend(
        (look, f"{one.run.label}, ECE {number(_ece(one))}{area}")
        for (one, look), area in zip(looked, areas, strict=True)
    )
    charts = element("div", drawn, class_="charts")
    return [section(title, note(said), named, charts), _confusions(looked)]


def _classes_of(one: Tested) -> tuple[str, ...]:
    assert isinstance(one.splits.task, Classification)
    return one.splits.task.classes


def _ece(one: Tested) -> float:
    return metrics.ece(one.predictive, one.y, BINS).item()


def _reliability(looked: Looked) -> Html:
    frame = Frame.of(Axis("confidence", 0.0, 1.0), Axis("accuracy", 0.0, 1.0))
    marks = [frame.guide((0, 0), (1, 1))]
    for one, look in looked:
        bins = metrics.reliability(one.predictive, one.y, BINS)
        seen = bins.count > 0
        points = list(
            zip(bins.confidence[seen].tolist(), bins.accuracy[seen].tolist(), strict=True)
        )
        shares = (bins.count[seen] / bins.count.sum()).tolist()
        radii = [2.5 + 5 * math.sqrt(share) for share in shares]
        marks += [frame.line(points, look), frame.dots(points, look, radii)]
    return frame.drawn(marks, "Accuracy against confidence, bin by bin")


def _confidences(looked: Looked) -> Html:
    """How many predictions are made with which confidence."""
    found = []
    for one, look in looked:
        count = metrics.reliability(one.predictive, one.y, BINS).count
        shares = (count / count.sum()).tolist()
        corners = [((k + edge) / BINS, share) for k, share in enumerate(shares) for edge in (0, 1)]
        found.append(([(0.0, 0.0), *corners, (1.0, 0.0)], look))
    top = max(share for points, _ in found for _, share in points)
    frame = Frame.of(Axis("confidence", 0.0, 1.0), Axis("share of predictions", 0.0, 1.06 * top))
    marks = [frame.line(points, look) for points, look in found]
    return frame.drawn(marks, "Share of predictions in each bin of confidence")


def _roc(looked: Looked) -> Html:
    frame = Frame.of(Axis("false positive rate", 0.0, 1.0), Axis("true positive rate", 0.0, 1.0))
    marks = [frame.guide((0, 0), (1, 1))]
    for one, look in looked:
        curve = metrics.roc(one.predictive, one.y)
        points = zip(
            curve.false_positive_rate.tolist(), curve.true_positive_rate.tolist(), strict=True
        )
        marks.append(frame.line(points, look))
    return frame.drawn(marks, "True against false positive rate at every threshold")


def _confusions(looked: Looked) -> Html:
    names = _classes_of(looked[0][0])
    few = len(names) <= MOST_CLASSES
    parts = []
    for one, _ in looked:
        counts = metrics.confusion(one.predictive, one.y)
        shown = _matrix(counts, names) if few else _mistakes(counts, names)
        parts.append(element("div", element("h3", one.run.label), shown))
    said = (
        "How often a class (row) was called which class (column); shades are shares of the row."
        if few
        else f"The most frequent mistakes, of {len(names)} classes."
    )
    return section("Confusion", note(said), element("div", parts, class_="side"))


def _matrix(counts: Tensor, names: Sequence[str]) -> Html:
    body = []
    for k, row in enumerate(counts.tolist()):
        shares = [count / max(sum(row), 1) for count in row]
        cells = (
            element(
                "td",
                str(count),
                style=f"--share:{share:.3f}",
                class_="right" if k == called else None,
                title=f"{names[k]} called {names[called]}: {share:.1%}",
            )
            for called, (count, share) in enumerate(zip(row, shares, strict=True))
        )
        body.append(element("tr", element("th", names[k], scope="row"), cells))
    head = element(
        "tr",
        element("th", "true \\ called", scope="col"),
        (element("th", name, scope="col") for name in names),
    )
    whole = element(
        "table",
        element("thead", head),
        element("tbody", body),
        class_="matrix",
        aria_label="Confusion",
    )
    return boxed(whole, "Confusion")


def _mistakes(counts: Tensor, names: Sequence[str]) -> Html:
    wrong = counts.clone().fill_diagonal_(0)
    order = wrong.flatten().argsort(descending=True, stable=True)[:20].tolist()
    rows = [
        [names[place // len(names)], names[place % len(names)], str(int(wrong.flatten()[place]))]
        for place in order
        if wrong.flatten()[place] > 0
    ]
    if not rows:
        return note("No test example was called by a wrong name.")
    return table("The most frequent mistakes", ["true", "called", "times"], rows)


def quantities(looked: Looked) -> list[Html]:
    """Intervals of each run, and whether they hold as many targets as they say."""
    up = _target_axis(looked)
    drawn = [figure(*_intervals(one, look, up)) for one, look in looked]
    coverage = element("b", "Coverage of intervals"), "on the diagonal as many as they say"
    said = (
        "Test targets (crosses) in ascending order, each with the predictive mean (dot) and its "
        "90 % interval; then, for intervals of every level, how many of the test targets are "
        "inside."
    )
    named = legend((look, one.run.label) for one, look in looked)
    charts = element("div", drawn, figure(_coverages(looked), *coverage), class_="charts")
    return [section("Intervals", note(said), named, charts)]


def _target_axis(looked: Looked) -> Axis:
    """One axis for all runs, so that their intervals can be compared by eye."""
    ends = [end for one, _ in looked for end in (one.y, *one.interval)]
    first = looked[0][0]
    edges = [edge for each in ends for edge in (each.min(), each.max())]
    return Axis.around(first.splits.target, _units(first, torch.stack(edges)))


def _units(one: Tested, values: Tensor) -> list[float]:
    assert isinstance(one.splits.task, Regression)
    return [float(value) for value in one.splits.task.to_units(values)]


def _intervals(one: Tested, look: Series, up: Axis) -> tuple[Html, Html, str]:
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
    width = (high - low).mean().item() * _scale(one)
    said = f"{inside:.1%} of all targets inside, mean width {number(width)}"
    drawing = frame.drawn(marks, f"Targets, means and 90 % intervals of {one.run.name}")
    return drawing, element("b", one.run.label), said


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


class Example(NamedTuple):
    """A test example with what is said about it."""

    row: int  # of the test part
    lines: dict[str, Html]
    x: Tensor


def uncertainty(looked: Looked) -> Html:
    """The two parts of the uncertainty: in the mean, and in the surest and least sure examples."""
    first = looked[0][0]
    is_classes = isinstance(first.splits.task, Classification)
    summary = _class_summary(looked) if is_classes else _number_summary(looked)
    said = (
        "Entropy is the whole uncertainty about the class, in nats; mutual information the part "
        "that comes from not knowing the weights, which more data would remove."
        if is_classes
        else "Epistemic is what comes from not knowing the weights, which more data would remove; "
        "aleatoric is noise. Both as standard deviations, in the units of the target."
    )
    below = " below the header" if first.splits.name.lower().endswith(".csv") else ""
    said += (
        " Examples are test data; each has the number of its row in "
        f"{first.splits.name}, counted from 1{below}."
    )
    noise = first.run.settings["data"].get("noise")
    if noise:
        said += " Inputs are shown with the noise that was added to them."
    parts: list[Html] = []
    for one, _ in looked:
        found = _class_examples(one) if is_classes else _number_examples(one)
        shown = _pictures if len(first.splits.shape) == 3 else _rows
        parts.append(element("h3", one.run.label))
        for title, examples in found.items():
            parts += [element("h4", title), shown(one, examples)]
    return section("Where the networks are sure and unsure", note(said), summary, *parts)


def _class_summary(looked: Looked) -> Html:
    rows = []
    for one, _ in looked:
        right = one.predictive.probabilities.argmax(-1) == one.y
        quantities = (one.predictive.entropy, one.predictive.mutual_information)
        cells = [_mean(each[which]) for each in quantities for which in (right, ~right)]
        rows.append([one.run.name, *cells])
    head = ["mean over test data", "entropy where right", "where wrong"]
    head += ["mutual information where right", "where wrong"]
    return table("Uncertainty of right and wrong predictions", head, rows)


def _number_summary(looked: Looked) -> Html:
    rows = []
    for one, _ in looked:
        scale = _scale(one)
        parts = (one.predictive.epistemic, one.predictive.aleatoric)
        rows.append([one.run.name, *(_mean(part.sqrt() * scale) for part in parts)])
    head = ["mean over test data", "epistemic", "aleatoric"]
    return table("The two parts of the uncertainty", head, rows)


def _mean(values: Tensor) -> str:
    return number(values.mean().item()) if len(values) else "none"


def _scale(one: Tested) -> float:
    assert isinstance(one.splits.task, Regression)
    return one.splits.task.scale


def _ends(uncertainty: Tensor, make: Callable[[int], Example]) -> dict[str, list[Example]]:
    order = uncertainty.argsort(stable=True).tolist()
    count = min(EXAMPLES, len(order))
    return {
        "Most certain": [make(row) for row in order[:count]],
        "Most uncertain": [make(row) for row in order[::-1][:count]],
    }


def _class_examples(one: Tested) -> dict[str, list[Example]]:
    names, predictive = _classes_of(one), one.predictive
    probabilities, predicted = predictive.probabilities.max(-1)
    entropy, information = predictive.entropy, predictive.mutual_information

    def make(row: int) -> Example:
        called, target = int(predicted[row]), int(one.y[row])
        text = f"{names[called]} ({probabilities[row]:.0%})"
        lines = {
            "predicted": joined(text) if called == target else element("b", text, class_="wrong"),
            "target": joined(names[target]),
            "entropy": joined(rounded(entropy[row].item(), 3)),
            "mutual information": joined(rounded(information[row].item(), 3)),
        }
        return Example(row, lines, one.splits.test.x[row])

    return _ends(entropy, make)


def _number_examples(one: Tested) -> dict[str, list[Example]]:
    predictive, scale = one.predictive, _scale(one)
    low, high = one.interval
    columns = {
        "predicted": _units(one, predictive.mean),
        "target": _units(one, one.y),
        "from": _units(one, low),
        "to": _units(one, high),
        "epistemic": (predictive.epistemic.sqrt() * scale).tolist(),
        "aleatoric": (predictive.aleatoric.sqrt() * scale).tolist(),
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

    return _ends(predictive.variance, make)


def _pictures(one: Tested, examples: Iterable[Example]) -> Html:
    """Images, each with what is said about it."""
    items = []
    for example in examples:
        name = f"image {_row(one, example)}"
        lines = (element("span", f"{key} ", text) for key, text in example.lines.items())
        picture = element("img", src=data_uri(png(example.x), "image/png"), alt=name)
        items.append(element("li", picture, element("span", name, class_="quiet"), lines))
    return element("ul", items, class_="examples")


def _row(one: Tested, example: Example) -> str:
    """Where an example is in the data, so that it can be looked up there."""
    return str(one.splits.test_rows[example.row])


def png(image: Tensor) -> bytes:
    """An image (channels, height, width) with values from 0 to 1 as a PNG file.

    Values beyond are cut off; of other than three channels the first is shown in grey.
    """
    from PIL import Image

    levels = (image.clamp(0, 1) * 255).round().to(torch.uint8).cpu()
    colour = levels.shape[0] == 3
    pixels = levels.permute(1, 2, 0).numpy() if colour else levels[0].numpy()
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, format="PNG")
    return content.getvalue()


def _rows(one: Tested, examples: Sequence[Example]) -> Html:
    """Examples side by side: what is said about them, then the columns of the data."""
    head = ["row", *(_row(one, example) for example in examples)]
    said = [[key, *(e.lines[key] for e in examples)] for key in examples[0].lines]
    assert one.splits.encoder is not None
    read = decoded(one.splits.encoder, torch.stack([example.x for example in examples]))
    more = len(read) - MOST_COLUMNS
    columns = [[name, *values] for name, values in list(read.items())[:MOST_COLUMNS]]
    shown = table("Examples", head, [*said, *columns])
    return joined(shown, note(f"{more} more columns are not shown.")) if more > 0 else shown


def decoded(encoder: Encoder, x: Tensor) -> dict[str, list[str]]:
    """The columns that rows of x were encoded from; the likeliest category of those with noise.

    Examples:
        >>> from bayesdiv.app.data.columns import OneHot
        >>> encoder = Encoder((Numeric("age", 40.0, 10.0), OneHot("smoker", ("no", "yes"))), (3,))
        >>> decoded(encoder, torch.tensor([[2.0, 0.0, 1.0]]))
        {'age': ['60'], 'smoker': ['yes']}
    """
    found, start = {}, 0
    for column in encoder.columns:
        part = x[:, start : start + column.width]
        start += column.width
        if isinstance(column, Numeric):
            found[column.name] = [
                number(v * column.scale + column.loc) for v in part[:, 0].tolist()
            ]
        else:
            found[column.name] = [column.categories[k] for k in part.argmax(-1).tolist()]
    return found
