"""What every report has, with or without its data: settings, metrics, curves, the posterior."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from torch.distributions import Distribution

from bayesdiv.app import metric
from bayesdiv.app.experiment import Training
from bayesdiv.app.report.charts import Axis, Frame, Series, Whisker, legend, linear, whiskers
from bayesdiv.app.report.markup import (
    Html,
    charts,
    element,
    figure,
    joined,
    note,
    problem,
    section,
    table,
)
from bayesdiv.app.report.reading import Run, Tested
from bayesdiv.app.rounding import number, rounded
from bayesdiv.app.runs import leaves
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.divergence.joint import Members
from bayesdiv.metrics import TABLE as METRICS
from bayesdiv.model.bayesian import Bayesian
from bayesdiv.model.priors import prior_scale

MOST_POINTS = 400  # of a curve: more cannot be seen
WIDE = 30.0  # divergences this many times apart go on a logarithmic axis


def _digits(value: float) -> str:
    """As many digits in all rows of a column."""
    if math.isnan(value):
        return "–"
    return rounded(value, 4) if abs(value) < 10 else number(value)


def trained(runs: Sequence[Run], known: Sequence[Tested]) -> Html:
    """What was trained: the data, and each network with how it was trained."""
    source, first = runs[0].settings["data"], runs[0].settings
    about = {
        "data": str(source.get("data", "not said")),
        "target": str(first["target"]),
        "task": runs[0].task.description,
        "inputs": _inputs(first),
        "noise added to inputs": f"standard deviation {source['noise']}"
        if source.get("noise")
        else "",
        "bias": f"{source['bias']} (class and share that is kept)" if source.get("bias") else "",
    }
    if known:
        parts = known[0].splits
        about["rows"] = (
            f"{parts.num_data:,} for training, {len(parts.validation.y):,} for validation, "
            f"{len(parts.test.y):,} for testing"
        )
    data = element(
        "dl",
        (joined(element("dt", key), element("dd", text)) for key, text in about.items() if text),
        class_="pairs",
    )
    rows: dict[str, list[str]] = {
        "divergence": [run.loss for run in runs],
        "network": [str(run.experiment.recipe) for run in runs],
        "weights": [f"{run.experiment.num_weights:,}" for run in runs],
    }
    for each in fields(Training):
        name = each.name.replace("_", " ")
        values = [run.settings["training"][each.name] for run in runs]
        rows[name] = [number(v) if isinstance(v, float) else _text(v) for v in values]
    rows |= {
        "best epoch": [str(run.result["best_epoch"]) for run in runs],
        "seconds": [f"{run.result['seconds']:.1f}" for run in runs],
    }
    head = ["run", *(run.name for run in runs)]
    shown = table("What was trained", head, ([name, *texts] for name, texts in rows.items()))
    return section("What was trained", data, element("div", shown, class_="long"), _seeds(runs))


def _inputs(settings: Mapping[str, Any]) -> str:
    shape = settings["shape"]
    if len(shape) == 3:
        return f"images of {shape[1]} × {shape[2]} pixels, channels: {shape[0]}"
    columns = len(settings["encoder"]["columns"])
    return f"{columns} columns, encoded as {shape[0]} numbers"


def _seeds(runs: Sequence[Run]) -> Html:
    seeds = sorted({str(run.settings["data"].get("seed")) for run in runs})
    if len(seeds) == 1:
        return Html("")
    return problem(
        f"The runs split the data by different seeds ({', '.join(seeds)}): they are tested on "
        "different rows, and part of what they differ by comes from that."
    )


def compared(runs: Sequence[Run]) -> Html:
    """The metrics of all runs on test data, the best of each marked, and on validation data."""
    both = ("test", "validation")
    keys = list(dict.fromkeys(key for part in both for run in runs for key in run.result[part]))
    parts = []
    for part, title in (("test", "Test data"), ("validation", "Validation data")):
        values = {key: [float(run.result[part].get(key, math.nan)) for run in runs] for key in keys}
        marked = {key: metric.best(key, each, _digits) for key, each in values.items()}
        rows = [
            [run.name, run.loss, *(_marked(values[key][k], k in marked[key]) for key in keys)]
            for k, run in enumerate(runs)
        ]
        head = ["run", "divergence", *map(_heading, keys)]
        parts += [element("h3", title), table(f"Metrics, {title.lower()}", head, rows)]
    return section("Comparison", *parts, note(_explained(runs, keys)))


def _heading(key: str) -> Html:
    aim = METRICS[key].aim if key in METRICS else ""
    return joined(metric.title(key), element("span", aim, class_="hint"))


def _marked(value: float, is_best: bool) -> Html:
    text = _digits(value)
    return element("span", f"{text} (best)", class_="best") if is_best else joined(text)


def _explained(runs: Sequence[Run], keys: Sequence[str]) -> str:
    lines = {key: METRICS[key].explained for key in keys if key in METRICS}
    task = runs[0].task
    if "false_negative_rate" in keys and isinstance(task, Classification):
        lines["false_negative_rate"] = (
            f"missed: share of class {task.classes[1]} that was not found"
        )
    return "; ".join(lines.values()) + "."


def curves(runs: Sequence[Run], looks: Sequence[Series]) -> Html:
    """How training went, epoch by epoch."""
    pairs = [(run, look) for run, look in zip(runs, looks, strict=True) if run.experiment.history]
    if not pairs:
        return section("Training", note("The runs hold no history of their epochs."))
    measure = runs[0].task.main
    title = metric.title(measure)
    drawn = [
        figure(_likelihood(pairs), "Negative log-likelihood"),
        *_divergences(pairs),
        figure(_single(pairs, f"validation_{measure}", title), f"Validation {title}"),
    ]
    said = note(
        "Thin lines are training, bold ones validation; the dot marks the epoch whose weights were "
        "kept. The divergence is summed over all weights, before the strength; each loss has its "
        "own measure."
    )
    named = legend((look, run.label) for run, look in pairs)
    return section("Training", said, named, charts(*drawn))


Pairs = Sequence[tuple[Run, Series]]


def _curve(run: Run, key: str) -> list[tuple[float, float]]:
    """Epoch and value, thinned where there are more than can be seen."""
    points = [
        (float(line["epoch"]), float(line[key])) for line in run.experiment.history if key in line
    ]
    step = math.ceil(len(points) / MOST_POINTS)
    return points if step < 2 else [*points[::step], points[-1]]


def _epochs(pairs: Pairs) -> Axis:
    last = max(len(run.experiment.history) for run, _ in pairs)
    return Axis("epoch", 1.0, max(float(last), 2.0), least=1.0)


def _likelihood(pairs: Pairs) -> Html:
    keys = ("nll", "validation_nll")
    every = [[y for _, y in _curve(run, key)] for run, _ in pairs for key in keys]
    frame = Frame.of(_epochs(pairs), Axis.around("nats per target", _usual(every)))
    marks = [frame.line(_curve(run, "nll"), look, "thin") for run, look in pairs]
    for run, look in pairs:
        points = _curve(run, "validation_nll")
        kept = [point for point in points if point[0] == run.result["best_epoch"]]
        marks += [frame.line(points, look), frame.dots(kept, look, [4.0] * len(kept))]
    return frame.drawn(marks, "Negative log-likelihood of training and validation data by epoch")


def _usual(curves: Iterable[Sequence[float]]) -> list[float]:
    """Values to be shown: one curve that begins far off does not flatten the rest."""
    finite = [[v for v in curve if math.isfinite(v)] for curve in curves]
    finite = [curve for curve in finite if curve]
    if not finite:
        return []
    low, high, highest = min(map(min, finite)), max(map(median, finite)), max(map(max, finite))
    return [low, min(highest, low + 2.0 * (high - low) + 1e-6 * abs(low))]


def _divergences(pairs: Pairs) -> list[Html]:
    random = [(run, look) for run, look in pairs if run.settings["divergence"] is not None]
    if not random:
        return []
    values = [y for run, _ in random for _, y in _curve(run, "divergence") if math.isfinite(y)]
    apart = bool(values) and min(values) > 0 and max(values) > WIDE * min(values)
    up = Axis.around("nats", values, math.log10 if apart else linear)
    said = "Divergence of the posterior from the prior by epoch"
    return [figure(_lines(random, "divergence", up, said), "Divergence from the prior")]


def _single(pairs: Pairs, key: str, title: str) -> Html:
    every = [[y for _, y in _curve(run, key)] for run, _ in pairs]
    shown = [y for curve in every for y in curve] if key.endswith("accuracy") else _usual(every)
    return _lines(pairs, key, Axis.around(title, shown), f"{title} of validation data by epoch")


def _lines(pairs: Pairs, key: str, up: Axis, description: str) -> Html:
    frame = Frame.of(_epochs(pairs), up)
    marks = [frame.line(_curve(run, key), look) for run, look in pairs]
    return frame.drawn(marks, description)


class Tensors(NamedTuple):
    """One weight tensor of a run: how its posterior compares with its prior."""

    name: str
    shape: tuple[int, ...]
    prior: float  # the median of its prior's scale
    scale: tuple[float, float, float]  # 5, 50, 95 % quantiles of posterior scale / prior scale
    loc: tuple[float, float, float]  # of |posterior mean - prior mean| / prior scale


def tensors(run: Run) -> list[Tensors]:
    """All random weight tensors of a run, in the order of the layout."""
    return [one for module in run.experiment.learned for one in _tensors_of(module)]


def _each_member(q: Distribution) -> Distribution:
    """The posteriors of an ensemble side by side: the mixture's scale is mostly their distance."""
    return q.component_distribution if isinstance(q, Members) else q


def _tensors_of(module: Bayesian) -> Iterable[Tensors]:
    q, p = _each_member(module.q()), module.p()
    prior = prior_scale(p).detach().expand(module.layout.size)
    scale = (q.stddev.detach() / prior).double().cpu().numpy()
    loc = ((q.mean - p.mean).detach().abs() / prior).double().cpu().numpy()
    for entry in module.layout.entries:
        here = slice(entry.offset, entry.offset + entry.size)
        wide, far = (
            np.quantile(each[..., here], (0.05, 0.5, 0.95)).tolist() for each in (scale, loc)
        )
        name, typical = entry.names[0], float(prior[here].median())
        yield Tensors(name, tuple(entry.shape), typical, wide, far)


def posterior(runs: Sequence[Run], looks: Sequence[Series]) -> Html:
    """How far the posterior of each weight tensor has come from its prior."""
    found = [(run, look, tensors(run)) for run, look in zip(runs, looks, strict=True)]
    random = [(run, look, each) for run, look, each in found if each]
    plain = [run.name for run, _, each in found if not each]
    aside = note(f"Deterministic, so without a posterior: {', '.join(plain)}.") if plain else ""
    if not random:
        return section("Posterior against prior", aside)
    said = note(
        "For each weight tensor, the 5 %, 50 % and 95 % quantiles over its weights. A scale of 1 "
        "is the prior's own: the data have said nothing of that weight. The further below 1, the "
        "better it is known."
    )
    drawn = charts(
        figure(_ratios(random, "scale"), "Posterior scale / prior scale"),
        figure(_ratios(random, "loc"), "|posterior mean − prior mean| / prior scale"),
    )
    named = legend((look, run.label) for run, look, _ in random)
    head = ["tensor", "run", "shape", "prior scale", "scale 5 %", "50 %", "95 %"]
    head += ["|mean| 5 %", "50 %", "95 %"]
    rows = [
        [one.name, run.name, _shape(one.shape), *map(number, (one.prior, *one.scale, *one.loc))]
        for run, _, each in random
        for one in each
    ]
    numbers = table("Posterior against prior, by weight tensor", head, rows)
    return section("Posterior against prior", said, aside, named, drawn, numbers)


def _shape(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape)) or "1"


def _ratios(random: Sequence[tuple[Run, Series, list[Tensors]]], what: str) -> Html:
    """A row for each name of a tensor, in it the quantiles of each run that has it."""
    rows: dict[str, list[Whisker]] = {}
    for _, look, each in random:
        for one in each:
            rows.setdefault(one.name, []).append((getattr(one, what), look))
    every = [value for row in rows.values() for quantiles, _ in row for value in quantiles]
    across = Axis.around("1 is the prior's scale, logarithmic axis", [*every, 1.0], math.log10)
    title = {"scale": "Posterior scale", "loc": "Distance of the posterior mean from the prior's"}
    return whiskers(list(rows.items()), across, f"{title[what]} over the prior scale, by tensor")


def settings(runs: Sequence[Run]) -> Html:
    """Every setting of every run, as it is kept with it."""
    kept = [_leaves(run) for run in runs]
    names = list(dict.fromkeys(name for each in kept for name in each))
    head = ["setting", *(run.name for run in runs)]
    rows = ([name, *(each.get(name, "–") for each in kept)] for name in names)
    whole = element("div", table("Settings in full", head, rows), class_="long")
    return section("Settings in full", whole, *_columns(runs))


def _leaves(run: Run) -> dict[str, str]:
    """Settings by their dotted names; the columns of the data have their own table."""
    found = leaves(run.settings)
    return {name: _text(value) for name, value in found if name != "encoder.columns"}


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value)) or "none"
    return "none" if value is None else str(value)


def _columns(runs: Sequence[Run]) -> list[Html]:
    """How the columns of the data are encoded."""
    encoder = runs[0].settings["encoder"]
    if encoder is None:  # images
        return []
    rows = [
        [
            str(column["name"]),
            "categories: " + ", ".join(column["categories"])
            if "categories" in column
            else f"(value − {number(column['loc'])}) / {number(column['scale'])}",
        ]
        for column in encoder["columns"]
    ]
    same = all(run.settings["encoder"] == encoder for run in runs)
    whose = "" if same else f" of {runs[0].name}; the moments of the others differ with their split"
    label = "How the columns are encoded"
    shown = element("div", table(label, ["column", "encoding"], rows), class_="words")
    return [element("h3", label + whose), shown]
