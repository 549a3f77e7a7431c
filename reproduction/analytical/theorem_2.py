"""Theorem 2: F_JSG > F_KL if and only if α > R = 2 KL(q‖p) / (KL(q‖p) + KL(p‖q)).

F_JSG is that of eq. 21, whose divergence is the weighted KLs. Tried on random pairs of Gaussian,
Laplace and Student densities, by integration; beside it the closed-form JS-G of eq. 25, of which
one half of the theorem holds.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from bayesdiv import JSG, KL, Quadrature, ReverseKL, WeightedKL
from bayesdiv.app import runs
from reproduction.analytical.pairs import SIZES, WHOLE_LINE, alphas, pairs
from reproduction.item import Effort, Tell, stamp
from reproduction.pictures import save
from reproduction.verdict import Verdict, checked, not_computed

PLACE = Path("figures", "theorem_2.json")
NEAR = 1e-3  # at the threshold both are equal, and rounding decides


def missing(results: Path) -> list[str]:
    """The one file of values, where it is not there yet."""
    return [] if (results / PLACE).exists() else ["weighted KLs of random pairs"]


def compute(results: Path, effort: Effort, tell: Tell) -> None:
    """Both KLs, the weighted KLs and JS-G of every pair, each with its own alpha."""
    if not missing(results):
        return
    settings, cases = SIZES[effort], []
    for number, (name, q, p) in enumerate(pairs(settings, WHOLE_LINE)):
        tell(name)
        alpha = alphas(settings, number)
        every = (KL(), ReverseKL(), WeightedKL(alpha), JSG(alpha))
        columns = [alpha.tolist(), *(each(q, p, Quadrature()).tolist() for each in every)]
        for a, kl, reverse, weighted, js_g in zip(*columns, strict=True):
            cases.append(
                {
                    "pair": name,
                    "alpha": a,
                    "threshold": 2 * kl / (kl + reverse),
                    "weighted_excess": weighted / kl - 1,
                    "js_g_excess": js_g / kl - 1,
                }
            )
    runs.write_json(results / PLACE, {"settings": asdict(settings), **stamp(), "cases": cases})


def draw(results: Path, out: Path) -> list[Path]:
    """The excess over KL against the distance of alpha from the threshold."""
    from matplotlib.figure import Figure

    cases = runs.read_json(results / PLACE)["cases"]
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    sides = {"weighted_excess": "Weighted KLs, eq. 21", "js_g_excess": "Closed-form JS-G, eq. 25"}
    for axes, (key, title) in zip(figure.subplots(1, 2, sharey=True), sides.items(), strict=True):
        apart = [case["alpha"] - case["threshold"] for case in cases]
        values = [case[key] for case in cases]
        wrong = [against(case, key) for case in cases]
        for colour, label, here in (
            ("#0072B2", "as the theorem says", False),
            ("#D55E00", "not", True),
        ):
            at = [k for k, is_wrong in enumerate(wrong) if is_wrong is here]
            axes.plot(
                [apart[k] for k in at], [values[k] for k in at], ".", color=colour, label=label
            )
        axes.axhline(0, color="black", lw=1)
        axes.axvline(0, color="black", lw=1)
        axes.set_yscale("symlog", linthresh=0.1)
        axes.set(xlabel="α - R", ylabel="excess over KL, as a share of it", title=title)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    return save(figure, out / "theorem_2.svg")


def against(case: dict[str, Any], key: str) -> bool:
    """Whether a case contradicts the theorem."""
    apart: float = case["alpha"] - case["threshold"]
    above: bool = case[key] > 0
    return abs(apart) > NEAR and above != (apart > 0)


def verdict(results: Path) -> Verdict:
    """No pair contradicts the theorem for eq. 21. The closed form is shown, not judged."""
    if missing(results):
        return not_computed("nothing is computed yet")
    cases = runs.read_json(results / PLACE)["cases"]
    wrong, js_g = (
        sum(against(case, key) for case in cases) for key in ("weighted_excess", "js_g_excess")
    )
    inside = all(0 < case["threshold"] < 2 for case in cases)
    sentence = (
        f"{wrong} of {len(cases)} pairs contradict it for the weighted KLs of eq. 21, {js_g} "
        f"({js_g / len(cases):.0%}) for the closed-form JS-G of eq. 25; every threshold lies in "
        "(0, 2)"
    )
    return checked(not wrong and inside, None, sentence, len(cases))
