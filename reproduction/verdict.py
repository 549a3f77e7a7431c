"""Verdicts by statistics that could say no.

Comparisons are those of `reproduction.intervals`. A claim has two badges: *direction*, whether the
interval excludes 0 on the side that the paper names, and *size*, whether the interval lies within a
factor of two of the published figure. A run that diverged is the worst result, never a missing one.
Where some parts of a claim hold, each of them must do so in an interval that covers all parts at
once (Bonferroni), or chance alone would make most claims hold in part.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from reproduction.intervals import CONFIDENCE, Interval, Standing, standing

FACTOR = 2.0
"""An effect within this factor of the published one has the published size."""


class Badge(Enum):
    """How one side of a claim, its direction or its size, fares."""

    YES = "yes"
    PARTLY = "partly"
    UNDECIDED = "undecided"
    NO = "no"
    UNSTATED = "not stated"
    OPEN = "not computed"


class Outcome(Enum):
    """How our result compares with the published one."""

    REPRODUCED = "reproduced"
    PARTLY = "partly reproduced"
    UNDECIDED = "undecided"
    NOT = "not reproduced"
    OPEN = "not computed yet"


def inside(interval: Interval, low: float, high: float) -> Badge:
    """Whether an interval lies in a range, outside it, or neither.

    Examples:
        >>> inside(Interval(2.0, 1.5, 2.5, 5), 1.0, 4.0), inside(Interval(9.0, 8.0, 10.0, 5), 1, 4)
        (<Badge.YES: 'yes'>, <Badge.NO: 'no'>)
    """
    if low <= interval.low and interval.high <= high:
        return Badge.YES
    return Badge.NO if interval.high < low or interval.low > high else Badge.UNDECIDED


class Comparison(NamedTuple):
    """One claim: that something is ahead of something else, by how much.

    Args:
        name: what is compared, in words.
        interval: of the advantage that the paper claims, positive where it holds.
        published: the published advantage in the same unit; None where the paper states none.
        unit: of the figures as they are shown.
        factor: from the interval's unit to that.
        size: ends of what counts as the published size; None is within `FACTOR` of it.
        margin: within which two are level.
        confidence: of the interval; more than 95 % where the best of several was picked.
    """

    name: str
    interval: Interval
    published: float | None = None
    unit: str = "points"
    factor: float = 100.0
    size: tuple[float, float] | None = None
    margin: float = 0.0
    confidence: float = CONFIDENCE

    def surely(self, parts: int) -> Badge:
        """The direction by an interval that allows for so many parts of a claim."""
        return self._replace(interval=self.interval.widened(parts, self.confidence)).direction_badge

    @property
    def standing(self) -> Standing:
        """Ahead, level, undecided or behind."""
        return standing(self.interval, self.margin)

    @property
    def direction_badge(self) -> Badge:
        """Yes where it is ahead."""
        known = {Standing.AHEAD: Badge.YES, Standing.UNDECIDED: Badge.UNDECIDED}
        return known.get(self.standing, Badge.NO)

    @property
    def rank(self) -> tuple[bool, float]:
        """The order of cases: what is ahead by its lower end, what is not by its mean.

        The lower end alone would put a narrow interval round 0 before a wide one above it.
        """
        ahead = self.standing is Standing.AHEAD
        return ahead, self.interval.low if ahead else self.interval.mean

    @property
    def size_badge(self) -> Badge:
        """Whether the whole interval is of the published size."""
        if self.published is None:
            return Badge.UNSTATED
        ends = self.size or (self.published / FACTOR, self.published * FACTOR)
        return inside(self.interval, *ends)

    @property
    def figures(self) -> str:
        """Mean and interval."""
        return f"{self.interval.times(self.factor).text(self._digits)} {self.unit}"

    @property
    def _digits(self) -> int:
        return 1 if self.unit == "%" else 2

    @property
    def text(self) -> str:
        """Name, figures, standing and what was published."""
        theirs = ""
        if self.confidence != CONFIDENCE:
            theirs = f", {100 * self.confidence:.1f} % interval"
        if self.published is not None:
            theirs += f"; published {self.factor * self.published:+.{self._digits}f}"
        return f"{self.name} {self.figures} ({self.standing.value}{theirs})"


@dataclass(frozen=True)
class Verdict:
    """Two badges, and what they rest on.

    Args:
        direction: whether what the paper says is the case.
        size: whether it is so by as much as the paper says.
        sentence: the figures in words.
        evidence: the comparisons, with their intervals.
        count: how many cases were checked, where there is no sampling.
        missing: what of the paper's plan was not done.
    """

    direction: Badge
    size: Badge
    sentence: str
    evidence: tuple[Comparison, ...] = ()
    count: int | None = None
    missing: tuple[str, ...] = ()

    @property
    def n(self) -> int | None:
        """The fewest differences that a comparison rests on, or the number of cases."""
        return min((one.interval.n for one in self.evidence), default=self.count)

    @property
    def intervals(self) -> tuple[str, ...]:
        """The comparisons in words."""
        return tuple(one.text for one in self.evidence)

    @property
    def outcome(self) -> Outcome:
        """Reproduced needs the direction and, where the paper states it, the size."""
        if self.direction is Badge.YES:
            whole = self.size in (Badge.YES, Badge.UNSTATED)
            return Outcome.REPRODUCED if whole else Outcome.PARTLY
        return {
            Badge.PARTLY: Outcome.PARTLY,
            Badge.UNDECIDED: Outcome.UNDECIDED,
            Badge.OPEN: Outcome.OPEN,
        }.get(self.direction, Outcome.NOT)


def together(badges: Iterable[Badge]) -> Badge:
    """The badge of a claim with several parts, all of which must hold, computed without sampling.

    The parts of a size go together like this too.

    Examples:
        >>> together([Badge.YES, Badge.NO]), together([Badge.UNDECIDED, Badge.NO])
        (<Badge.PARTLY: 'partly'>, <Badge.NO: 'no'>)
    """
    known = [badge for badge in badges if badge not in (Badge.UNSTATED, Badge.OPEN)]
    if not known:
        return Badge.UNSTATED
    if all(badge is Badge.YES for badge in known):
        return Badge.YES
    if Badge.YES in known or Badge.PARTLY in known:
        return Badge.PARTLY
    return Badge.NO if Badge.NO in known else Badge.UNDECIDED


def sampled(badges: Iterable[Badge], surely: Iterable[Badge]) -> Badge:
    """The direction of a claim whose parts were sampled.

    Args:
        badges: of each part alone: yes where all of them are.
        surely: of each part by an interval that allows for their number: partly where one is yes.

    Examples:
        >>> one, none = [Badge.YES, Badge.UNDECIDED], [Badge.UNDECIDED] * 2
        >>> sampled(one, one), sampled(one, none)
        (<Badge.PARTLY: 'partly'>, <Badge.UNDECIDED: 'undecided'>)
    """
    known = list(badges)
    if all(badge is Badge.YES for badge in known):
        return Badge.YES
    if Badge.YES in surely:
        return Badge.PARTLY
    return Badge.NO if Badge.NO in known else Badge.UNDECIDED


def judged(
    claims: Sequence[Comparison],
    *,
    wanted: int | None = None,
    beside: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> Verdict:
    """The verdict on claims that must all hold.

    Args:
        claims: what the paper says.
        wanted: how many claims there should be; one without runs is undecided. None is as many as
            there are.
        beside: further figures that are shown and not judged.
        missing: what of the paper's plan was not done.
    """
    if not claims:
        return not_computed("there are no runs of KL and the others in common yet", missing)
    count = max(wanted or 0, len(claims))
    unknown = [Badge.UNDECIDED] * (count - len(claims))
    return Verdict(
        sampled(
            [*(one.direction_badge for one in claims), *unknown],
            [one.surely(count) for one in claims],
        ),
        together(one.size_badge for one in claims),
        "; ".join([*(one.text for one in claims), *beside]),
        tuple(claims),
        missing=tuple(missing),
    )


def not_computed(sentence: str, missing: Sequence[str] = ()) -> Verdict:
    """The verdict where there is nothing to judge."""
    return Verdict(Badge.OPEN, Badge.OPEN, sentence, missing=tuple(missing))


def checked(direction: bool, size: bool | None, sentence: str, cases: int) -> Verdict:
    """The verdict on something computed without sampling.

    Args:
        direction: whether what the paper says is the case.
        size: whether its figures are; None where it states none.
        sentence: our figures.
        cases: how many were checked.
    """
    sides = {True: Badge.YES, False: Badge.NO, None: Badge.UNSTATED}
    return Verdict(sides[direction], sides[size], sentence, count=cases)
