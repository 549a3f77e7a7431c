"""The reproducibility report: every claim, our figure with its interval, the verdict, and why.

    python -m reproduction.report docs/paper/report.md

writes the page from the results in `results`; a test keeps the page equal to what this writes.
"""

import argparse
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from reproduction.catalogue import CATALOGUE
from reproduction.costs import costs
from reproduction.intervals import Standing
from reproduction.item import Entry
from reproduction.verdict import Comparison, Outcome, Verdict

MOST = 4  # comparisons of a row; of the others those that are behind, the rest on the item's page
MOST_TUNED = 5  # the same for those of λKL
SHARED = 10  # items that share a departure from the plan, for which it is said once
NUMBERS = ("minutes",)
NONE = "–"
NOT_RUN = ("cifar100",)
"""Items of which λKL was not run, though it could be."""


class Point(NamedTuple):
    """A sentence of the summary.

    Args:
        headline: what was found; by the standing of the figure where results may change.
        rest: what belongs to it.
        item: that it rests on.
        figure: what that part of the item's sentence holds which is shown.
        standing: what the part must say, or the headline would be wrong.
    """

    headline: str | Mapping[Standing, str]
    rest: str
    item: str
    figure: str
    standing: str = ""

    def figures(self, verdict: Verdict) -> str:
        """The part of the verdict's sentence; empty where it is not computed."""
        found = [part for part in parts(verdict.sentence) if self.figure in part]
        return found[0] if found else ""

    def headlined(self, verdict: Verdict) -> str:
        """The headline that fits the figure; undecided where it is not computed."""
        if isinstance(self.headline, str):
            return self.headline
        said = re.search(r"\((ahead|level|behind)", self.figures(verdict))
        return self.headline[Standing(said[1]) if said else Standing.UNDECIDED]


def _lead(ahead: str, not_ahead: str) -> dict[Standing, str]:
    return {one: ahead if one is Standing.AHEAD else not_ahead for one in Standing}


CLAIMS = {
    "claims_accuracy": "JS is about 5 % more accurate than KL on noisy CIFAR-10",
    "claims_regression": "the RMSE of JS is up to about 8 % lower than that of KL",
    "claims_false_negatives": "JS misses about 13 % fewer positive patches than KL",
    "theorem_1": "JS-A ≤ -(1-α) log α - α log(1-α) for any two distributions",
    "theorem_2": "F_JSG > F_KL if and only if α > R",
    "theorem_3": "for Gaussians R < 1 if and only if σ_p > σ_q",
    "corollary": "for Gaussians with σ_p > σ_q, F_JSG > F_KL for every α above R",
    "algorithm_1": "JS-G is minimised in closed form at the cost of KL (1.02 times)",
    "algorithm_2": "JS-A is minimised with samples of q and p, at 1.63 times the cost of KL",
    "boundedness": "against a uniform prior, KL and JS-G explode as σ grows; JS-A does not",
    "divergence_growth": "as q leaves p, both JS divergences grow faster than KL",
    "divergence_areas": "each divergence is an area",
    "divergence_properties": "which divergences are bounded, symmetric, analytical",
    "jsa_upper_bound": "JS-A rises to its bound and stays there",
    "monte_carlo_error": "JS-G needs 600 samples for an error below 5 %",
    "sign_of_difference": "for every σ_p > σ_q some α puts F_JSG above F_KL",
    "regression_rmse": "the JS losses are as good as KL, and better in some cases",
    "regression_nll": "the JS losses are as good as KL, and better in some cases",
    "training_curves": "the JS losses give more accurate results than KL on both sets",
    "mechanism": "KL overfits; the JS losses regularise more",
    "test_accuracy": "both JS losses beat KL at every noise level, and by more with more noise",
    "histopathology": "both JS losses beat KL in all five runs and in the area under the ROC curve",
    "confusion": "11.7 % (JS-G) and 12.8 % (JS-A) fewer false negatives than KL",
    "pretrained_start": "from ImageNet weights, 11.7 % (JS-G) and 12.8 % (JS-A) fewer false "
    "negatives than KL",
    "deterministic_baseline": "a deterministic network ends 8 % below JS and 5 % below KL, whose "
    "gaps are 86 % and 63 % smaller",
    "lambda_kl_baseline": "KL 39.72 %, λKL 40.12 %, JS 41.78 %",
    "unmodified_js": "the unmodified divergences are 3 % (JS-A) and 2 % (JS-G) worse",
    "cifar100": "KL 22.81 %, JS-G 24.51 %, JS-A 24.02 % test accuracy",
    "loss_evolution": "JS-G fits the training data less, and both JS losses the test data better",
    "time_per_epoch": "1.02 (JS-G) and 1.63 (JS-A) times the time of KL",
    "uncertainty_metrics": "both JS losses have a lower test NLL and ECE",
    "tuned_cifar10": "a search finds a λ of JS-A far above 1",
    "tuned_histopathology": "a search finds a λ of JS-A far above 1",
    "authors_protocol": "the authors' settings and formulas give the published accuracies",
}
WHY = {
    "claims_accuracy": "a tuned λKL gains too; the difference between it and JS-A is undecided",
    "claims_regression": "the best of twelve is picked, so its interval is wider; what is left "
    "against a tuned strength stands beside it",
    "claims_false_negatives": "over five folds, the spread of KL is as large as the effect",
    "theorem_2": "it is about the weighted KLs; the closed form has a normaliser too",
    "corollary": "it fails for the closed form, which the experiments use",
    "algorithm_1": "it learns; our exact rule takes less time than KL by samples, not the same",
    "algorithm_2": "samples learn as well as the exact rule; their extra time is less than half of "
    "the published one",
    "boundedness": "KL and JS-G are infinite from the start; samples miss the tails by chance",
    "divergence_growth": "JS-G exceeds KL along the mean and for narrow variances, not for wide "
    "ones; JS-A is bounded, so KL overtakes λ JS-A far from the prior",
    "monte_carlo_error": "the number depends on which of the two definitions of JS-G is meant",
    "regression_rmse": "our columns differ from the published ones by more than 10 %, and one "
    "schedule serves all losses",
    "regression_nll": "our columns differ from the published ones by more than 0.15 nats, and one "
    "schedule serves all losses",
    "training_curves": "the interval of JS-A on CIFAR-10 begins below half of the published gain; "
    "a tuned λKL gains too on both sets, and the JS losses against it are undecided",
    "mechanism": "KL has the smallest mean gaps, and JS starts with less than half of its pull; on "
    "trained weights, JS-A pulls about as hard as KL on CIFAR-10, and less on histopathology",
    "test_accuracy": "here the lead of JS-A shrinks as the noise grows, and that of λKL too: KL "
    "underfits most at low noise",
    "histopathology": "JS-G is not ahead in every run; a tuned λKL beats KL too; in accuracy JS "
    "against λKL is undecided, in the area JS-A is ahead of it and JS-G behind",
    "confusion": "over five folds, the spread of KL is as large as the effect",
    "pretrained_start": "every strength gives the pull of the same weight decay, so KL is a λKL; "
    "patients differ more than losses do",
    "deterministic_baseline": "the gap of KL is smaller than that of JS, not larger",
    "lambda_kl_baseline": "with equal budgets, λKL cannot be distinguished from the JS losses at "
    "noise 0.9",
    "unmodified_js": "the searches chose α = ½ for JS-A, where nothing is modified; at "
    "α = 0.1 and 0.3 it is undecided",
    "cifar100": "one fold has no interval",
    "loss_evolution": "KL underfits here, so it does not fit the training data better",
    "time_per_epoch": "our rule for JS-A needs no samples, so it costs what KL does, "
    "within a tenth",
    "uncertainty_metrics": "the ECE of KL varies too much over folds to decide; λKL lowers the NLL "
    "too",
    "tuned_cifar10": "α and λ depend on the scales of prior and start, which differ here",
    "tuned_histopathology": "α and λ depend on the scales of prior and start, which differ here",
    "authors_protocol": "KL comes within a point of the published figure with both formulas, JS-A "
    "stays at half of it; with the exact ones that is one fold",
}
POINTS = (
    Point(
        "The theorems hold.",
        "The corollary fails only for the closed-form JS-G",
        "corollary",
        "0 of 1200 pairs contradict it",
    ),
    Point(
        "JS beats KL at strength 1",
        "on noisy CIFAR-10 and on histopathology",
        "training_curves",
        "JS-A over KL on CIFAR-10",
        "ahead",
    ),
    Point(
        "A tuned λKL gains too.",
        "On CIFAR-10 a smaller strength alone brings a gain",
        "claims_accuracy",
        "λKL over KL",
        "ahead",
    ),
    Point(
        "JS against λKL is undecided",
        "on CIFAR-10 with noise 0.9, where both had as many tries",
        "lambda_kl_baseline",
        "JS-A over λKL",
        "undecided",
    ),
    Point(
        "In accuracy it is undecided on histopathology too",
        "with a random split and three seeds per fold; in the area under the ROC curve JS-A is "
        "ahead of λKL, and JS-G behind",
        "histopathology",
        "JS-A over λKL in accuracy",
        "undecided",
    ),
    Point(
        "13 % fewer false negatives are possible but not shown.",
        "From random weights",
        "claims_false_negatives",
        "JS-A below KL",
        "undecided",
    ),
    Point(
        "A start from ImageNet weights does not decide it.",
        "On unseen patients",
        "pretrained_start",
        "fewer missed by JS-A than by λKL",
        "undecided",
    ),
    Point(
        "The mechanism is the opposite of the paper's.",
        "The gap of JS-A between training and validation accuracy is larger than that of KL, not "
        "smaller",
        "mechanism",
        "gap of JS-A below KL on CIFAR-10",
        "behind",
    ),
    Point(
        _lead(
            "A lead in RMSE over KL at strength 1 is shown.",
            "No lead in RMSE over KL at strength 1 is shown.",
        ),
        "On regression, the surest of twelve comparisons",
        "claims_regression",
        " over KL on ",
    ),
    Point(
        _lead("A lead in RMSE over λKL is shown.", "No lead in RMSE over λKL is shown."),
        "With a tuned strength, the surest of twelve comparisons",
        "claims_regression",
        " over λKL on ",
    ),
)
SECTIONS = {
    "The abstract's claims": ("claims",),
    "Theorems, algorithms and figures without data": ("analytical", "algorithms"),
    "Regression": ("regression",),
    "Images": ("images",),
}
HEAD = """# Reproducibility report

What the paper claims, what we found, with its intervals, and why. `python -m reproduction.report`
writes this page from the committed results, and a test keeps the two in step.

"""
READING = """## How to read the tables

Every comparison is paired (same fold, same split) and has an interval in square brackets: of 95 %
where no other level stands beside it. The best of several has a wider one, 97.5 % for two and
99.6 % for twelve. **Direction** says whether the interval excludes 0 on the side that the paper
claims: for all parts of a claim (yes), or for some of them in intervals that allow for their number
(partly). **Size** says whether the whole interval lies within a factor of two of the published
figure; "not stated" means that the paper gives no figure. A row shows the first comparisons and all
that are behind. A run that diverged counts as the worst result. Settings were chosen on validation
data, and the verdicts use test data. **λKL** is KL with a tuned strength, shown wherever it was
run: a gain that λKL makes too is not due to the divergence. **n** is the number of folds, splits or
cases; where comparisons differ in it, it is the smallest. The
[overview](index.md) has the rules in full.
"""
DEPARTURES = """## What differs from the paper's plan

The paper's plan comes first, what we did in brackets.
"""
COSTS = """## What the missing runs would take

On one H200, estimated from the seconds of committed runs. A run of images takes the median wall
time of runs on the same data and pixels, times the ratio of epochs. A search of the regression is
an upper limit: all lengths of all rounds, each epoch as long as one of the committed column. Plans
are in the order in which they are run; `python -m reproduction.running PLAN` runs one of them.
"""
AGAIN = """## If you disagree

```sh
python -m reproduction all                         # judges and draws everything again: reproduced/
python -m reproduction all --compute               # first trains what is missing
python -m reproduction all --compute --results new # trains everything again, in another folder
```

Each command writes this report to `reproduced/report.md`, beside a page with every table and
figure. Change a result, an interval or a rule, and run the first one again.
"""


def report(results: Path) -> str:
    """The page, as Markdown."""
    verdicts = {entry: entry.module().verdict(results) for entry in CATALOGUE}
    counts = Counter(verdict.outcome for verdict in verdicts.values())
    listed = ", ".join(f"{counts[o]} {o.value}" for o in Outcome if counts[o])
    parts = [
        f"{HEAD}**Of {len(verdicts)} items: {listed}.**",
        "\n".join(_point(point, verdicts) for point in POINTS),
        READING.strip(),
        *(_section(title, groups, verdicts) for title, groups in SECTIONS.items()),
        _departures(verdicts),
        _costs(results),
        AGAIN.strip(),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _point(point: Point, verdicts: Mapping[Entry, Verdict]) -> str:
    (verdict,) = (own for entry, own in verdicts.items() if entry.name == point.item)
    figures = point.figures(verdict)
    said = f": {figures}" if figures else ""
    return f"- **{point.headlined(verdict)}** {point.rest}{said}."


def _section(title: str, groups: Sequence[str], verdicts: Mapping[Entry, Verdict]) -> str:
    """A table of items; without a column for λKL where none of them has a figure of it."""
    rows = [_row(entry, own) for entry, own in verdicts.items() if entry.group in groups]
    head = ["claim", "our result", "λKL", "verdict, and why"]
    if all(row[2] == NONE for row in rows):
        head, rows = [*head[:2], head[3]], [[*row[:2], row[3]] for row in rows]
    return f"## {title}\n\n{_table(head, rows)}"


def _row(entry: Entry, verdict: Verdict) -> list[str]:
    said = _comparisons([one for one in verdict.evidence if not one.name.startswith("λKL")])
    every = _of_lambda_kl(verdict, said)
    tuned = [
        *every[:MOST_TUNED],
        *(part for part in every[MOST_TUNED:] if f"({Standing.BEHIND.value}" in part),
    ] or ["not run" if entry.name in NOT_RUN else NONE]
    return [
        f"**{entry.label}**: {CLAIMS[entry.name]}",
        "<br>".join(said or parts(verdict.sentence)),
        "<br>".join(tuned),
        _judged(verdict, WHY.get(entry.name)),
    ]


def _comparisons(found: Sequence[Comparison]) -> list[str]:
    """The first of them, all that are behind, and how many are left."""
    behind = [one for one in found[MOST:] if one.standing is Standing.BEHIND]
    more = len(found[MOST:]) - len(behind)
    left = [f"and {more} more, none of them behind"] if more else []
    return [*(one.text for one in [*found[:MOST], *behind]), *left]


def _judged(verdict: Verdict, why: str | None) -> str:
    """Both badges, n, and the reason."""
    count = "" if verdict.n is None else f", n&nbsp;=&nbsp;{verdict.n}"
    badges = f"direction **{verdict.direction.value}**, size **{verdict.size.value}**{count}"
    return badges if why is None else f"{badges}<br>{why}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---:" if cell in NUMBERS else "---" for cell in head], *rows]
    return "\n".join(f"| {' | '.join(c.replace('|', '‖') for c in line)} |" for line in lines)


def parts(sentence: str) -> list[str]:
    """The parts of a sentence between semicolons that stand in no bracket.

    Examples:
        >>> parts("one (ahead; published 2); another")
        ['one (ahead; published 2)', 'another']
    """
    found = [""]
    for piece in sentence.split("; "):
        whole = found[-1].count("(") <= found[-1].count(")")
        found = [*found, piece] if whole else [*found[:-1], f"{found[-1]}; {piece}"]
    return found[1:]


def _of_lambda_kl(verdict: Verdict, shown: Sequence[str]) -> list[str]:
    """The figures of λKL that stand in no other cell."""
    said = [part for part in parts(verdict.sentence) if part not in shown]
    return [part for part in said if "λKL" in part and any(map(str.isdigit, part))]


def _departures(verdicts: Mapping[Entry, Verdict]) -> str:
    """What many items share, and which do, then what each lacks besides."""
    counts = Counter(lack for verdict in verdicts.values() for lack in verdict.missing)
    common = [lack for lack, count in counts.items() if count >= SHARED]
    shared = {
        lack: dict.fromkeys(e.label for e, verdict in verdicts.items() if lack in verdict.missing)
        for lack in common
    }
    lines = [f"- {lack}: {'; '.join(labels)}" for lack, labels in shared.items()]
    rest = {
        entry: [lack for lack in verdict.missing if lack not in common]
        for entry, verdict in verdicts.items()
    }
    lines += [
        f"- {entry.label}, {entry.title}: {'; '.join(lacks)}"
        for entry, lacks in rest.items()
        if lacks
    ]
    return DEPARTURES + "\n" + "\n".join(lines).strip()


def _costs(results: Path) -> str:
    found = costs(results)
    rows = [
        [f"`{one.plan}`", f"{one.missing} of {one.runs}", _minutes(one.seconds), one.basis]
        for one in found
    ]
    total = sum(one.seconds for one in found)
    rows.append(["all of them", f"{sum(one.missing for one in found)}", _minutes(total), ""])
    return f"{COSTS}\n{_table(['plan', 'runs missing', 'minutes', 'estimated from'], rows)}"


def _minutes(seconds: float) -> str:
    return "unknown" if math.isnan(seconds) else f"{math.ceil(seconds / 60)}"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m reproduction.report", description=__doc__)
    parser.add_argument("page", type=Path, help="the file to write")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of results")
    given = parser.parse_args()
    given.page.write_text(report(given.results), encoding="utf-8")


if __name__ == "__main__":
    main()
