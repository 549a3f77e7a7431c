"""How the divergences grow as the posterior leaves the prior (figure 2).

q = N(μ_q, σ_q²), p = N(0, 0.1), in variances as the paper writes them. Upper panels: μ_q moves at
σ_q² = 0.01. Lower panels: σ_q² moves at μ_q = 0.1. Left KL and JS-G, right KL and λ JS-A. The paper
states neither alpha nor λ: at α = ½ JS-G exceeds KL for every μ_q, and λ = 20 lifts JS-A above KL
in most of the range, as the paper says a higher λ does.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributions import Normal

from bayesdiv import JSA, JSG, KL, Divergence, Quadrature, WeightedKL
from bayesdiv.app import runs
from reproduction import plots
from reproduction.item import Effort, Tell, stamp
from reproduction.pictures import save
from reproduction.verdict import Badge, Verdict, checked, not_computed, together

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLACE = Path("figures", "divergence_growth.json")
TOLERANCE = 1e-6  # relative, between closed forms and integration


@dataclass(frozen=True)
class Settings:
    """What is computed.

    Args:
        alpha: of JS-G and JS-A.
        strength: λ, in front of JS-A alone.
        posterior_loc: where the variance moves.
        posterior_variance: where the mean moves.
        prior_variance: of the prior, whose mean is 0.
        farthest: the largest |μ_q|.
        narrowest: the smallest σ_q².
        widest: the largest σ_q².
        points: on each axis.
    """

    alpha: float = 0.5
    strength: float = 20.0
    posterior_loc: float = 0.1
    posterior_variance: float = 0.01
    prior_variance: float = 0.1
    farthest: float = 2.0
    narrowest: float = 1e-3
    widest: float = 10.0
    points: int = 201


SIZES = {Effort.FULL: Settings(), Effort.QUICK: Settings(points=21)}


def missing(results: Path) -> list[str]:
    """The one file of values, where it is not there yet."""
    return [] if (results / PLACE).exists() else ["divergences as the mean and the variance move"]


def compute(results: Path, effort: Effort, tell: Tell) -> None:
    """All divergences along both axes."""
    if not missing(results):
        return
    settings = SIZES[effort]
    far, ends = settings.farthest, (math.log(settings.narrowest), math.log(settings.widest))
    means = torch.linspace(-far, far, settings.points, dtype=torch.float64)
    variances = torch.linspace(*ends, settings.points, dtype=torch.float64).exp()
    tell(f"{settings.points} means and {settings.points} variances")
    told = {
        "settings": asdict(settings),
        **stamp(),
        "mean": _along(means, means.new_tensor(settings.posterior_variance), settings),
        "variance": _along(means.new_tensor(settings.posterior_loc), variances, settings),
    }
    runs.write_json(results / PLACE, told)


def _along(loc: Tensor, variance: Tensor, settings: Settings) -> dict[str, Any]:
    """Each divergence along the axis that moves, and how far its exact rule is from integration."""
    q = Normal(*torch.broadcast_tensors(loc, variance.sqrt()))
    p = Normal(loc.new_tensor(0.0), loc.new_tensor(settings.prior_variance).sqrt())
    alpha = settings.alpha
    divergences: list[Divergence] = [KL(), JSG(alpha), WeightedKL(alpha), JSA(alpha)]
    integrals = {type(d).__name__: d(q, p, Quadrature()) for d in divergences}
    errors = [(d(q, p) / integrals[type(d).__name__] - 1).abs().max() for d in divergences]
    return {
        "across": (loc if loc.dim() else variance).tolist(),
        **{name: values.tolist() for name, values in integrals.items()},
        "largest_error": float(torch.stack(errors).max()),
    }


def _lifted(told: Mapping[str, Any], axis: str, name: str) -> list[float]:
    """The values as they are drawn and compared: JS-A times λ."""
    strength = told["settings"]["strength"] if name == "JSA" else 1.0
    return [strength * value for value in told[axis][name]]


def _above(told: Mapping[str, Any], axis: str, name: str) -> list[bool]:
    """At each place of the axis, whether the divergence is larger than KL."""
    pairs = zip(_lifted(told, axis, name), told[axis]["KL"], strict=True)
    return [value > kl for value, kl in pairs]


def draw(results: Path, out: Path) -> list[Path]:
    """Four panels as in the paper; grey where KL is the larger one."""
    from matplotlib.figure import Figure

    told = runs.read_json(results / PLACE)
    settings = told["settings"]
    figure = Figure(figsize=(10.5, 7.6), layout="constrained")
    panels = figure.subplots(2, 2, sharex="row", sharey="row")
    lifted = f"λ JS-A, λ = {settings['strength']:g}"
    left = {"KL": "KL", "JSG": "JS-G", "WeightedKL": "weighted KLs (eq. 21)"}
    right = {"KL": "KL", "JSA": lifted}
    for row, axis in enumerate(("mean", "variance")):
        _panel(panels[row, 0], told, axis, left, "JSG")
        _panel(panels[row, 1], told, axis, right, "JSA")
    for letter, axes in zip("abcd", panels.flat, strict=True):
        axes.set_title(f"({letter})", loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    for axes in panels[0]:
        axes.set_xlabel(f"mean μ of q, at σ² = {settings['posterior_variance']:g}")
    for axes in panels[1]:
        axes.set(xscale="log", yscale="log")
        axes.set_xlabel(f"variance σ² of q, at μ = {settings['posterior_loc']:g}")
    for axes in panels[:, 0]:
        axes.set_ylabel("divergence (nats)")
    shown = {
        label: handle
        for axes in (panels[1, 0], panels[1, 1])
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(shown.values(), shown, loc="outside lower center", ncols=6, frameon=False)
    prior = f"p with mean 0 and variance {settings['prior_variance']:g}"
    figure.suptitle(f"Divergence of q from {prior}, α = {settings['alpha']:g}")
    return save(figure, out / "divergence_growth.svg")


def _panel(
    axes: "Axes", told: Mapping[str, Any], axis: str, labels: Mapping[str, str], against: str
) -> None:
    across = told[axis]["across"]
    for name, label in labels.items():
        style = plots.STYLES.get(name, ":")
        values = _lifted(told, axis, name)
        axes.plot(across, values, style, color=plots.colour(name), lw=2.2, label=label)
    above = _above(told, axis, against)
    # In the axes' own height, so that the grey reaches from edge to edge on any scale.
    below = [not here for here in above]
    frame = axes.get_xaxis_transform()
    grey: dict[str, Any] = {
        "color": "#808080",
        "alpha": 0.25,
        "lw": 0,
        "zorder": 0,
        "label": "KL is larger",
    }
    axes.fill_between(across, 0, 1, where=below, transform=frame, **grey)
    if axis == "variance":
        axes.axvline(told["settings"]["prior_variance"], color="black", lw=1, label="σ² of p")


def _reach(across: Sequence[float], above: Sequence[bool]) -> str:
    """From where to where it holds, in words; how much of the axis, where it is no one stretch."""
    places = [place for place, here in zip(across, above, strict=True) if here]
    if len(places) == len(across):
        return "everywhere"
    if not places:
        return "nowhere"
    first, last = across.index(places[0]), across.index(places[-1])
    if last - first + 1 > len(places):
        return f"at {len(places)} of {len(across)} places"
    start = "" if first == 0 else f"from {places[0]:.3g} "
    return f"{start}to {places[-1]:.3g}"


def verdict(results: Path) -> Verdict:
    """Whether both JS divergences exceed KL as q leaves p, as the paper says.

    JS-G must do so for every mean and towards narrow variances, λ JS-A along both axes.
    """
    if missing(results):
        return not_computed("nothing is computed yet")
    told = runs.read_json(results / PLACE)
    error = max(told[axis]["largest_error"] for axis in ("mean", "variance"))
    if error > TOLERANCE:
        return checked(False, False, f"closed forms and integration differ by {error:.1e}", 0)
    holds = {
        (axis, name): _above(told, axis, name)
        for axis in ("mean", "variance")
        for name in ("JSG", "JSA")
    }
    words = {key: _reach(told[key[0]]["across"], above) for key, above in holds.items()}
    strength = told["settings"]["strength"]
    sentence = (
        f"JS-G exceeds KL for μ_q {words['mean', 'JSG']} and σ_q² {words['variance', 'JSG']}; "
        f"{strength:g} × JS-A exceeds KL for μ_q {words['mean', 'JSA']} and "
        f"σ_q² {words['variance', 'JSA']}; beyond, KL is larger"
    )
    everywhere = all(all(above) for above in holds.values())
    grows = {
        "JSG": all(holds["mean", "JSG"]) and holds["variance", "JSG"][0],
        "JSA": all(holds["mean", "JSA"]) and all(holds["variance", "JSA"]),
    }
    return Verdict(
        together(Badge.YES if own else Badge.NO for own in grows.values()),
        Badge.YES if everywhere else Badge.NO,
        sentence,
        count=sum(map(len, holds.values())),
    )
