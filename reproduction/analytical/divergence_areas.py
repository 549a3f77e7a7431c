"""The areas whose sizes are the divergences (figure A.11).

q = N(1, 1), p = N(0, 1). With the mean M of q and p that a divergence is built around, its
integrand is (1-α) q log(q/M) + α p log(p/M); for KL it is q log(q/p).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributions import Normal

from bayesdiv import JSA, JSG, KL, Quadrature, WeightedKL
from bayesdiv.app import runs
from bayesdiv.divergence import Points
from reproduction import plots
from reproduction.item import Effort, Tell, stamp
from reproduction.pictures import save
from reproduction.verdict import Verdict, checked, not_computed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLACE = Path("figures", "divergence_areas.json")
TITLES = {"KL": "KL", "JSG": "JS-G", "JSA": "JS-A"}
TOLERANCE = 1e-6  # nats, between an area and the divergence


@dataclass(frozen=True)
class Settings:
    """What is computed.

    Args:
        posterior_loc: mean of q; both scales are 1, the mean of p is 0.
        alpha: of JS-G and JS-A; the paper does not state it.
        reach: the areas are summed from -reach to reach + posterior_loc.
        points: places on that stretch.
    """

    posterior_loc: float = 1.0
    alpha: float = 0.5
    reach: float = 10.0
    points: int = 421


SIZES = {Effort.FULL: Settings(), Effort.QUICK: Settings(points=85)}


def missing(results: Path) -> list[str]:
    """The one file of values, where it is not there yet."""
    return [] if (results / PLACE).exists() else ["the integrands of KL, JS-G and JS-A"]


def compute(results: Path, effort: Effort, tell: Tell) -> None:
    """The integrands, their areas, and the divergences by integration."""
    if not missing(results):
        return
    settings = SIZES[effort]
    ends = -settings.reach, settings.reach + settings.posterior_loc
    x = torch.linspace(*ends, settings.points, dtype=torch.float64)
    q = Normal(x.new_tensor(settings.posterior_loc), x.new_tensor(1.0))
    p = Normal(x.new_tensor(0.0), x.new_tensor(1.0))
    tell(f"integrands at {settings.points} places")
    integrands = _integrands(q, p, x, settings.alpha)
    divergences = (KL(), JSG(settings.alpha), JSA(settings.alpha))
    told = {
        "settings": asdict(settings),
        **stamp(),
        "x": x.tolist(),
        "integrand": {name: values.tolist() for name, values in integrands.items()},
        "area": {name: torch.trapezoid(values, x).item() for name, values in integrands.items()},
        "divergence": {type(d).__name__: d(q, p, Quadrature()).item() for d in divergences},
    }
    runs.write_json(results / PLACE, told)


def _integrands(q: Normal, p: Normal, x: Tensor, alpha: float) -> dict[str, Tensor]:
    log_q, log_p = q.log_prob(x), p.log_prob(x)
    # JSG and WeightedKL differ by the logarithm of the geometric mean's normaliser.
    log_z = JSG(alpha)(q, p) - WeightedKL(alpha)(q, p)
    log_a = torch.logaddexp(
        log_q + q.loc.new_tensor(alpha).log(), log_p + p.loc.new_tensor(1 - alpha).log()
    )
    log_g = alpha * log_q + (1 - alpha) * log_p - log_z
    return {
        "KL": _relative(log_q, log_p),
        **{
            name: (1 - alpha) * _relative(log_q, mean) + alpha * _relative(log_p, mean)
            for name, mean in (("JSG", log_g), ("JSA", log_a))
        },
    }


def _relative(log_one: Tensor, log_other: Tensor) -> Tensor:
    """The integrand of KL(one ‖ other): KL's estimate from one point at each place."""
    point = Points(log_one[None], log_other[None], log_one[None])
    return KL().estimate(point, point)


def draw(results: Path, out: Path) -> list[Path]:
    """The distributions, and the area of each divergence."""
    from matplotlib.figure import Figure

    told = runs.read_json(results / PLACE)
    figure = Figure(figsize=(10.5, 7.2), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True)
    _densities(panels[0, 0], told)
    for axes, name in zip((panels[0, 1], *panels[1]), TITLES, strict=True):
        _area(axes, told, name)
    panels[1, 1].sharey(panels[1, 0])  # the two are of one size, and KL of another
    for axes in panels.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.set_xlim(-4, 5)
    for axes in panels[1]:
        axes.set_xlabel("w")
    settings = told["settings"]
    title = f"q = N({settings['posterior_loc']:g}, 1), p = N(0, 1), α = {settings['alpha']:g}"
    figure.suptitle(title)
    return save(figure, out / "divergence_areas.svg")


def _densities(axes: "Axes", told: Mapping[str, Any]) -> None:
    x = torch.tensor(told["x"])
    for label, loc, style in (("q", told["settings"]["posterior_loc"], "-"), ("p", 0.0, "--")):
        axes.plot(x, Normal(loc, 1.0).log_prob(x).exp(), style, color="black", lw=1.8, label=label)
    axes.set(title="Distributions", ylabel="density")
    axes.legend(frameon=False)


def _area(axes: "Axes", told: Mapping[str, Any], name: str) -> None:
    """The integrand, full above 0 and hatched below, where it takes away."""
    x, y = torch.tensor(told["x"]), torch.tensor(told["integrand"][name])
    colour = plots.COLOURS[name]
    axes.axhline(0, color="black", lw=0.8)
    axes.plot(x, y, plots.STYLES[name], color=colour, lw=2)
    axes.fill_between(x, y.clamp(min=0), color=colour, alpha=0.35, lw=0, label="adds")
    less: dict[str, Any] = {"facecolor": "none", "edgecolor": colour, "hatch": "////", "lw": 0}
    if y.min() < -1e-9:
        axes.fill_between(x, y.clamp(max=0), label="takes away", **less)
    axes.set_title(f"{TITLES[name]}: area {told['area'][name]:.4f} nats")
    axes.set_ylabel("integrand (nats per unit of w)")
    axes.legend(frameon=False, fontsize="small", loc="upper left")


def verdict(results: Path) -> Verdict:
    """Each area is the value of its divergence."""
    if missing(results):
        return not_computed("nothing is computed yet")
    told = runs.read_json(results / PLACE)
    areas, values = told["area"], told["divergence"]
    error = max(abs(areas[name] - values[name]) for name in TITLES)
    named = ", ".join(f"{TITLES[name]} {areas[name]:.4f}" for name in TITLES)
    sentence = (
        f"the areas are {named} nats, at most {error:.0e} from the integrated divergences "
        f"({TOLERANCE:.0e} allowed)"
    )
    return checked(error <= TOLERANCE, None, sentence, len(areas))
