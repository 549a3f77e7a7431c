"""Where the JS-G loss is above the KL loss, over alpha and σ_p - σ_q (figure F.15).

p = N(0, 1), q = N(0, σ_q²), λ = 1: the likelihoods cancel, and F_JSG - F_KL is the difference of
the divergences. Theorem 2 puts the border at α = R = 2 KL(q‖p) / (KL(q‖p) + KL(p‖q)) for the
weighted KLs of eq. 21. The border of the closed form, JS-G with its normaliser, lies higher.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributions import Normal

from bayesdiv import JSG, KL, ReverseKL, WeightedKL
from bayesdiv.app import runs
from reproduction import plots
from reproduction.item import Effort, Tell, stamp
from reproduction.pictures import save
from reproduction.verdict import Verdict, checked, not_computed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLACE = Path("figures", "sign_of_difference.json")
TITLES = {"WeightedKL": "weighted KLs (eq. 21)", "JSG": "JS-G (eq. 25)"}
SIGNS = "-0+"
ROUNDING = 1e-12  # relative to KL: differences below it are no difference


@dataclass(frozen=True)
class Settings:
    """What is computed.

    Args:
        widest: the largest |σ_p - σ_q|, below 1 so that σ_q stays positive.
        differences: how many from -widest to widest; odd, so that 0 is among them.
        alphas: how many from 0 to 1.
    """

    widest: float = 0.99
    differences: int = 133
    alphas: int = 101


SIZES = {Effort.FULL: Settings(), Effort.QUICK: Settings(differences=23, alphas=11)}


def missing(results: Path) -> list[str]:
    """The one file of signs, where it is not there yet."""
    return [] if (results / PLACE).exists() else ["signs of F_JSG - F_KL"]


def compute(results: Path, effort: Effort, tell: Tell) -> None:
    """Signs on the grid, a row for each alpha, and the borders between them."""
    if not missing(results):
        return
    settings = SIZES[effort]
    difference = settings.widest * torch.linspace(-1, 1, settings.differences, dtype=torch.float64)
    difference[settings.differences // 2] = 0.0
    alphas = torch.linspace(0, 1, settings.alphas, dtype=torch.float64).tolist()
    q, p = _pair(difference)
    kl, reverse = KL()(q, p), ReverseKL()(q, p)
    tell(f"{settings.alphas} alphas, {settings.differences} scales")
    told = {
        "settings": asdict(settings),
        **stamp(),
        "difference": difference.tolist(),
        "alpha": alphas,
        "border": {
            "WeightedKL": _plain(2 * kl / (kl + reverse)),
            "JSG": _plain(_border(q, p, kl)),
        },
        "sign": {
            "WeightedKL": [_signs(WeightedKL(alpha)(q, p), kl) for alpha in alphas],
            "JSG": [_signs(JSG(alpha)(q, p), kl) for alpha in alphas],
        },
    }
    runs.write_json(results / PLACE, told)


def _pair(difference: Tensor) -> tuple[Normal, Normal]:
    zero, one = torch.zeros_like(difference), torch.ones_like(difference)
    return Normal(zero, 1 - difference), Normal(zero, one)


def _signs(divergence: Tensor, kl: Tensor) -> str:
    """One character a pair; equal up to rounding is 0."""
    excess = divergence - kl
    sign = torch.where(excess.abs() <= ROUNDING * kl, torch.zeros_like(excess), excess.sign())
    return "".join(SIGNS[int(s) + 1] for s in sign.tolist())


def _border(q: Normal, p: Normal, kl: Tensor) -> Tensor:
    """The alpha above 0 at which JS-G equals KL, by bisection; NaN where there is none below 1.

    JS-G is convex in alpha and falls at first, so it crosses KL's value at most once more.
    """
    low, high = torch.full_like(kl, 1e-9), torch.full_like(kl, 1 - 1e-9)
    crosses = JSG(high)(q, p) > kl
    for _ in range(60):
        middle = (low + high) / 2
        above = JSG(middle)(q, p) > kl
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return torch.where(crosses, low, torch.nan)


def _plain(values: Tensor) -> list[float | None]:
    """Numbers for JSON; None where there is no border: q = p, or none below 1."""
    return [value if 0 < value < 1 else None for value in values.tolist()]


def draw(results: Path, out: Path) -> list[Path]:
    """The sign over alpha and the difference of the scales, for both things called JS-G."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    told = runs.read_json(results / PLACE)
    figure = Figure(figsize=(11, 5), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, name in zip(panels, TITLES, strict=True):
        _panel(axes, told, name)
    panels[0].set_ylabel("α")
    shades = zip(SHADES, ("below KL", "equal", "above KL"), strict=True)
    shown = [Patch(facecolor=c, edgecolor="#888888", label=label) for c, label in shades]
    handles = [*shown, *panels[1].get_lines()]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle("Sign of F_JSG - F_KL for p = N(0, 1), q = N(0, σ_q²), λ = 1", parse_math=False)
    return save(figure, out / "sign_of_difference.svg")


SHADES = ["#80808000", "#808080", "#80808066"]  # below, equal, above


def _panel(axes: "Axes", told: Mapping[str, Any], name: str) -> None:
    from matplotlib.colors import ListedColormap

    signs = [[SIGNS.index(sign) for sign in row] for row in told["sign"][name]]
    x, y = told["difference"], told["alpha"]
    look: dict[str, Any] = {
        "cmap": ListedColormap(SHADES),
        "vmin": 0,
        "vmax": 2,
        "shading": "nearest",
    }
    axes.pcolormesh(x, y, signs, rasterized=True, **look)
    for line, label, style in (
        ("WeightedKL", "R of theorem 2", "-"),
        ("JSG", "border of JS-G", "--"),
    ):
        if line == "WeightedKL" or name == "JSG":
            border = [float("nan") if b is None else b for b in told["border"][line]]
            axes.plot(x, border, style, color=plots.colour(line), lw=2.5, label=label)
    axes.set(xlabel=r"$\sigma_p - \sigma_q$", title=TITLES[name], xlim=(x[0], x[-1]), ylim=(0, 1))


def verdict(results: Path) -> Verdict:
    """Both definitions of JS-G give the figure of theorem 3; theorem 2 is checked cell by cell."""
    if missing(results):
        return not_computed("nothing is computed yet")
    told = runs.read_json(results / PLACE)
    shown = all(_as_shown(told, name) for name in TITLES)
    wrong = {name: _against_theorem_2(told, name) for name in TITLES}
    cells = sum(d > 0 for d in told["difference"]) * sum(a > 0 for a in told["alpha"])
    sentence = (
        "for every σ_p > σ_q some alpha puts F_JSG above F_KL, for no σ_p ≤ σ_q, and they are "
        f"equal at alpha = 0 and at q = p; theorem 2 fails in {wrong['WeightedKL']} of {cells} "
        f"cells with σ_p > σ_q for the weighted KLs, in {wrong['JSG']} of them "
        f"({wrong['JSG'] / cells:.0%}) for the closed-form JS-G"
    )
    holds = shown and not wrong["WeightedKL"]
    return checked(holds, None, sentence, sum(map(len, told["sign"]["WeightedKL"])))


def _as_shown(told: Mapping[str, Any], name: str) -> bool:
    """What the paper reads off its figure: + in a column exactly where σ_p > σ_q, and the zeros."""
    rows = told["sign"][name]
    columns = zip(told["difference"], zip(*rows, strict=True), strict=True)
    return set(rows[0]) == {"0"} and all(
        ("+" in column) == (difference > 0) and (difference != 0 or set(column) == {"0"})
        for difference, column in columns
    )


def _against_theorem_2(told: Mapping[str, Any], name: str) -> int:
    """Cells with σ_p > σ_q and alpha > 0 whose sign is not that of alpha - R."""
    return sum(
        (sign == "+") != (alpha > border)
        for alpha, row in zip(told["alpha"], told["sign"][name], strict=True)
        for sign, border, difference in zip(
            row, told["border"]["WeightedKL"], told["difference"], strict=True
        )
        if difference > 0 and alpha > 0
    )
