"""Algorithm 2: minimise the loss of JS-A with the divergence from samples of both distributions.

A small network is trained by it, corrected as the errata say, and by the exact rule; the times are
those of ResNet-18, and the published ratio is 1.63.
"""

from pathlib import Path

from reproduction.algorithms import table
from reproduction.algorithms.results import NEEDS, TIMED, TRAINED, apart, learned, read
from reproduction.algorithms.training import extra
from reproduction.intervals import student
from reproduction.verdict import Badge, Comparison, Verdict, inside, not_computed, sampled

PUBLISHED = 1856 / 1140 - 1
"""Time per epoch over that of KL (table 1)."""
LEVEL = 0.02  # within two points the accuracies are level
PARTS = 2  # of the claim: what it learns, and its time

__all__ = ["NEEDS", "draw", "verdict"]


def draw(results: Path, out: Path) -> list[Path]:
    """Loss, accuracy and time of every way."""
    return table.write(results, out, "algorithm_2")


def verdict(results: Path) -> Verdict:
    """Whether the algorithm learns as well as the exact rule, and costs 63 % more than KL.

    It learns as well if the 95 % interval of the difference in test accuracy over seeds lies within
    two points. The time of the exact rule is shown too.
    """
    told, times = read(results, TRAINED), read(results, TIMED)
    if told is None:
        return not_computed("nothing is trained yet", NEEDS.missing(results))
    same, learns = apart(told, "js_a_sampled", "js_a"), learned(told, "js_a_sampled")
    level, surely = (
        inside(same.widened(parts), -LEVEL, LEVEL) if learns else Badge.NO for parts in (1, PARTS)
    )
    claims = [Comparison("accuracy by samples over exact", same, margin=LEVEL)]
    if times is None:
        missing = ("the time of a step on a GPU",)
        direction = sampled([level, Badge.UNDECIDED], [surely])
        return Verdict(direction, Badge.OPEN, claims[0].text, tuple(claims), missing=missing)
    cost = student(extra(times["times"], "js_a_sampled"))
    claims.append(Comparison("extra time of JS-A by samples", cost, PUBLISHED, unit="%"))
    exact = Comparison("extra time of exact JS-A", student(extra(times["times"], "js_a")), unit="%")
    return Verdict(
        sampled([level, claims[1].direction_badge], [surely, claims[1].surely(PARTS)]),
        claims[1].size_badge,
        "; ".join([*(one.text for one in claims), exact.text, f"on {times['hardware']}"]),
        tuple(claims),
    )
