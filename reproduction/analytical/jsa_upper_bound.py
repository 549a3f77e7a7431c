"""JS-A rises to its bound as the means move apart, for several alphas (figure B.13, theorem 1).

q = N(μ, 1), p = N(0, 1). For equal scales alpha and 1-α give the same curve, since the pair may be
mirrored; so alpha up to ½ shows them all.
"""

from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch.distributions import Normal

from bayesdiv import JSA, KL, Quadrature
from bayesdiv.app import runs
from reproduction import plots
from reproduction.item import Effort, Tell, stamp
from reproduction.pictures import save
from reproduction.verdict import Verdict, checked, not_computed

PLACE = Path("figures", "jsa_upper_bound.json")
ROUNDING = 1e-12  # nats, by which integration may exceed the bound
REACHED = 0.01  # how near the bound, as a share of it, the last value must come


@dataclass(frozen=True)
class Settings:
    """What is computed.

    Args:
        alphas: the paper shows several and does not say which.
        farthest: the largest μ.
        points: places from 0 to there.
    """

    alphas: tuple[float, ...] = (0.05, 0.1, 0.25, 0.5)
    farthest: float = 10.0
    points: int = 201


SIZES = {Effort.FULL: Settings(), Effort.QUICK: Settings(points=21)}


def missing(results: Path) -> list[str]:
    """The one file of values, where it is not there yet."""
    return [] if (results / PLACE).exists() else ["JS-A as the means part, for several alpha"]


def compute(results: Path, effort: Effort, tell: Tell) -> None:
    """JS-A by integration for each alpha, and KL, which has no bound."""
    if not missing(results):
        return
    settings = SIZES[effort]
    loc = torch.linspace(0, settings.farthest, settings.points, dtype=torch.float64)
    q, p = Normal(loc, torch.ones_like(loc)), Normal(loc.new_tensor(0.0), loc.new_tensor(1.0))
    curves = []
    for alpha in settings.alphas:
        tell(f"alpha = {alpha:g}")
        divergence = JSA(alpha)
        values = divergence(q, p, Quadrature()).tolist()
        curves.append({"alpha": alpha, "bound": divergence.bound, "JSA": values})
    told = {
        "settings": asdict(settings),
        **stamp(),
        "loc": loc.tolist(),
        "KL": KL()(q, p).tolist(),
        "curves": curves,
    }
    runs.write_json(results / PLACE, told)


def draw(results: Path, out: Path) -> list[Path]:
    """A curve and its bound for each alpha, named at the right end."""
    from matplotlib.figure import Figure

    told = runs.read_json(results / PLACE)
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    loc, curves = told["loc"], told["curves"]
    axes.plot(loc, told["KL"], plots.STYLES["KL"], color=plots.COLOURS["KL"], lw=2, label="KL")
    styles = ["-", "--", "-.", (0, (1, 1.2)), (0, (5, 1, 1, 1, 1, 1))]
    for place, curve in enumerate(curves):
        colour, style = plots.COLOURS["JSA"], styles[place % len(styles)]
        label = f"JS-A, α = {curve['alpha']:g}"
        axes.plot(loc, curve["JSA"], ls=style, color=colour, lw=2.2, label=label)
        bound = "bounds of JS-A" if place == 0 else None
        axes.axhline(curve["bound"], color="black", lw=1, ls=(0, (1, 3)), label=bound)
        named = f"α = {curve['alpha']:g}: {curve['bound']:.3f}"
        axes.annotate(
            named, (1.01, curve["bound"]), xycoords=("axes fraction", "data"), va="center"
        )
    axes.set(xlabel="mean μ of q", ylabel="divergence (nats)", xlim=(0, loc[-1]))
    axes.set_ylim(0, 1.1 * max(curve["bound"] for curve in curves))
    axes.set_title("JS-A of q = N(μ, 1) from p = N(0, 1)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return save(figure, out / "jsa_upper_bound.svg")


def verdict(results: Path) -> Verdict:
    """JS-A never falls, never exceeds its bound, and comes close to it."""
    if missing(results):
        return not_computed("nothing is computed yet")
    told = runs.read_json(results / PLACE)
    excess, gap, falls = 0.0, 0.0, 0.0
    for curve in told["curves"]:
        values, bound = curve["JSA"], curve["bound"]
        excess = max(excess, max(values) - bound)
        gap = max(gap, 1 - values[-1] / bound)
        falls = max(falls, *(before - after for before, after in pairwise(values)))
    if max(excess, falls) > ROUNDING:
        broken = f"JS-A exceeds its bound by {excess:.1e} or falls {falls:.1e}"
        return checked(False, False, broken, len(told["loc"]))
    sentence = (
        f"for {len(told['curves'])} alphas JS-A rises with μ and stays under its bound; at μ = "
        f"{told['loc'][-1]:g} it is within {gap:.0e} of it ({REACHED:g} allowed), where KL is "
        f"{told['KL'][-1]:g} nats"
    )
    return checked(True, gap <= REACHED, sentence, len(told["curves"]) * len(told["loc"]))
