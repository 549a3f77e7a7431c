"""What a report says about classes: calibration, mistakes, and the least sure rows."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.distributions import Categorical

from bayesdiv import metrics
from bayesdiv.app.metric import rounded
from bayesdiv.app.report.markup import Html, Values, chart, charts, rows, section, thinned
from bayesdiv.app.report.reading import Forecasts, Tested
from bayesdiv.app.report.scores import BINS
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.predictive import Predictive

MOST_CLASSES = 12  # of more, only the mistakes are drawn
MOST_POINTS = 100  # of a curve
NAME = "classes"


def sections(known: Sequence[Tested]) -> list[Html]:
    """Reliability, risk and confusion of networks that predict classes."""
    pairs = {one.run.name: [(one.predictive, one.y)] for one in known}
    risks: Values = []
    for one in known:
        curve = metrics.risk_coverage(one.predictive, one.y)
        share, risk = (thinned(each, MOST_POINTS).tolist() for each in curve)
        risks += rows({"share answered": share, "error rate": risk}, run=one.run.name)
    said = "error rate of the rows it is surest of"
    risk_chart = chart("Risk against coverage", said, risks, "risk", y="error rate")
    drawn = [calibration(pairs), risk_chart]
    said = "a class (row) and what it was called (column); shades are shares of the class"
    if len(_classes_of(known[0])) > MOST_CLASSES:
        said = "mistakes alone: a class (row) and what it was called (column)"
    for one in known:
        names, title = _classes_of(one), f"Confusion: {one.run.label}"
        values = confused(metrics.confusion(one.predictive, one.y), names)
        drawn.append(chart(title, said, values, "confusion", names=names))
    return [section("Calibration and mistakes", charts(*drawn))]


def _classes_of(one: Tested) -> tuple[str, ...]:
    return cast(Classification, one.splits.task).classes


def calibration(forecasts: Forecasts) -> Html:
    """How many predictions of each confidence, of all seeds, are right."""
    values = []
    for name, seeds in forecasts.items():
        shares = torch.cat([each.probabilities for each, _ in seeds])
        pooled = Predictive(Categorical(shares[None]))
        found = metrics.reliability(pooled, torch.cat([y for _, y in seeds]), BINS)
        shown = [each[found.count > 0].tolist() for each in found]
        values += rows(dict(zip(("confidence", "accuracy", "rows"), shown, strict=True)), run=name)
    return chart("Reliability", "", values, "reliability")


def confused(counts: Tensor, names: Sequence[str]) -> Values:
    """How often a class was called which; of many classes the mistakes alone, commonest first."""
    shares = (counts / counts.sum(1, keepdim=True).clamp(min=1)).tolist()
    values = [
        {"class": name, "called": called, "rows": int(count), "share of the class": share}
        for name, row, own in zip(names, counts.tolist(), shares, strict=True)
        for called, count, share in zip(names, row, own, strict=True)
    ]
    if len(names) <= MOST_CLASSES:
        return values
    wrong = [value for value in values if value["rows"] and value["class"] != value["called"]]
    return sorted(wrong, key=lambda value: -value["rows"])


def parts(one: Tested) -> dict[str, Tensor]:
    """The uncertainty of every row, and its part that more data would reduce."""
    each = one.predictive
    return {"entropy": each.entropy, "mutual information": each.mutual_information}


def listed(one: Tested) -> tuple[dict[str, list[str]], dict[str, Tensor]]:
    """What is said of every row, and the orders in which rows are shown."""
    names, predictive = _classes_of(one), one.predictive
    shares, predicted = predictive.probabilities.max(-1)
    own = predictive.probabilities.gather(1, one.y[:, None]).squeeze(1)
    wrong = (predicted != one.y).nonzero().squeeze(1)
    lines = {
        "predicted": [
            f"{names[called]} ({share:.0%}{'' if called == target else ', wrong'})"
            for called, share, target in zip(predicted, shares, one.y, strict=True)
        ],
        "target": [names[int(target)] for target in one.y],
        **{name: [rounded(v, 3) for v in part.tolist()] for name, part in parts(one).items()},
    }
    orders = {
        "Most uncertain": predictive.entropy.argsort(descending=True, stable=True),
        "Most wrong": wrong[own[wrong].argsort(stable=True)],
    }
    return lines, orders
