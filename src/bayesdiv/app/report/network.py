"""What every report has, with or without its data: training, the posterior, settings."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, median
from typing import Any

import numpy as np

from bayesdiv.app import metric
from bayesdiv.app.report.charts import Values, chart, charts, rows
from bayesdiv.app.report.markup import Html, element, note, section, table
from bayesdiv.app.report.reading import Run, Tested
from bayesdiv.app.runs import leaves
from bayesdiv.divergence.joint import Members
from bayesdiv.model.bayesian import Bayesian
from bayesdiv.model.priors import prior_scale

MOST_POINTS = 200  # of a curve: more cannot be seen
LEVELS = (0.05, 0.5, 0.95)  # of quantiles over weights
WIDE = 30.0  # divergences this many times apart go on a logarithmic axis

History = Sequence[Mapping[str, Any]]
Histories = Mapping[str, Sequence[History]]
"""The epochs of each seed, by the name of their run."""


def training(histories: Histories, measure: str, samples: int) -> Html:
    """NLL, another metric and the divergence by epoch: the mean over seeds, and their range."""
    both = {"training": "nll", "validation": "validation_nll"}
    curves = {part: _curves(histories, key, "NLL") for part, key in both.items()}
    values = [{**value, "part": part} for part, each in curves.items() for value in each]
    draws, title = f"validation with {samples} draws", metric.title(measure)
    options = {"y": "NLL", "domain": _usual(values, "NLL")}
    found = [chart("Negative log-likelihood", draws, values, "epochs", **options)]
    if values := _curves(histories, f"validation_{measure}", title):
        options = {"y": title, "domain": _usual(values, title)}
        found.append(chart(f"Validation {title}", draws, values, "epochs", **options))
    if values := [v for v in _curves(histories, "divergence", "nats") if v["nats"]]:
        every = [v["nats"] for v in values if math.isfinite(v["nats"])] or [1.0]
        log = 0 < WIDE * min(every) < max(every)
        found.append(chart("Divergence from the prior", "", values, "epochs", y="nats", log=log))
    return section("Training", charts(*found) if histories else "")


def _curves(histories: Histories, key: str, title: str) -> Values:
    """A value by epoch, thinned where there are more than can be seen; over seeds its mean."""
    found = []
    for name, seeds in histories.items():
        epochs = [lines for lines in zip(*seeds, strict=False) if key in lines[0]]
        kept = epochs[::-1][:: math.ceil(len(epochs) / MOST_POINTS) or 1][::-1]
        each = [[float(line[key]) for line in lines] for lines in kept]
        columns = {"epoch": [lines[0]["epoch"] for lines in kept], title: [*map(mean, each)]}
        ends = {"least": [*map(min, each)], "most": [*map(max, each)]} if len(seeds) > 1 else {}
        found += rows({**columns, **ends}, run=name)
    return found


def _usual(values: Values, field: str) -> list[float] | None:
    """The ends of an axis on which one curve that begins far off does not flatten the rest."""
    curves: dict[Any, list[float]] = {}
    for value in values:
        if math.isfinite(value[field]):
            curves.setdefault((value["run"], value.get("part")), []).append(value[field])
    if not curves:
        return None
    every = list(curves.values())
    low, high, highest = min(map(min, every)), max(map(median, every)), max(map(max, every))
    top = min(highest, low + 2.0 * (high - low) + 1e-6 * abs(low) + 1e-12)
    return [low - 0.05 * (top - low), top]


def posterior(runs: Sequence[Run]) -> Html:
    """How far the posterior of each weight tensor has come from its prior."""
    found = {
        run.name: [tensor for m in run.experiment.learned for tensor in _tensors(m)] for run in runs
    }
    plain = [name for name, each in found.items() if not each]
    aside = note(f"Deterministic, so without a posterior: {', '.join(plain)}.") if plain else ""
    if len(plain) == len(runs):
        return section("Posterior against prior", aside)
    titles = ("Posterior scale / prior scale", "|posterior mean − prior mean| / prior scale")
    options = {"field": "tensor", "x": "1 is the prior's scale", "scale": {"type": "log"}, "at": 1}
    drawn = []
    for place, title in enumerate(titles):
        values = [{"run": run, **pair[place]} for run, each in found.items() for pair in each]
        drawn.append(chart(title, "", values, "whiskers", **options))
    return section("Posterior against prior", aside, charts(*drawn))


def _tensors(module: Bayesian) -> Iterable[tuple[dict[str, Any], ...]]:
    """Quantiles of the scales of each weight tensor and of its means, beside the prior's."""
    q, p = module.q(), module.p()
    if isinstance(q, Members):  # side by side: the mixture's scale is mostly their distance
        q = q.component_distribution
    prior = prior_scale(p).detach().expand(module.layout.size)
    wide, far = q.stddev.detach() / prior, (q.mean - p.mean).detach().abs() / prior
    for entry in module.layout.entries:
        here = slice(entry.offset, entry.offset + entry.size)
        shape = " × ".join(map(str, entry.shape)) or "1"
        about = {"tensor": entry.names[0], "shape": shape}
        about["prior scale"] = prior[here].median().item()
        ends = (np.quantile(each[..., here].cpu(), LEVELS).tolist() for each in (wide, far))
        yield tuple({**about, "low": low, "middle": mid, "high": high} for low, mid, high in ends)


def settings(runs: Sequence[Run], known: Sequence[Tested]) -> Html:
    """What was trained, and every setting of every run as it is kept with it."""
    names = ("training", "validation", "testing")
    parts = zip(names, known[0].splits.parts, strict=True) if known else ()
    shape, told = runs[0].settings["shape"], runs[0].settings["encoder"]
    inputs = f"images of {' × '.join(map(str, shape[1:]))} pixels, channels: {shape[0]}"
    if len(shape) == 1:
        inputs = f"{len(told['columns'])} columns as {shape[0]} numbers"
    about = [f"Target {runs[0].settings['target']}: {runs[0].task.description}; inputs: {inputs}."]
    about += [f"Rows: {', '.join(f'{len(p.y):,} for {name}' for name, p in parts)}."] * bool(known)
    kept = [
        {"divergence": run.loss, "network": str(run.experiment.recipe)}
        | {"weights": f"{run.experiment.num_weights:,}", "seconds": f"{run.result['seconds']:.1f}"}
        | {name: _text(value) for name, value in leaves(run.settings) if name != "divergence"}
        for run in runs
    ]
    every = dict.fromkeys(name for each in kept for name in each)
    head = ["setting", *(run.name for run in runs)]
    cells = ([name, *(each.get(name, "–") for each in kept)] for name in every)
    whole = element("summary", "Settings in full"), table("Settings in full", head, cells)
    return section("Settings", note(" ".join(about)), element("details", *whole, class_="long"))


def _text(value: object) -> str:
    if isinstance(value, dict):  # a column of the table
        return ", ".join(f"{name} {_text(part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(map(_text, value)) or "none"
    return "none" if value is None else str(value)
