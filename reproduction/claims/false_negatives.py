"""Abstract: "about 13 % reduction in false negative predictions of a biased dataset".

The results have 12.8 % for JS-A; the introduction says 12 %.
"""

from pathlib import Path

from reproduction.claims import table
from reproduction.contenders import THREE, title
from reproduction.images.comparing import MISSED, everyone, reduction
from reproduction.images.confusion import PUBLISHED
from reproduction.images.drawing import demand
from reproduction.images.running import Requirement
from reproduction.verdict import Comparison, Verdict, judged

NEEDS = Requirement(("histopathology-folds",), ("kl", "js_a"))
NOTE = "Histopathology: false negatives on the test patches below those of KL, as a share of them."


def comparisons(results: Path) -> list[Comparison]:
    """JS-A, which the claim is of, then λKL and JS-G, where they have runs."""
    told = everyone(results, "histopathology", (*THREE, "lambda_kl"))
    found = []
    for name in ("js_a", "lambda_kl", "js_g"):
        less = reduction(told.get(name, ()), told.get("kl", ()), MISSED)
        theirs = -PUBLISHED[name] if name in PUBLISHED else None
        if less is not None:
            found.append(Comparison(f"{title(name)} below KL", less, theirs, unit="%"))
    return found if "js_a" in told else []


def draw(results: Path, out: Path) -> list[Path]:
    """The table of the claim."""
    found = comparisons(results)
    demand(bool(found), results)
    return table.write(out, "claims_false_negatives", found[:1], found[1:], NOTE)


def verdict(results: Path) -> Verdict:
    """Whether JS-A misses fewer positive patches than KL, by about 13 %."""
    found = comparisons(results)
    beside = [one.text for one in found[1:]]
    return judged(found[:1], beside=beside, missing=NEEDS.lacks(results))
