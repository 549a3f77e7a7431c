"""The pages of the tables' benchmarks are what their committed lines say."""

import json
import re
from pathlib import Path

import pytest
from scipy import stats

from benchmarks import losses
from benchmarks.tables import classes
from benchmarks.tables.study import known

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "benchmarks/tables"
PAGE = (ROOT / "docs/howto/scikit-learn.md").read_text()


def test_the_pages_follow_from_the_committed_lines():
    rows = known(TABLES / "losses.csv")
    assert (TABLES / "losses.md").read_text() == losses.summary(rows)
    assert losses.PAGE.read_text() == losses.page(rows)
    own = known(TABLES / "classes.csv")
    assert (TABLES / "classes.md").read_text() == classes.summary(own) + "\n"
    logistic, boosting = re.findall(r"on (\d+)", classes.sentence(own))
    page = " ".join(PAGE.split())
    assert f"at or below that of logistic regression on {logistic} of 8 tables" in page
    assert f"at or below that of gradient boosting on {boosting}." in page


def test_the_documented_gap_is_the_measured_one():
    found = json.loads((TABLES / "gap.json").read_text())
    for on, between, outside in found["on, between, outside"].values():
        assert f"| {on:.3f} | {between:.3f} | {outside:.3f} |" in PAGE
    far = found["moons: probability, information, accuracy"]["four members, with distances"]
    assert f"with it {far[0]:.3f}, and a mutual information of {far[1]:.3f}" in PAGE


@pytest.mark.parametrize("loss", losses.LOSSES[1:])
def test_losses_are_compared_on_splits_that_all_have(loss):
    one = {"table": "yacht", "rmse": "1", "train": "90", "test": "10"}
    rows = [
        {**one, "loss": name, "split": str(split), "nll": str(split + (name == loss))}
        for name in losses.LOSSES
        for split in range(5)
        if not (name == "JS-A" and split == 2)  # a file that is still being written
    ]
    own = losses.tables_of(rows)["yacht"]
    assert [row["split"] for row in own["KL"]] == ["0", "1", "3", "4"]
    mean, half, verdict = losses.compared(own, loss, "KL", "nll")
    assert (mean, half, verdict) == (1.0, 0.0, "behind")
    assert "| yacht (4) |" in losses.summary(rows)


def test_an_interval_is_wider_by_the_overlap_of_the_splits():
    each = [0.1, 0.4, -0.2, 0.3]
    mean, half = losses.interval(each, train=100, test=0)
    low, high = stats.t.interval(0.95, 3, loc=mean, scale=stats.sem(each))
    assert half == pytest.approx((high - low) / 2)
    assert losses.interval(each, train=100, test=25)[1] == pytest.approx(half * 2**0.5)
