"""The reproducibility report is what the committed results give, and its words agree with them."""

from pathlib import Path

import pytest

from reproduction import report
from reproduction.catalogue import CATALOGUE
from reproduction.verdict import Badge, Outcome

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
PAGE = ROOT / "docs" / "paper" / "report.md"

pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="results/ is not beside the tests")


@pytest.fixture(scope="module")
def verdicts():
    return {entry.name: entry.module().verdict(RESULTS) for entry in CATALOGUE}


def test_the_page_is_what_the_results_give():
    assert PAGE.read_text(encoding="utf-8") == report.report(RESULTS)


def section(title):
    return PAGE.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_item_has_a_claim_and_a_row():
    names = {entry.name for entry in CATALOGUE}
    assert set(report.CLAIMS) == names
    assert set(report.WHY) <= names
    rows = [
        line.strip("| ").split(" | ")
        for title in report.SECTIONS
        for line in section(title).splitlines()
        if line.startswith("| **")
    ]
    labels = [row[0].split("**")[1] for row in rows]
    assert sorted(labels) == sorted(entry.label for entry in CATALOGUE)
    assert all("direction **" in row[-1] and "size **" in row[-1] for row in rows)


def test_every_trained_item_shows_lambda_kl_or_says_that_it_was_not_run():
    """But for time, which a strength does not change, and for claims about settings."""
    without = ("Figure 8", "Table 1", "Table H.6", "Table H.7", "beyond the paper")
    for title in ("The abstract's claims", "Regression", "Images"):
        rows = [line for line in section(title).splitlines() if line.startswith("| **")]
        for row in rows:
            shown = row.split(" | ")[2]
            expected = row.split("**")[1] in without
            assert (shown == "–") is expected, row


def test_every_item_that_is_not_reproduced_says_why(verdicts):
    open_ = {n for n, own in verdicts.items() if own.outcome is not Outcome.REPRODUCED}
    assert open_ <= set(report.WHY)


def test_the_command_writes_the_page(tmp_path, monkeypatch):
    page = tmp_path / "report.md"
    monkeypatch.setattr("sys.argv", ["report", str(page), "--results", str(RESULTS)])
    report.main()
    assert page.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("point", report.POINTS, ids=lambda point: point.headline)
def test_a_point_of_the_summary_says_what_its_figures_say(point, verdicts):
    assert f"({point.standing}" in point.figures(verdicts[point.item])


def test_the_page_is_written_without_any_result_too(tmp_path):
    written = report.report(tmp_path / "results")
    assert "not computed yet" in written
    assert "| `regression-searched` | 32 of 32 | unknown | no committed column |" in written


def test_a_part_of_a_sentence_may_hold_a_semicolon_in_brackets():
    said = "a (ahead; published 1); b (x; y (z; w)); c"
    assert report.parts(said) == ["a (ahead; published 1)", "b (x; y (z; w))", "c"]
    assert report.parts("") == [""]


def compared(verdict, name):
    """The interval of the comparison that has this name."""
    (found,) = (one.interval for one in verdict.evidence if one.name == name)
    return found


def said(verdict, start):
    (found,) = (part for part in report.parts(verdict.sentence) if part.startswith(start))
    return found


def has_zero(interval):
    return interval.low < 0 < interval.high


# What must be the case for the words of a reason to be true, item by item.
REASONS = {
    "claims_accuracy": lambda v: float(said(v, "λKL over KL").split()[3]) > v.evidence[0][1].mean,
    "claims_regression": lambda v: "undecided" in said(v, "JS-G over λKL"),
    "claims_false_negatives": lambda v: has_zero(v.evidence[0].interval) and v.n == 5,
    "theorem_2": lambda v: "(4%) for the closed-form" in v.sentence,
    "corollary": lambda v: "(23%) for the closed-form" in v.sentence,
    "algorithm_1": lambda v: (v.direction, v.size) == (Badge.YES, Badge.OPEN),
    "algorithm_2": lambda v: "(level)" in v.sentence and v.size is Badge.OPEN,
    "boundedness": lambda v: "KL and JS-G are infinite at all 101 scales" in v.sentence,
    "divergence_growth": lambda v: "beyond, KL is larger" in v.sentence,
    "monte_carlo_error": lambda v: "495 samples for JS-G and 124 for the weighted" in v.sentence,
    "regression_rmse": lambda v: v.size is Badge.NO and "32 equal searches" in v.missing[0],
    "regression_nll": lambda v: v.size is Badge.NO and "32 equal searches" in v.missing[0],
    "training_curves": lambda v: (
        v.size is Badge.UNDECIDED and "(ahead" in said(v, "λKL over KL on CIFAR-10")
    ),
    "mechanism": lambda v: v.direction is Badge.NO,
    "test_accuracy": lambda v: (
        compared(v, "growth of the lead of JS-A for 0.1 more noise").mean < 0
        and compared(v, "JS-A over KL at noise 0.1").mean
        > compared(v, "JS-A over KL at noise 0.9").mean
    ),
    "histopathology": lambda v: "JS-G ahead in 4 of 5 runs" in v.sentence,
    "confusion": lambda v: all(has_zero(one.interval) for one in v.evidence) and v.n == 5,
    "pretrained_start": lambda v: (
        "KL at strength 1 (λKL)" in v.missing and all(has_zero(one.interval) for one in v.evidence)
    ),
    "deterministic_baseline": lambda v: compared(v, "gap of JS-A below that of KL").high < 0,
    "lambda_kl_baseline": lambda v: has_zero(v.evidence[-1].interval),
    "unmodified_js": lambda v: "chose α = 0.5 for JS-A" in v.sentence,
    "cifar100": lambda v: v.n == 1,
    "loss_evolution": lambda v: compared(v, "training NLL of JS-G above KL").mean < 0,
    "time_per_epoch": lambda v: v.n == 1,
    "uncertainty_metrics": lambda v: (
        has_zero(compared(v, "ECE of JS-G below KL"))
        and "+41.5" in said(v, "ECE of λKL")
        and "(ahead)" in said(v, "test NLL of λKL")
    ),
    "tuned_cifar10": lambda v: v.direction is Badge.NO,
    "tuned_histopathology": lambda v: v.direction is Badge.NO,
    "authors_protocol": lambda v: v.direction is Badge.UNDECIDED,
}


def test_every_reason_is_tried():
    assert set(REASONS) == set(report.WHY)


@pytest.mark.parametrize("name", REASONS)
def test_a_reason_agrees_with_the_results(name, verdicts):
    assert REASONS[name](verdicts[name]), verdicts[name].sentence
