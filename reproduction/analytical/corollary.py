"""Corollary: for Gaussians with σ_p > σ_q, F_JSG > F_KL for every α in (0, 1] above R.

Tried on random pairs in closed form, for eq. 21 and for the closed-form JS-G of eq. 25.
"""

from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch.distributions import Normal

from bayesdiv import JSG, KL, ReverseKL, WeightedKL
from bayesdiv.app import runs
from reproduction import plots
from reproduction.analytical.pairs import SIZES, drawn
from reproduction.analytical.theorem_3 import TIMES
from reproduction.item import Effort, Tell, stamp
from reproduction.pictures import save
from reproduction.verdict import Verdict, checked, not_computed

PLACE = Path("figures", "corollary.json")
NEAR = 1e-3  # of the threshold, where both are equal and rounding decides


def missing(results: Path) -> list[str]:
    """The one file of values, where it is not there yet."""
    return [] if (results / PLACE).exists() else ["random Gaussians with an alpha above R"]


def compute(results: Path, effort: Effort, tell: Tell) -> None:
    """Pairs with q narrower than p, each with an alpha between its threshold and 1."""
    if not missing(results):
        return
    settings = replace(SIZES[effort], pairs=TIMES * SIZES[effort].pairs)
    generator = torch.Generator().manual_seed(settings.seed)
    loc, scale = drawn(settings, generator)
    other_loc, shrink = drawn(settings, generator)
    p, q = Normal(loc, scale), Normal(other_loc, scale / (1 + shrink))
    tell(f"{settings.pairs} pairs")
    kl, reverse = KL()(q, p), ReverseKL()(q, p)
    threshold = 2 * kl / (kl + reverse)
    share = torch.rand(settings.pairs, generator=generator).double()
    alpha = threshold + NEAR + share * (1 - NEAR - threshold).clamp(min=0)
    kept = alpha < 1
    told = {
        "settings": asdict(settings),
        **stamp(),
        "alpha": alpha[kept].tolist(),
        "threshold": threshold[kept].tolist(),
    }
    safe = alpha.clamp(max=0.999999)
    for name, divergence in (("WeightedKL", WeightedKL(safe)), ("JSG", JSG(safe))):
        told[name] = (divergence(q, p) / kl - 1)[kept].tolist()
    runs.write_json(results / PLACE, told)


def draw(results: Path, out: Path) -> list[Path]:
    """The excess of both over KL, by how far alpha is above its threshold."""
    from matplotlib.figure import Figure

    told = runs.read_json(results / PLACE)
    figure = Figure(figsize=(7.5, 5), layout="constrained")
    axes = figure.subplots()
    apart = [a - r for a, r in zip(told["alpha"], told["threshold"], strict=True)]
    for name, label in (("WeightedKL", "weighted KLs, eq. 21"), ("JSG", "JS-G, eq. 25")):
        axes.plot(apart, told[name], ".", ms=4, color=plots.colour(name), label=label)
    axes.axhline(0, color="black", lw=1)
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set(xlabel="α - R", ylabel="excess over KL, as a share of it", title="The corollary")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return save(figure, out / "corollary.svg")


def verdict(results: Path) -> Verdict:
    """No pair contradicts the corollary for eq. 21. Those of eq. 25 are shown, not judged."""
    if missing(results):
        return not_computed("nothing is computed yet")
    told = runs.read_json(results / PLACE)
    wrong, js_g = (sum(value <= 0 for value in told[name]) for name in ("WeightedKL", "JSG"))
    count = len(told["alpha"])
    sentence = (
        f"{wrong} of {count} pairs contradict it for the weighted KLs of eq. 21, {js_g} "
        f"({js_g / count:.0%}) for the closed-form JS-G of eq. 25, which the experiments use"
    )
    return checked(not wrong, None, sentence, count)
