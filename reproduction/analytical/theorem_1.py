"""Theorem 1: JS-A ≤ -(1-α) log α - α log(1-α), for any two distributions.

Tried on random pairs of Gaussian, Laplace, Student and uniform densities, by integration.
"""

import math
from dataclasses import asdict
from pathlib import Path

from bayesdiv import JSA, Quadrature
from bayesdiv.app import runs
from reproduction import plots
from reproduction.analytical.pairs import FAMILIES, SIZES, alphas, pairs
from reproduction.item import Effort, Tell, stamp
from reproduction.pictures import save
from reproduction.verdict import Verdict, checked, not_computed

PLACE = Path("figures", "theorem_1.json")
ROUNDING = 1e-9  # nats, by which integration may exceed the bound
REACHED = 0.99  # of the bound; disjoint uniforms attain it


def missing(results: Path) -> list[str]:
    """The one file of values, where it is not there yet."""
    return [] if (results / PLACE).exists() else ["JS-A of random pairs"]


def bound(alpha: float) -> float:
    """The right side of eq. 11.

    Examples:
        >>> round(bound(0.5), 4)
        0.6931
    """
    return -(1 - alpha) * math.log(alpha) - alpha * math.log1p(-alpha)


def compute(results: Path, effort: Effort, tell: Tell) -> None:
    """JS-A of every pair, each with its own alpha."""
    if not missing(results):
        return
    settings, cases = SIZES[effort], []
    for number, (name, q, p) in enumerate(pairs(settings, tuple(FAMILIES))):
        tell(name)
        alpha = alphas(settings, number)
        values = JSA(alpha)(q, p, Quadrature()).tolist()
        cases += [
            {"pair": name, "alpha": a, "JSA": v}
            for a, v in zip(alpha.tolist(), values, strict=True)
        ]
    runs.write_json(results / PLACE, {"settings": asdict(settings), **stamp(), "cases": cases})


def draw(results: Path, out: Path) -> list[Path]:
    """Every value over its alpha, under the bound."""
    from matplotlib.figure import Figure

    cases = runs.read_json(results / PLACE)["cases"]
    figure = Figure(figsize=(7.5, 5), layout="constrained")
    axes = figure.subplots()
    axes.plot(
        [case["alpha"] for case in cases],
        [case["JSA"] for case in cases],
        ".",
        color=plots.COLOURS["JSA"],
        ms=4,
        label=f"JS-A of {len(cases)} random pairs",
    )
    across = [k / 1000 for k in range(1, 1000)]
    axes.plot(across, list(map(bound, across)), color="black", lw=2, label="bound of theorem 1")
    axes.set(xlabel="α", ylabel="nats", ylim=(0, 5), title="Theorem 1 on random pairs")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return save(figure, out / "theorem_1.svg")


def verdict(results: Path) -> Verdict:
    """No pair exceeds the bound or is negative. The size: some come within 1 % of the bound."""
    if missing(results):
        return not_computed("nothing is computed yet")
    cases = runs.read_json(results / PLACE)["cases"]
    above = [case["JSA"] - bound(case["alpha"]) for case in cases]
    lowest = min(case["JSA"] for case in cases)
    share = max(case["JSA"] / bound(case["alpha"]) for case in cases)
    broken = sum(excess > ROUNDING for excess in above)
    sentence = (
        f"{broken} of {len(cases)} pairs exceed the bound ({ROUNDING:g} nats of rounding allowed), "
        f"the lowest value is {lowest:.2g}, the nearest reaches {share:.4f} of its bound"
    )
    return checked(not broken and lowest >= -ROUNDING, share >= REACHED, sentence, len(cases))
