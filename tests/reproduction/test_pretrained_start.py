"""The item of the pretrained start: judged on the committed results and on altered copies."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks.pretrained import data as harness
from reproduction.images import pretrained_start as item
from reproduction.images.confusion import PUBLISHED
from reproduction.item import Effort
from reproduction.verdict import Badge, Outcome

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "results"
JS = ("all_jsa", "all_jsg")

pytestmark = pytest.mark.skipif(
    not item.folder(COMMITTED).is_dir(), reason="benchmarks/ is not beside the tests"
)


def read(way, key="missed_equal"):
    paths = [item.folder(COMMITTED) / f"final-patches-{way}-{fold}.json" for fold in range(5)]
    return np.array([json.loads(path.read_text())["scores"]["test"][key] for path in paths])


@pytest.fixture
def results(tmp_path):
    """A copy that a test may change."""
    shutil.copytree(item.folder(COMMITTED), item.folder(tmp_path / "results"))
    return tmp_path / "results"


def change(results, way, edit):
    for fold in range(5):
        path = item.folder(results) / f"final-patches-{way}-{fold}.json"
        told = json.loads(path.read_text())
        edit(told, fold)
        path.write_text(json.dumps(told))


def set_missed(results, way, values):
    def edit(told, fold):
        told["scores"]["test"] |= {"missed_equal": values[fold], "missed": values[fold]}

    change(results, way, edit)


def test_the_interval_is_that_of_a_paired_t_test_as_a_share_of_what_kl_misses():
    for claim, way in zip(item.verdict(COMMITTED).evidence, JS, strict=True):
        kl, js = read("all_kl"), read(way)
        wanted = stats.ttest_rel(kl, js).confidence_interval(0.95)
        assert claim.interval.mean == pytest.approx((kl - js).mean() / kl.mean())
        assert claim.interval.low == pytest.approx(wanted.low / kl.mean())
        assert claim.interval.high == pytest.approx(wanted.high / kl.mean())
        assert claim.interval.n == 5


def test_the_claim_is_that_of_figure_5():
    published = [claim.published for claim in item.verdict(COMMITTED).evidence]
    assert published == [-PUBLISHED["js_a"], -PUBLISHED["js_g"]] == [0.128, 0.117]


def test_the_papers_own_share_is_reproduced(results):
    kl = read("all_kl")
    for name, way in item.CLAIMED.items():
        noise = 1 + np.array([-2, -1, 0, 1, 2]) / 1000
        set_missed(results, way, (1 + PUBLISHED[name]) * kl * noise)
    found = item.verdict(results)
    assert (found.direction, found.size) == (Badge.YES, Badge.YES), found.sentence


def test_the_papers_share_turned_round_is_not_reproduced(results):
    kl = read("all_kl")
    for name, way in item.CLAIMED.items():
        set_missed(results, way, kl / (1 + PUBLISHED[name]))
    found = item.verdict(results)
    assert (found.direction, found.size) == (Badge.NO, Badge.NO), found.sentence


def test_without_an_effect_at_most_one_in_twenty_is_called_reproduced(monkeypatch):
    """Both losses of a pair have the committed runs' fold means and spread about them."""
    rng, called = np.random.default_rng(0), 0
    committed = item.told(COMMITTED)
    folds = np.mean([read(way) for way in ("all_kl", *JS)], axis=0)
    spread = (read("all_kl") - read("all_jsa")).std(ddof=1) / np.sqrt(2)

    def drawn():
        return [
            {"fold": fold, "diverged": False, "at_best": {"test": {"mean": told}}}
            for fold, mean in enumerate(folds)
            for told in [dict.fromkeys(("missed_equal", "missed"), mean + spread * rng.normal())]
        ]

    for _ in range(300):
        world = {way: drawn() for way in committed}
        monkeypatch.setattr(item, "told", lambda results, world=world: world)
        monkeypatch.setattr(item.Needs, "lacks", lambda self, results: [])
        called += item.verdict(COMMITTED).outcome is Outcome.REPRODUCED
    assert called <= 15


def test_runs_that_diverged_are_the_worst_results(results):
    for way in JS:
        change(results, way, lambda told, fold: told.update(diverged=True))
    found = item.verdict(results)
    assert (found.direction, found.n) == (Badge.NO, 5)
    assert "-400.7" in found.sentence  # everything is missed: 1 / .1997 - 1 more than by KL


def test_without_kl_nothing_is_judged_and_every_run_is_named(results, tmp_path):
    for path in item.folder(results).glob("final-patches-all_kl-*"):
        path.unlink()
    assert item.verdict(results).outcome is Outcome.OPEN
    assert "5 of 30 runs" in item.verdict(results).missing
    assert "pretrained start: all weights, λKL, fold 3" in item.NEEDS.missing(results)
    assert len(item.NEEDS.missing(tmp_path / "else" / "where")) == 30


def test_what_differs_from_the_papers_plan_is_what_the_harness_does():
    lacks = item.verdict(COMMITTED).missing
    case = harness.CASES["patches"]
    assert f"224 pixels ({case.size})" in lacks
    assert f"50 epochs ({case.epochs})" in lacks
    assert harness.FOLDS == item.FOLDS
    assert "KL at strength 1 (λKL)" in lacks
    strengths = [run["settings"]["strength"] for run in item.told(COMMITTED)["all_kl"]]
    assert max(strengths) < 1e-3


def test_the_table_has_a_row_per_way_with_its_interval(tmp_path):
    _, page, _ = item.draw(COMMITTED, tmp_path)
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ")][2:]
    assert len(rows) == 6
    (own,) = (row for row in rows if "all weights, JS-A" in row)
    assert item.verdict(COMMITTED).evidence[0].figures.removesuffix(" %") in own
    assert f"{read('all_jsa').mean():.3f} ± {read('all_jsa').std(ddof=1):.3f}" in own


def test_computing_needs_the_weights_and_has_no_toy(tmp_path, monkeypatch):
    lines = []
    item.NEEDS.compute(tmp_path / "results", Effort.QUICK, lines.append)
    assert lines == ["there is no toy of a pretrained network"]
    monkeypatch.setenv("BAYESDIV_DATA", str(tmp_path))
    with pytest.raises(item.runs.RunError, match=r"must name a folder with lite0\.safetensors"):
        item.NEEDS.compute(tmp_path / "results", Effort.FULL, lines.append)
    (tmp_path / "lite0.safetensors").touch()
    commands = []
    monkeypatch.setattr(
        item.subprocess, "run", lambda command, check: commands.append(" ".join(command))
    )
    item.NEEDS.compute(tmp_path / "results", Effort.FULL, lines.append)
    assert [command.rpartition("--stage ")[2] for command in commands] == ["tune", "final"]
    program = commands[0].split()[1]
    assert Path(program).is_file()
