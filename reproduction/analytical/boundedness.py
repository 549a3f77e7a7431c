"""KL and JS-G are infinite against a uniform prior, JS-A is not (figures 1 and B.12).

q = N(0, σ), p = U(-5, 5), as σ grows: by 50,000 samples as in the paper, and by integration. The
samples show finite values of KL and JS-G as long as none of them falls outside (-5, 5); q has mass
there for every σ, so the exact values are infinite from the start.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributions import Normal, Uniform

from bayesdiv import JSA, JSG, KL, MonteCarlo, Quadrature
from bayesdiv.app import runs
from bayesdiv.divergence import Estimator
from reproduction import plots
from reproduction.item import Effort, Tell, stamp
from reproduction.pictures import save
from reproduction.verdict import Verdict, checked, not_computed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLACE = Path("figures", "boundedness.json")
TITLES = {"KL": "KL", "JSG": "JS-G", "JSA": "JS-A"}
TOLERANCE = 0.02  # nats, of JS-A by samples; 50,000 samples have a standard error below 0.004


@dataclass(frozen=True)
class Settings:
    """What is computed.

    Args:
        alpha: of JS-G and JS-A; the paper does not state it.
        edge: the prior is uniform on (-edge, edge).
        narrowest: the smallest scale of q.
        widest: the largest.
        scales: how many, evenly spaced on a logarithmic axis.
        samples: draws for each divergence and scale.
        seed: of the draws.
    """

    alpha: float = 0.5
    edge: float = 5.0
    narrowest: float = 0.6
    widest: float = 60.0
    scales: int = 101
    samples: int = 50_000
    seed: int = 0


SIZES = {Effort.FULL: Settings(), Effort.QUICK: Settings(scales=13, samples=2_000)}


def missing(results: Path) -> list[str]:
    """The one file of values, where it is not there yet."""
    return [] if (results / PLACE).exists() else ["KL, JS-G and JS-A against a uniform prior"]


def compute(results: Path, effort: Effort, tell: Tell) -> None:
    """All divergences at all scales, by samples and by integration."""
    if not missing(results):
        return
    settings = SIZES[effort]
    ends = math.log(settings.narrowest), math.log(settings.widest)
    scale = torch.linspace(*ends, settings.scales, dtype=torch.float64).exp()
    tell(f"{settings.samples} samples at {settings.scales} scales")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        sampled = _values(scale, settings, MonteCarlo(settings.samples))
    tell("integration")
    told = {
        "settings": asdict(settings),
        **stamp(),
        "infinite": "null",
        "bound": JSA(settings.alpha).bound,
        "scale": scale.tolist(),
        "chance_inside": _chance_inside(scale, settings).tolist(),
        "sampled": sampled,
        "exact": _values(scale, settings, Quadrature()),
    }
    runs.write_json(results / PLACE, told)


def _values(
    scale: Tensor, settings: Settings, estimator: Estimator
) -> dict[str, list[float | None]]:
    """One value per scale and divergence; None where it is infinite, which JSON cannot hold."""
    q = Normal(torch.zeros_like(scale), scale)
    edge = scale.new_tensor(settings.edge)
    p = Uniform(-edge, edge)
    found = {}
    for divergence in (KL(), JSG(settings.alpha), JSA(settings.alpha)):
        values = divergence(q, p, estimator).tolist()
        found[type(divergence).__name__] = [v if math.isfinite(v) else None for v in values]
    return found


def _chance_inside(scale: Tensor, settings: Settings) -> Tensor:
    """The chance that no sample leaves the support of p: (1 - erfc(edge / σ√2))^samples."""
    outside = torch.erfc(settings.edge / (scale * math.sqrt(2)))
    return (settings.samples * torch.log1p(-outside)).exp()


def draw(results: Path, out: Path) -> list[Path]:
    """The two distributions, the divergences by samples, and their exact values."""
    from matplotlib.figure import Figure

    told = runs.read_json(results / PLACE)
    figure = Figure(figsize=(13, 4.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=[1, 1.25, 1.25])
    _densities(left, told["settings"]["edge"])
    title = f"By {told['settings']['samples']:,} samples, as in the paper"
    _curves(middle, told, told["sampled"], title)
    _chances(middle, told["scale"], told["chance_inside"])
    _curves(right, told, told["exact"], "Exact values")
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    alpha, edge = told["settings"]["alpha"], told["settings"]["edge"]
    figure.suptitle(f"q = N(0, σ) against p = U(-{edge:g}, {edge:g}); α = {alpha:g}")
    handles, labels = middle.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    return save(figure, out / "boundedness.svg")


def _densities(axes: "Axes", edge: float) -> None:
    x = torch.linspace(-2 * edge, 2 * edge, 801, dtype=torch.float64)
    axes.fill_between([-edge, edge], 1 / (2 * edge), color="#999999", alpha=0.35, lw=0, label="p")
    for scale, style in ((1.0, "-"), (2.0, "--"), (4.0, ":")):
        density = Normal(0.0, scale).log_prob(x).exp()
        axes.plot(x, density, style, color="black", lw=1.8, label=f"q, σ = {scale:g}")
    axes.set(xlabel="w", ylabel="density", title="Distributions", ylim=(0, None))
    axes.legend(frameon=False, fontsize="small", loc="upper right")


INFINITE, GAP = 3.6, 3.2  # where infinity is drawn, and where the axis breaks off before it


def _curves(
    axes: "Axes", told: Mapping[str, Any], values: Mapping[str, Sequence[float | None]], title: str
) -> None:
    """Finite values as lines, infinite ones as marks in their own row at the top."""
    for height, (name, label) in zip((0.12, 0.0, 0.0), TITLES.items(), strict=True):
        colour, scale = plots.COLOURS[name], told["scale"]
        finite = [math.nan if v is None else v for v in values[name]]
        infinite = [INFINITE + height if v is None else math.nan for v in values[name]]
        axes.plot(scale, finite, plots.STYLES[name], color=colour, lw=2.2, label=label)
        axes.plot(scale, infinite, plots.STYLES[name], color=colour, lw=4)
        for line in (finite, infinite):
            axes.plot(scale, _alone(line), "o", color=colour, ms=4)
    axes.axhline(told["bound"], color="black", lw=1, ls=(0, (1, 2)), label="bound of JS-A")
    axes.axhspan(GAP, INFINITE + 0.3, color="#808080", alpha=0.15, lw=0, zorder=0)
    axes.set_xscale("log")
    axes.set(xlabel="scale σ of q", ylabel="divergence (nats)", title=title)
    axes.set_ylim(0, INFINITE + 0.3)
    axes.set_yticks([0, 0.5, 1, 1.5, 2, 2.5, 3, INFINITE + 0.06])
    axes.set_yticklabels(["0", "0.5", "1", "1.5", "2", "2.5", "3", "∞"])
    axes.set_xticks([1, 2, 5, 10, 20, 50], labels=["1", "2", "5", "10", "20", "50"])
    axes.minorticks_off()


def _alone(line: Sequence[float]) -> list[float]:
    """The points without a neighbour on either side, which a line does not show."""
    padded = [math.nan, *line, math.nan]
    return [
        math.nan if math.isfinite(before) or math.isfinite(after) else here
        for before, here, after in zip(padded, line, padded[2:], strict=False)
    ]


def _chances(axes: "Axes", scale: Sequence[float], chance: Sequence[float]) -> None:
    """Shade where the samples begin to leave the support: the artefact's only cause."""
    turning = [s for s, c in zip(scale, chance, strict=True) if 0.01 < c < 0.99]
    if turning:
        label = "chance of no sample outside p: 99 % to 1 %"
        axes.axvspan(turning[0], turning[-1], color="#F0E442", alpha=0.5, lw=0, label=label)


def verdict(results: Path) -> Verdict:
    """JS-A stays below its bound and its samples agree; KL and JS-G are infinite everywhere."""
    if missing(results):
        return not_computed("nothing is computed yet")
    told = runs.read_json(results / PLACE)
    exact, sampled, scales = told["exact"], told["sampled"], told["scale"]
    highest = max(*exact["JSA"], *sampled["JSA"])
    pairs = zip(exact["JSA"], sampled["JSA"], strict=True)
    error = max(abs(one - two) for one, two in pairs)
    everywhere = all(v is None for name in ("KL", "JSG") for v in exact[name])
    turn = sampled["KL"].index(None) if None in sampled["KL"] else None
    if highest > told["bound"]:
        above = f"JS-A reaches {highest:.4f}, above {told['bound']:.4f} nats"
        return checked(False, False, above, len(scales))
    if not everywhere or turn is None:
        finite = "KL or JS-G is finite where q leaves the support of p"
        return checked(False, False, finite, len(scales))
    # A toy size has more noise; the tolerance is that of the paper's 50,000 samples.
    allowed = TOLERANCE * math.sqrt(50_000 / told["settings"]["samples"])
    sentence = (
        f"JS-A stays under its bound (at most {highest:.3f} of {told['bound']:.3f} nats, samples "
        f"within {error:.3f} of the exact value, {allowed:.2g} allowed); KL and JS-G are infinite "
        f"at all {len(scales)} scales, not just from σ = {scales[turn]:.2f} on as samples suggest: "
        f"there the chance that none falls outside p is {told['chance_inside'][turn]:.2f}"
    )
    # The size: the paper's curves of KL and JS-G are finite up to some σ, which is chance.
    return checked(error <= allowed, False, sentence, len(scales))
