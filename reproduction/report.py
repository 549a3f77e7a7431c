"""The reproducibility report: every claim, our figure with its interval, the verdict, and why.

    python -m reproduction.report docs/paper/report.md

writes the page from the results in `results`; a test keeps the page equal to what this writes.
"""

import argparse
from collections import Counter
from pathlib import Path

from reproduction.catalogue import CATALOGUE
from reproduction.item import Entry
from reproduction.verdict import Outcome, Verdict

MOST = 4  # comparisons of a row; the others are on the item's own page

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
    "claims_accuracy": "a tuned λKL gains as much: the strength explains it, not the divergence",
    "claims_regression": "KL at strength 1 underfits there; against λKL the result is undecided",
    "claims_false_negatives": "over five folds, the spread of KL is as large as the effect",
    "theorem_2": "it is about the weighted KLs; the closed form has a normaliser too",
    "corollary": "it fails for the closed form, which the experiments use",
    "boundedness": "KL and JS-G are infinite from the start; samples miss the tails by chance",
    "divergence_growth": "near the prior every JS divergence is weaker than KL",
    "monte_carlo_error": "the number depends on which of the two definitions of JS-G is meant",
    "mechanism": "JS wins by regularising less: near the prior it is (1-α)³ + α³ times KL",
    "test_accuracy": "here the lead of JS-A shrinks as the noise grows, because KL underfits most "
    "at low noise",
    "pretrained_start": "every strength gives the pull of the same weight decay, so KL is a λKL; "
    "five folds of patients differ more than the losses do",
    "deterministic_baseline": "the gap of KL is smaller than that of JS, not larger",
    "lambda_kl_baseline": "with equal budgets, λKL cannot be distinguished from the JS losses",
    "unmodified_js": "the search chose α = ½ for JS-A, where nothing is modified",
    "cifar100": "one fold has no interval",
    "time_per_epoch": "our rule for JS-A needs no samples",
    "tuned_cifar10": "α and λ depend on the scales of prior and start, which differ here",
    "tuned_histopathology": "α and λ depend on the scales of prior and start, which differ here",
    "authors_protocol": "the authors' program uses standard deviations as variances",
}
HEAD = """# Reproducibility report

`python -m reproduction.report` writes this page from the committed results, and a test keeps the
two in step. If you disagree, change a result, an interval or a rule, and run it again.

**How to read it.** Every comparison is paired (same fold, same split) and has a 95 % interval.
*Direction* says whether the interval excludes 0 on the side that the paper claims. *Size* says
whether the whole interval lies within a factor of two of the published figure; "not stated" means
that the paper gives no figure. A run that diverged counts as the worst result. Settings were chosen
on validation data, and the verdicts use test data. λKL, which is KL with a tuned strength, is shown
wherever it was run: a gain that λKL makes too is not due to the divergence. *n* is the number of
folds, splits or cases.

"""


def report(results: Path) -> str:
    """The page, as Markdown."""
    verdicts = {entry: entry.module().verdict(results) for entry in CATALOGUE}
    counts = Counter(verdict.outcome for verdict in verdicts.values())
    listed = ", ".join(f"{counts[o]} {o.value}" for o in Outcome if counts[o])
    lines = [
        f"Of {len(verdicts)} items: {listed}.",
        "",
        "| in the paper | claim | our result | λKL | direction | size | n | why |",
        "|---|---|---|---|---|---|---:|---|",
        *(_row(entry, verdict) for entry, verdict in verdicts.items()),
        "",
        "## What we did not run of the paper's plan",
        "",
        *(
            f"- {entry.label}, {entry.title}: {'; '.join(verdict.missing)}"
            for entry, verdict in verdicts.items()
            if verdict.missing
        ),
    ]
    return HEAD + "\n".join(lines) + "\n"


def _row(entry: Entry, verdict: Verdict) -> str:
    ours = [text for text in verdict.intervals if not text.startswith("λKL")]
    more = len(ours) - MOST
    said = "; ".join(ours[:MOST]) + (f"; {more} more" if more > 0 else "")
    cells = [
        entry.label,
        CLAIMS[entry.name],
        said or verdict.sentence,
        "; ".join(_of_lambda_kl(verdict)[:2]) or "–",
        verdict.direction.value,
        verdict.size.value,
        "–" if verdict.n is None else f"{verdict.n}",
        WHY.get(entry.name, "–"),
    ]
    return f"| {' | '.join(cell.replace('|', '‖') for cell in cells)} |"


def _of_lambda_kl(verdict: Verdict) -> list[str]:
    """The figures of λKL."""
    parts = verdict.sentence.split("; ")
    joined = [
        f"{part}; {following}" if part.count("(") > part.count(")") else part
        for part, following in zip(parts, [*parts[1:], ""], strict=True)
    ]
    return [part for part in joined if "λKL" in part and any(map(str.isdigit, part))]


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m reproduction.report", description=__doc__)
    parser.add_argument("page", type=Path, help="the file to write")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of results")
    given = parser.parse_args()
    given.page.write_text(report(given.results), encoding="utf-8")


if __name__ == "__main__":
    main()
