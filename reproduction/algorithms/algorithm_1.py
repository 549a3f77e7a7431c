"""Algorithm 1: minimise the loss of JS-G with the divergence in closed form.

A small network is trained by it, beside KL by samples; the times are those of ResNet-18.
"""

from pathlib import Path

from reproduction.algorithms import table
from reproduction.algorithms.results import NEEDS, TIMED, TRAINED, learned, read
from reproduction.algorithms.training import extra
from reproduction.intervals import student
from reproduction.verdict import Badge, Comparison, Verdict, inside, not_computed

PUBLISHED = 1168 / 1140 - 1
"""Time per epoch over that of KL (table 1)."""
SAME = 0.1  # within a tenth of the time of KL counts as equal

__all__ = ["NEEDS", "draw", "verdict"]


def draw(results: Path, out: Path) -> list[Path]:
    """Loss, accuracy and time of every way."""
    return table.write(results, out, "algorithm_1")


def verdict(results: Path) -> Verdict:
    """Whether the algorithm learns, and costs as much as KL from one sample, within a tenth.

    It learns if the loss of every seed ends below half of its value in the first epoch.
    """
    told, times = read(results, TRAINED), read(results, TIMED)
    if told is None:
        return not_computed("nothing is trained yet", NEEDS.missing(results))
    learns = learned(told, "js_g")
    seeds = len(told["js_g"])
    said = f"the loss {'falls' if learns else 'does not fall'} to half in all {seeds} seeds"
    direction = Badge.YES if learns else Badge.NO
    if times is None:
        missing = ("the time of a step on a GPU",)
        return Verdict(direction, Badge.OPEN, said, count=seeds, missing=missing)
    cost = student(extra(times["times"], "js_g"))
    claim = Comparison("extra time of JS-G", cost, PUBLISHED, unit="%")
    text = f"{said}; {claim.text} on {times['hardware']}"
    return Verdict(direction, inside(cost, -SAME, SAME), text, (claim,))
