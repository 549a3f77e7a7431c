"""The reproducibility report is what the committed results give, and its words agree with them."""

import re
from pathlib import Path
from statistics import mean, stdev

import pytest

from reproduction import report
from reproduction.algorithms import algorithm_2
from reproduction.catalogue import CATALOGUE
from reproduction.images.comparing import AREA, ECE, MISSED, ahead, by_fold, everyone
from reproduction.intervals import Interval
from reproduction.verdict import Badge, Comparison, Outcome, not_computed

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


@pytest.mark.parametrize("point", report.POINTS, ids=lambda point: point.item + point.figure)
def test_a_point_of_the_summary_says_what_its_figures_say(point, verdicts):
    assert f"({point.standing}" in point.figures(verdicts[point.item])


def test_the_page_is_written_without_any_result_too(tmp_path):
    written = report.report(tmp_path / "results")
    assert "not computed yet" in written
    assert "| `regression-searched` | 32 of 32 | unknown | no committed column |" in written


def test_every_comparison_that_is_behind_is_shown(verdicts):
    """Of those with KL, and of those with λKL that stand in the sentence alone."""
    rows = {line.split("**")[1]: line for line in PAGE.read_text().splitlines() if "| **" in line}
    behind = 0
    for entry in CATALOGUE:
        own = verdicts[entry.name]
        for part in {*own.intervals, *report.parts(own.sentence)}:
            if "(behind" in part and ("over λKL" in part or part in own.intervals):
                assert part in rows[entry.label], part
                behind += 1
    assert behind >= 10
    assert "JS-G over λKL at noise 0.1 -7.10" in rows["Figure 4 (a, b)"]
    assert "growth of the lead of JS-A for 0.1 more noise" in rows["Figure 4 (a, b)"]


def test_a_row_shows_what_is_behind_before_it_counts_the_rest():
    level = Comparison("level", Interval(0.0, -1.0, 1.0, 5))
    behind = Comparison("behind", Interval(-2.0, -3.0, -1.0, 5))
    said = report._comparisons([*[level] * 6, behind, level])
    assert said == [*[level.text] * 4, behind.text, "and 3 more, none of them behind"]
    assert report._comparisons([level] * 4) == [level.text] * 4


def test_a_headline_follows_from_its_figure():
    (point,) = (point for point in report.POINTS if point.figure == " over λKL on ")
    for standing, begins in (("ahead", "A lead in"), ("undecided", "No lead"), ("behind", "No")):
        verdict = not_computed(f"JS-G over λKL on yacht +1.0 [0.5, 1.5] % ({standing})")
        assert point.headlined(verdict).startswith(begins)
    assert point.headlined(not_computed("nothing")).startswith("No lead")


def test_the_page_names_every_level_and_how_many_differences_there_are(verdicts):
    text = " ".join(PAGE.read_text().split())
    assert "of 95 % where no other level stands beside it" in text
    assert "97.5 % for two and 99.6 % for twelve" in text
    levels = {round(100 * one.confidence, 1) for own in verdicts.values() for one in own.evidence}
    assert levels == {95.0, 97.5, 99.6}
    assert set(re.findall(r"([0-9.]+) % interval", text)) == {"97.5", "99.6"}
    assert all(own.n for own in verdicts.values())


def test_a_departure_is_said_of_the_items_that_have_it(verdicts):
    text = section("What differs from the paper's plan")
    for entry in CATALOGUE:
        for lack in verdicts[entry.name].missing:
            named = f"- {lack}: " in text
            (line,) = (
                own
                for own in text.splitlines()
                if own.startswith(f"- {lack}: " if named else f"- {entry.label}, {entry.title}: ")
            )
            assert (entry.label if named else lack) in line
    assert "bootstrap of rows (6 of 15 folds)" in text
    lacks = {
        name: [lack for lack in verdicts[name].missing if lack.startswith("bootstrap")]
        for name in ("histopathology", "confusion", "uncertainty_metrics", "mechanism")
    }
    assert lacks == {
        "histopathology": ["bootstrap of rows for area"],
        "confusion": [],
        "uncertainty_metrics": ["bootstrap of rows for NLL and ECE"],
        "mechanism": [],
    }


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


def value(verdict, start):
    """The first figure of the part of the sentence that begins so."""
    return float(re.search(r"[+-][0-9.]+", said(verdict, start)[len(start) :])[0])


def undecided_against_lambda_kl(experiment, noise, *names):
    """Whether the direct comparison with λKL in accuracy decides nothing for these losses."""
    told = everyone(RESULTS, experiment, (*names, "lambda_kl"), noise)
    return all(has_zero(ahead(told[name], told["lambda_kl"])) for name in names)


def gaps(verdict, where):
    """Gap in points by loss, as the sentence says it."""
    found = re.findall(rf"gap of (\S+) ([0-9.]+) points on {where}", verdict.sentence)
    return {name: float(points) for name, points in found}


def pulls(verdict, where):
    """Measured pull on the trained weights by loss."""
    found = re.findall(rf"gap of (\S+) [0-9.]+ points on {where}, pull ([0-9.]+)", verdict.sentence)
    return {name: float(pull) for name, pull in found}


def validated(verdict, name):
    """What a loss validates with both formulas, in per cent."""
    found = re.findall(rf"{name}(?: as programmed)? validates ([0-9.]+)%", verdict.sentence)
    assert len(found) == 2
    return [float(figure) for figure in found]


def missed_by_kl():
    """The share of positive patches that KL misses, fold by fold."""
    (told,) = everyone(RESULTS, "histopathology", ("kl",)).values()
    return list(by_fold(told, MISSED).values())


def varies_as_much_as(verdict):
    """Whether KL's spread over folds, as a share of its mean, is at least each effect."""
    missed = missed_by_kl()
    spread = stdev(missed) / mean(missed)
    return all(spread >= one.interval.mean for one in verdict.evidence)


def area_over_lambda_kl(name):
    """How far a loss is above λKL in the area under the ROC curve, on the random split."""
    told = everyone(RESULTS, "histopathology", (name, "lambda_kl"))
    return ahead(told[name], told["lambda_kl"], AREA)


def spread_of_ece():
    told = everyone(RESULTS, "histopathology", ("kl", "lambda_kl", "js_g", "js_a"))
    return {name: stdev(by_fold(runs, ECE).values()) for name, runs in told.items()}


# What must be the case for the words of a reason to be true, item by item.
REASONS = {
    "claims_accuracy": lambda v: (
        "(ahead" in said(v, "λKL over KL")
        and v.evidence[0].name == "JS-A over KL"
        and undecided_against_lambda_kl("cifar10", 0.9, "js_a")
    ),
    "claims_regression": lambda v: (
        v.evidence[0].confidence == pytest.approx(1 - 0.05 / 12) and " over λKL on " in v.sentence
    ),
    "claims_false_negatives": lambda v: (
        has_zero(v.evidence[0].interval) and v.n == 5 and varies_as_much_as(v)
    ),
    "theorem_2": lambda v: "(4%) for the closed-form" in v.sentence,
    "corollary": lambda v: "(23%) for the closed-form" in v.sentence,
    "algorithm_1": lambda v: (
        (v.direction, v.size) == (Badge.YES, Badge.NO)
        and compared(v, "extra time of JS-G").high < 0
    ),
    "algorithm_2": lambda v: (
        "(level)" in said(v, "accuracy by samples over exact")
        and "(behind)" in said(v, "extra time of exact JS-A")
        and compared(v, "extra time of JS-A by samples").low > 0
        and compared(v, "extra time of JS-A by samples").high < algorithm_2.PUBLISHED / 2
    ),
    "boundedness": lambda v: "KL and JS-G are infinite at all 101 scales" in v.sentence,
    "divergence_growth": lambda v: (
        v.direction is Badge.PARTLY
        and "JS-G exceeds KL for μ_q everywhere and σ_q² to 0.0115;" in v.sentence
        and "20 × JS-A exceeds KL for μ_q from -1.62 to 1.62 and σ_q² to 1.2;" in v.sentence
        and "beyond, KL is larger" in v.sentence
    ),
    "monte_carlo_error": lambda v: "495 samples for JS-G and 124 for the weighted" in v.sentence,
    "regression_rmse": lambda v: v.size is Badge.NO and "32 equal searches" in v.missing[0],
    "regression_nll": lambda v: v.size is Badge.NO and "32 equal searches" in v.missing[0],
    "training_curves": lambda v: (
        (one := compared(v, "JS-A over KL on CIFAR-10, noise 0.9")).low < 0.0103 < one.high
        and v.size is Badge.UNDECIDED
        and all(
            "(ahead" in said(v, f"λKL over KL on {where}")
            for where in ("CIFAR-10, noise 0.9", "histopathology")
        )
        and undecided_against_lambda_kl("cifar10", 0.9, "js_g", "js_a")
        and undecided_against_lambda_kl("histopathology", None, "js_g", "js_a")
    ),
    "mechanism": lambda v: (
        all(
            min(found := gaps(v, where), key=found.get) == "KL" and len(found) >= 3
            for where in ("CIFAR-10, noise 0.9", "histopathology", "CIFAR-100, noise 0.5")
        )
        and all(float(share) < 0.5 for share in re.findall(r"start ([0-9.]+) times", v.sentence))
        and 0.8 < (on := pulls(v, "CIFAR-10, noise 0.9"))["JS-A"] / on["KL"] < 1.25
        and (on := pulls(v, "histopathology"))["JS-A"] < 0.5 * on["KL"]
    ),
    "test_accuracy": lambda v: (
        compared(v, "growth of the lead of JS-A for 0.1 more noise").high < 0
        and compared(v, "JS-A over KL at noise 0.1").low
        > compared(v, "JS-A over KL at noise 0.9").high
        and value(v, "λKL over KL at noise 0.1")
        > value(v, "λKL over KL at noise 0.5")
        > value(v, "λKL over KL at noise 0.9")
    ),
    "histopathology": lambda v: (
        v.outcome is Outcome.PARTLY
        and "JS-G ahead in 14 of 15 runs" in v.sentence
        and "(ahead" in said(v, "λKL over KL in accuracy")
        and all(
            "(undecided" in said(v, f"{name} over λKL in accuracy") for name in ("JS-G", "JS-A")
        )
        and area_over_lambda_kl("js_a").low > 0
        and area_over_lambda_kl("js_g").high < 0
    ),
    "confusion": lambda v: (
        all(has_zero(one.interval) for one in v.evidence) and v.n == 5 and varies_as_much_as(v)
    ),
    "pretrained_start": lambda v: (
        "KL at strength 1 (λKL)" in v.missing and all(has_zero(one.interval) for one in v.evidence)
    ),
    "deterministic_baseline": lambda v: all(
        compared(v, f"gap of {name} below that of KL").high < 0 for name in ("JS-G", "JS-A")
    ),
    "lambda_kl_baseline": lambda v: (
        has_zero(v.evidence[-1].interval)
        and undecided_against_lambda_kl("cifar10", 0.9, "js_g", "js_a")
    ),
    "unmodified_js": lambda v: (
        "chose α = 0.5 for JS-A" in v.sentence
        and all(
            has_zero(compared(v, f"JS-A over the unmodified one at α = {alpha}"))
            for alpha in (0.1, 0.3)
        )
    ),
    "cifar100": lambda v: v.n == 1,
    "loss_evolution": lambda v: compared(v, "training NLL of JS-G above KL").high < 0,
    "time_per_epoch": lambda v: abs(compared(v, "extra time of JS-A").high) < 0.01,
    "uncertainty_metrics": lambda v: (
        all(has_zero(compared(v, f"ECE of {name} below KL")) for name in ("JS-G", "JS-A"))
        and max(spreads := spread_of_ece(), key=spreads.get) == "kl"
        and "(ahead)" in said(v, "test NLL of λKL")
    ),
    "tuned_cifar10": lambda v: v.direction is Badge.NO,
    "tuned_histopathology": lambda v: v.direction is Badge.NO,
    "authors_protocol": lambda v: (
        all(abs(own - 39.72) < 1 for own in validated(v, "KL"))
        and all(0.45 < own / 41.78 < 0.55 for own in validated(v, "JS-A"))
        and compared(v, "JS-A over KL, authors' formulas").high < 0
        and v.n == 1  # of the exact formulas
    ),
}


def test_every_reason_is_tried():
    assert set(REASONS) == set(report.WHY)


@pytest.mark.parametrize("name", REASONS)
def test_a_reason_agrees_with_the_results(name, verdicts):
    assert REASONS[name](verdicts[name]), verdicts[name].sentence
