"""What a report says about classes: calibration, mistakes, and where networks are unsure."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from bayesdiv import metrics
from bayesdiv.app.report.charts import Axis, Frame, legend
from bayesdiv.app.report.examples import Example, Looked, ends, mean
from bayesdiv.app.report.markup import (
    Html,
    boxed,
    charts,
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

BINS = 15  # of the reliability diagram, as of the calibration error
MOST_CLASSES = 12  # in a matrix: of more classes the mistakes are listed
UNCERTAINTY = (
    "Entropy is the whole uncertainty about the class, in nats; mutual information the part "
    "that comes from not knowing the weights, which more data would remove."
)


def sections(looked: Looked) -> list[Html]:
    """Reliability, ROC curve and confusion of networks that predict classes."""
    drawn = [
        figure(_reliability(looked), "Reliability on test data"),
        figure(_confidences(looked), "Predictions by confidence"),
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
            drawn.append(figure(_roc(looked), "ROC curve on test data"))
            said += f" AUC is the area under the ROC curve; class {positive} is positive."
        except ValueError as error:  # a class that the test part has none of
            said += f" There is no ROC curve: {error}."
    named = legend(
        (look, f"{one.run.label}, ECE {number(_ece(one))}{area}")
        for (one, look), area in zip(looked, areas, strict=True)
    )
    return [section(title, note(said), named, charts(*drawn)), _confusions(looked)]


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
        points = torch.stack([bins.confidence, bins.accuracy], 1)[seen].tolist()
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
        points = torch.stack([curve.false_positive_rate, curve.true_positive_rate], 1)
        marks.append(frame.line(points.tolist(), look))
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
    return boxed("Confusion", ["true \\ called", *names], body, class_="matrix")


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


def summary(looked: Looked) -> Html:
    """The uncertainty of right and wrong predictions in the mean."""
    rows = []
    for one, _ in looked:
        right = one.predictive.probabilities.argmax(-1) == one.y
        quantities = (one.predictive.entropy, one.predictive.mutual_information)
        cells = [mean(each[which]) for each in quantities for which in (right, ~right)]
        rows.append([one.run.name, *cells])
    head = ["mean over test data", "entropy where right", "where wrong"]
    head += ["mutual information where right", "where wrong"]
    return table("Uncertainty of right and wrong predictions", head, rows)


def examples(one: Tested) -> dict[str, list[Example]]:
    """The surest and the least sure predictions."""
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

    return ends(entropy, make)
