"""How our regression tables compare with the published ones."""

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from reproduction.contenders import JS, THREE, title
from reproduction.intervals import CONFIDENCE, Interval, Standing, corrected, student
from reproduction.published import Spread
from reproduction.regression import results as regression_results
from reproduction.regression.halving import LOSSES
from reproduction.verdict import Badge, Comparison, Verdict, not_computed, sampled, together

Table = Mapping[str, Mapping[str, Spread]]
Found = Mapping[str, Mapping[str, Mapping[str, Any]]]
NOT_GIVEN = "f_c1-VI and f_c2-VI (their functions are not given)"


class Scale(NamedTuple):
    """What counts as level in a table.

    Args:
        margin: within which two are as good as each other.
        unit: of a difference as it is shown; per cent are of the mean compared with.
    """

    margin: float
    unit: str

    @property
    def relative(self) -> bool:
        """Whether differences are shares."""
        return self.unit == "%"


SCALES = {"rmse": Scale(0.1, "%"), "nll": Scale(0.15, "nats")}
OVERLAP = 0.1 / 0.9
"""Test rows over training rows of the random splits."""


def verdict(results: Path, key: str, published: Table) -> Verdict:
    """Whether the JS losses are as good as KL, in some cases better, as published.

    As good: on at least half of the six rows, the 95 % interval of the paired differences rules out
    that the loss is worse than KL by the margin (10 % of the RMSE, or 0.15 nats). Better: it is
    ahead of KL on at least one row, with intervals for twelve comparisons at once (Bonferroni). The
    size: each of the columns KL, JS-G and JS-A lies within the margin of the published one on five
    rows. The published tables pass this rule. If not all three parts hold, each counts only by
    intervals that allow for three.
    """
    found = regression_results.found(results)
    rows = [data for data in published if set(THREE) <= found[data].keys()]
    if not rows:
        return not_computed("no row of the table is complete", lacks(found))
    near = {name: _near(found, rows, key, name, published) for name in THREE}
    claims = leads(found, rows, key, "kl")
    parts, surely = (_parts(found, rows, key, count) for count in (1, len(JS) + 1))
    enough = [count >= len(published) - 1 for count in near.values()]
    sizes = [Badge.YES if met else Badge.NO for met in enough]
    return Verdict(
        sampled(parts, surely),
        together(sizes),
        _sentence(found, rows, key, claims, near),
        tuple(sorted(claims, key=attrgetter("rank"), reverse=True)),
        missing=lacks(found),
    )


def _parts(found: Found, rows: Sequence[str], key: str, count: int) -> list[Badge]:
    """Whether each JS loss is as good as KL and one is better, by intervals for so many parts."""
    goods = [_as_good(found, rows, key, name, count) for name in JS]
    better = any(one.surely(count) is Badge.YES for one in leads(found, rows, key, "kl"))
    return [*goods, Badge.YES if better else Badge.UNDECIDED]


def lacks(found: Found) -> tuple[str, ...]:
    """What was not done: equal searches of the compared losses, and columns without a formula."""
    wanted = [(data, loss) for data in found for loss in LOSSES]
    gone = sum("rounds" not in found[data].get(loss, ()) for data, loss in wanted)
    said = f"{gone} of {len(wanted)} equal searches of rate, epochs, λ and α (one schedule for all)"
    return (*([said] if gone else []), NOT_GIVEN)


def leads(found: Found, rows: Sequence[str], key: str, base: str) -> list[Comparison]:
    """Both JS losses against a base on each row, with intervals for all of them at once."""
    confidence = corrected(CONFIDENCE, len(rows) * len(JS))
    scale = SCALES[key]
    return [
        Comparison(
            f"{title(name)} over {title(base)} on {data.replace('_', ' ')}",
            lead(found[data], name, base, key, confidence),
            unit=scale.unit,
            factor=100.0 if scale.relative else 1.0,
            confidence=confidence,
        )
        for data in rows
        for name in JS
    ]


def lead(
    row: Mapping[str, Mapping[str, Any]], one: str, other: str, key: str, confidence: float
) -> Interval:
    """How far one is below another, split by split; a share of the other's mean for the RMSE."""
    pairs = zip(regression_results.values(row[one], key), row[other][key], strict=True)
    interval = student(
        [_difference(own, theirs) for own, theirs in pairs], confidence=confidence, overlap=OVERLAP
    )
    if not SCALES[key].relative:
        return interval
    return interval.times(1 / fmean(v for v in row[other][key] if v is not None))


def _difference(own: float | None, theirs: float | None) -> float:
    """A trial that diverged is worse than any that ended."""
    if own is None and theirs is None:
        return 0.0
    if own is None or theirs is None:
        return -math.inf if own is None else math.inf
    return theirs - own


def _as_good(found: Found, rows: Sequence[str], key: str, name: str, parts: int) -> Badge:
    """Whether a JS loss is not worse than KL by the margin on half of the rows."""
    margin, confidence = SCALES[key].margin, corrected(CONFIDENCE, parts)
    every = [lead(found[data], name, "kl", key, confidence) for data in rows]
    good = sum(interval.low > -margin for interval in every)
    worse = sum(interval.high < -margin for interval in every)
    if 2 * good >= len(rows):
        return Badge.YES
    return Badge.NO if 2 * worse > len(rows) else Badge.UNDECIDED


def _near(found: Found, rows: Sequence[str], key: str, name: str, published: Table) -> int:
    """Rows on which our mean lies within the margin of the published one."""
    margin, count = SCALES[key].margin, 0
    for data in rows:
        values = regression_results.values(found[data][name], key)
        ended = [value for value in values if value is not None]
        if len(ended) < len(values):
            continue
        theirs = published[data][name].mean
        reach = margin * theirs if SCALES[key].relative else margin
        count += abs(fmean(ended) - theirs) <= reach
    return count


def _sentence(
    found: Found,
    rows: Sequence[str],
    key: str,
    claims: Sequence[Comparison],
    near: Mapping[str, int],
) -> str:
    ahead = [one for one in claims if one.direction_badge is Badge.YES]
    behind = [one for one in claims if one.standing is Standing.BEHIND]
    said = [
        f"{len(ahead)} of {len(claims)} comparisons with KL ahead, {len(behind)} behind",
        *(one.text for one in ahead),
        "within the margin of the published column: "
        + ", ".join(f"{title(name)} on {count}" for name, count in near.items())
        + f" of {len(rows)} rows",
    ]
    if all("lambda_kl" in found[data] for data in rows):
        tuned = leads(found, rows, key, "lambda_kl")
        over = sum(one.direction_badge is Badge.YES for one in tuned)
        best = max(tuned, key=attrgetter("rank"))
        behind = [one for one in tuned if one.standing is Standing.BEHIND]
        said.append(
            f"{over} of {len(tuned)} comparisons with the tuned λKL ahead, {len(behind)} behind"
        )
        said.append(f"the best of them {best.text}")
        said += [one.text for one in behind]
    return "; ".join(said)
