"""Theorem 3: for Gaussians R = 2 KL(q‖p) / (KL(q‖p) + KL(p‖q)) < 1 if and only if σ_p > σ_q.

The paper's proof treats σ_p > σ_q; tried on random pairs on both sides, in closed form.
"""

from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch.distributions import Normal

from bayesdiv import KL, ReverseKL
from bayesdiv.app import runs
from reproduction.analytical.pairs import SIZES, drawn
from reproduction.item import Effort, Tell, stamp
from reproduction.pictures import save
from reproduction.verdict import Verdict, checked, not_computed

PLACE = Path("figures", "theorem_3.json")
TIMES = 20  # closed forms are cheap


def missing(results: Path) -> list[str]:
    """The one file of values, where it is not there yet."""
    return [] if (results / PLACE).exists() else ["thresholds of random Gaussians"]


def compute(results: Path, effort: Effort, tell: Tell) -> None:
    """The threshold of every pair."""
    if not missing(results):
        return
    settings = replace(SIZES[effort], pairs=TIMES * SIZES[effort].pairs)
    generator = torch.Generator().manual_seed(settings.seed)
    q, p = (Normal(*drawn(settings, generator)) for _ in range(2))
    tell(f"{settings.pairs} pairs")
    kl, reverse = KL()(q, p), ReverseKL()(q, p)
    told = {
        "settings": asdict(settings),
        **stamp(),
        "log_ratio": (p.scale / q.scale).log().tolist(),
        "threshold": (2 * kl / (kl + reverse)).tolist(),
    }
    runs.write_json(results / PLACE, told)


def draw(results: Path, out: Path) -> list[Path]:
    """The threshold against the ratio of the scales."""
    from matplotlib.figure import Figure

    told = runs.read_json(results / PLACE)
    figure = Figure(figsize=(7.5, 5), layout="constrained")
    axes = figure.subplots()
    axes.plot(told["log_ratio"], told["threshold"], ".", color="#0072B2", ms=4)
    axes.axhline(1, color="black", lw=1)
    axes.axvline(0, color="black", lw=1)
    count = len(told["threshold"])
    axes.set(xlabel="log σ_p / σ_q", ylabel="R", title=f"Theorem 3 on {count} random Gaussians")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return save(figure, out / "theorem_3.svg")


def verdict(results: Path) -> Verdict:
    """No pair contradicts the theorem, whichever scale is larger."""
    if missing(results):
        return not_computed("nothing is computed yet")
    told = runs.read_json(results / PLACE)
    pairs = list(zip(told["log_ratio"], told["threshold"], strict=True))
    wrong = sum((threshold < 1) != (ratio > 0) for ratio, threshold in pairs)
    narrower = sum(ratio > 0 for ratio, _ in pairs)
    sentence = (
        f"{wrong} of {len(pairs)} pairs contradict it; q is narrower than p in {narrower} of them, "
        f"wider in {len(pairs) - narrower}"
    )
    return checked(not wrong, None, sentence, len(pairs))
