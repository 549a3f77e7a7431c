"""Tables and figures of the image experiments, from real runs of a tiny network on tiny images."""

import csv
import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
import yaml

from bayesdiv.app import runs
from bayesdiv.app.data.splits import Part, Splits
from bayesdiv.app.nets.images import small_stem
from bayesdiv.app.tasks.classification import Classification
from reproduction.images import results as images_results
from reproduction.images import running as images_running
from reproduction.images.plans import ALL, read_settings
from reproduction.images.protocol import SEARCHES, Protocol, Setting
from reproduction.images.results import FOLDER, Place
from reproduction.images.training import run
from reproduction.item import Effort
from reproduction.verdict import Badge, Outcome

FIGURES = (
    *("training_curves", "test_accuracy", "histopathology", "confusion", "deterministic_baseline"),
    *("lambda_kl_baseline", "unmodified_js", "cifar100", "loss_evolution", "mechanism"),
)
TABLES = (
    *("time_per_epoch", "uncertainty_metrics", "tuned_cifar10", "tuned_histopathology"),
    "authors_protocol",
)
ITEMS = (*FIGURES, *TABLES)
COMMITTED = Path(__file__).parents[2] / "results" / FOLDER
TINY = Protocol(pixels=8, stem=small_stem, width=4, batch_size=16, epochs=2, test_samples=2)


def item(name):
    return import_module(f"reproduction.images.{name}")


def tiny_run(name, fold):
    generator = torch.Generator().manual_seed(fold)
    y = torch.arange(80) % 2
    x = torch.randn(80, 3, 8, 8, generator=generator) + y.reshape(-1, 1, 1, 1) / 2
    cuts = (slice(0, 40), slice(40, 60), slice(60, 80))
    data = Splits(*(Part(x[some], y[some]) for some in cuts), Classification(("a", "b")))
    setting = replace(Setting(name, **SEARCHES[name].first), learning_rate=3e-3)
    return run(data, setting, TINY, seed=fold)


def places(name, fold):
    """Everywhere that a run of this contender and fold is read."""
    yield from (Place("cifar10", name, fold, noise) for noise in (0.1, 0.9))
    yield Place("histopathology", name, fold)
    yield Place("histopathology", name, fold, tag=images_results.BY_PATIENT)
    if fold == 1:
        yield Place("cifar100", name, 1, 0.5)
        yield Place("cifar10-paper", name, 1, 0.9)
        yield Place("cifar10-224", name, 1, 0.9)
        yield Place("time-per-epoch", name, 1)
        yield Place("cifar10-tuning", name, 1, 0.9, "0")
        yield Place("histopathology-tuning", name, 1, tag="0")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    results = tmp_path_factory.mktemp("results")
    for name in ALL:
        for fold in (1, 2):
            told = tiny_run(name, fold)
            told["at_best"]["test"]["mean"].pop("right")  # rows so few would widen all intervals
            for place in places(name, fold):
                where = {"fold": fold, "noise": place.noise, "data": "cifar10", "processes": 1}
                runs.write_json(place.path(results), {**where, **told})
    return results


@pytest.fixture
def results(made, tmp_path):
    """A copy that a test may change."""
    shutil.copytree(made / FOLDER, tmp_path / "results" / FOLDER)
    return tmp_path / "results"


def change(results, place, edit):
    told = runs.read_json(place.path(results))
    edit(told)
    runs.write_json(place.path(results), told)


def set_validation(results, experiment, noise, values):
    """Best validation accuracies of fold 1 and 2 of some contenders."""
    for name, each in values.items():
        for fold, value in zip((1, 2), each, strict=True):

            def edit(told, value=value):
                for line in told["history"]:
                    line["validation_accuracy"] = value

            change(results, Place(experiment, name, fold, noise), edit)


def set_test(results, experiment, noise, values, key="accuracy"):
    for name, each in values.items():
        for fold, value in enumerate(each, start=1):

            def edit(told, value=value):
                told["at_best"]["test"]["mean"][key] = value
                if key == "confusion":  # the answers row by row belong to other counts
                    del told["at_best"]["test"]["mean"]["found"]

            change(results, Place(experiment, name, fold, noise), edit)


@pytest.mark.parametrize("name", ITEMS)
def test_without_results_an_item_is_open_and_says_what_is_missing(name, tmp_path):
    module = item(name)
    assert len(module.NEEDS.missing(tmp_path)) >= 3
    assert module.verdict(tmp_path).outcome is Outcome.OPEN
    with pytest.raises(runs.RunError, match="there are no image results in"):
        module.draw(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_is_drawn_and_judged_from_its_results(name, made, tmp_path):
    written = item(name).draw(made, tmp_path)
    assert all(path.exists() for path in written)
    if name in FIGURES:
        assert [path.name for path in written] == [f"{name}.svg"]
        assert "<svg" in written[0].read_text(encoding="utf-8")
    else:
        assert [path.suffix for path in written[:3]] == [".csv", ".md", ".tex"]
    verdict = item(name).verdict(made)
    assert verdict.outcome is not Outcome.OPEN
    assert any(digit in verdict.sentence for digit in "0123456789")


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_is_drawn_from_kl_alone_but_not_judged(name, results, tmp_path):
    for folder in (results / FOLDER).glob("*/*"):
        if not folder.name.startswith("kl"):
            shutil.rmtree(folder)
    assert item(name).NEEDS.missing(results)
    if name != "unmodified_js":
        item(name).draw(results, tmp_path / "out")
    assert item(name).verdict(results).outcome is Outcome.OPEN


def test_a_missing_run_is_named(results):
    Place("histopathology", "js_a", 2).path(results).unlink()
    assert "histopathology: JS-A, fold 2" in item("confusion").NEEDS.missing(results)
    assert "histopathology: JS-A, fold 1" not in item("confusion").NEEDS.missing(results)


def test_boxes_stand_around_the_middle_of_their_group():
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    groups = {"all": {"kl": [0.1, 0.2], "js_g": [0.2], "js_a": [0.3]}, "one": {"js_a": [0.3]}}
    item("test_accuracy").boxes(axes, groups)
    points = [line for line in axes.lines if line.get_marker() == "." and len(line.get_xdata())]
    middles = [
        sorted({x for line in points for x in line.get_xdata() if round(x) == at}) for at in (0, 1)
    ]
    assert sum(middles[0]) == pytest.approx(0)
    assert middles[1] == [1]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["all", "one"]


def test_unmodified_divergences_that_are_the_same_are_told(results):
    same = "both searches chose α = 0.5 for JS-A, where it is the unmodified one"
    assert same in item("unmodified_js").verdict(results).sentence
    place = Place("histopathology", "unmodified_js_a", 2)
    change(results, place, lambda told: told["setting"].update(alpha=0.4))
    assert "both searches chose" not in item("unmodified_js").verdict(results).sentence


def test_curves_are_judged_by_test_images_not_by_those_that_chose_the_epoch(results):
    module = item("training_curves")
    better = {"kl": (0.40, 0.41), "js_g": (0.60, 0.61), "js_a": (0.60, 0.61)}
    set_validation(results, "cifar10", 0.9, better)
    before = module.verdict(results).sentence
    set_test(results, "cifar10", 0.9, {"kl": (0.40, 0.41), "js_g": (0.45, 0.461)})
    verdict = module.verdict(results)
    assert before != verdict.sentence
    assert "JS-G over KL on CIFAR-10, noise 0.9 +5.05 [+4.41, +5.69] points (ahead)" in (
        verdict.sentence
    )


def test_growth_with_the_noise_is_a_slope_over_folds(results):
    for noise, lead in ((0.1, (0.01, 0.01)), (0.9, (0.05, 0.052))):
        ahead = tuple(0.5 + each for each in lead)
        set_test(results, "cifar10", noise, {"kl": (0.5, 0.5), "js_g": ahead, "js_a": ahead})
    said = item("test_accuracy").verdict(results).sentence
    # Four points over 0.8 are half a point for 0.1.
    assert "growth of the lead of JS-G for 0.1 more noise +0.51 [" in said


def test_unseen_patients_stand_beside_the_random_split(results, tmp_path):
    patients = {"kl": (0.80, 0.81), "js_g": (0.79, 0.82), "js_a": (0.83, 0.9)}
    for name, values in patients.items():
        for fold, value in enumerate(values, start=1):

            def edit(told, value=value):
                told["at_best"]["test"]["mean"]["accuracy"] = value

            change(results, Place("histopathology", name, fold, tag="by-patient"), edit)
    module = item("histopathology")
    said = module.verdict(results).sentence
    assert "JS-G over KL on unseen patients +0.00 [-12.71, +12.71] points (undecided)" in said
    shutil.rmtree(Place("histopathology", "kl", 1, tag="by-patient").path(results).parent)
    assert "unseen patients" not in module.verdict(results).sentence
    (written,) = module.draw(results, tmp_path)
    assert written.exists()


def test_every_pair_of_runs_counts_and_a_tie_is_not_ahead():
    def runs_of(*values):
        return [
            {"fold": 1 + n % 5, "seed": n, "diverged": False}
            | {"at_best": {"test": {"mean": {"accuracy": value}}}}
            for n, value in enumerate(values)
        ]

    kl = runs_of(*[0.5] * 15)
    told = {"kl": kl, "js_g": runs_of(*[0.6] * 14, 0.5), "js_a": runs_of(*[0.6] * 14)[::-1]}
    won = item("histopathology")._won
    assert won(told, "js_g") == (14, 15)  # the mean of every fold is ahead
    assert won(told, "js_a") == (14, 14)


@pytest.mark.skipif(not COMMITTED.is_dir(), reason="results/ is not beside the tests")
def test_runs_ahead_are_counted_one_by_one():
    verdict = item("histopathology").verdict(COMMITTED.parent)
    assert "JS-G ahead in 14 of 15 runs; JS-A ahead in 15 of 15 runs" in verdict.sentence
    assert verdict.size is Badge.PARTLY


def test_folds_without_answers_are_counted_in_every_run(results):
    def keep(told, kept=True):
        told["at_best"]["test"]["mean"].pop("right", None)
        if kept:
            told["at_best"]["test"]["mean"]["right"] = "00"

    def lacks():
        missing = item("confusion").verdict(results).missing
        return [lack for lack in missing if lack.startswith("bootstrap")]

    for name in ("kl", "js_g", "js_a"):
        for path in (results / FOLDER / "histopathology").glob(f"{name}-seed*/*.json"):
            path.unlink()
        for fold in (1, 2):
            change(results, Place("histopathology", name, fold), keep)
    assert lacks() == []
    last = Place("histopathology", "js_a", 2)  # not the first run of the item, nor of its folder
    change(results, last, lambda told: keep(told, kept=False))
    assert lacks() == ["bootstrap of rows (5 of 6 folds)"]
    further = Place("histopathology", "js_a", 2, tag="seed2").path(results)
    further.parent.mkdir(exist_ok=True)
    shutil.copy(Place("histopathology", "js_a", 1).path(results), further)
    assert lacks() == []


def test_a_strength_above_1_of_a_single_search_decides_nothing(monkeypatch):
    module = item("tuned_cifar10")
    (theirs,) = [row for row in read_settings("paper_cifar10") if row["noise"] == 0.9]
    every = {n: Setting(n, **g) for n, g in theirs.items() if n in ("kl", "js_g", "js_a")}
    for changed, direction in (
        ({}, Badge.YES),
        ({"alpha": 0.9}, Badge.UNDECIDED),
        ({"strength": 2.0}, Badge.UNDECIDED),
        ({"strength": 0.5}, Badge.NO),
    ):
        found = every | {"js_a": replace(every["js_a"], **changed)}
        monkeypatch.setattr(module, "tuned", lambda results, experiment, found=found: found)
        monkeypatch.setattr(module, "searched", lambda results, experiment: {"kl": [{}]})
        assert module.verdict(Path("nowhere")).direction is direction


def test_false_negatives_are_a_share_of_those_of_kl(results):
    counts = {"kl": (100, 100), "js_g": (88, 89), "js_a": (87, 87)}
    matrices = {n: [[[900, 0], [c, 300 - c]] for c in each] for n, each in counts.items()}
    set_test(results, "histopathology", None, matrices, "confusion")
    verdict = item("confusion").verdict(results)
    assert "fewer missed by JS-G +11.5 [+5.1, +17.9] % (ahead; published +11.7)" in verdict.sentence
    assert "fewer missed by JS-A +13.0 [+13.0, +13.0] % (ahead; published" in verdict.sentence
    assert (verdict.direction, verdict.size) == (Badge.YES, Badge.PARTLY)
    assert "fewer missed by λKL" in verdict.sentence


def test_cifar100_judges_nothing_by_a_single_fold(results):
    accuracies = {"kl": (0.22,), "js_g": (0.40,), "js_a": (0.42,)}
    set_test(results, "cifar100", 0.5, accuracies)
    verdict = item("cifar100").verdict(results)
    assert verdict.outcome is Outcome.UNDECIDED
    assert "JS-G over KL +18.00 [no interval] points (undecided; published +1.70)" in (
        verdict.sentence
    )
    assert verdict.n == 1


def test_times_are_paired_by_epoch_and_shown_as_ratios(results, tmp_path):
    for name, seconds in (("kl", 2.0), ("js_g", 2.1), ("js_a", 3.2)):

        def edit(told, seconds=seconds):
            lines = [{"seconds": seconds * (1 + k / 1000)} for k in range(6)]
            told.update(seconds_per_epoch=seconds, history=lines)

        change(results, Place("time-per-epoch", name, 1), edit)
    module = item("time_per_epoch")
    verdict = module.verdict(results)
    assert verdict.outcome is Outcome.REPRODUCED
    assert "extra time of JS-A +60.0 [+60.0, +60.0] % (ahead; published +62.8)" in verdict.sentence
    assert verdict.n == 5
    table, page, _ = module.draw(results, tmp_path)
    rows = {row["divergence"]: row for row in csv.DictReader(table.read_text().splitlines())}
    assert rows["JS-A"]["over KL"] == "1.60"
    assert rows["JS-A"]["published over KL"] == "1.63"
    assert "several runs at a time" not in page.read_text()
    hundredth = Place("time-per-epoch", "js_a", 1)
    change(
        results,
        hundredth,
        lambda told: told.update(history=[{"seconds": 0.02 + k / 1e6} for k in range(6)]),
    )
    assert module.verdict(results).direction is Badge.PARTLY  # JS-G costs as much, JS-A does not
    hardly = [{"seconds": 2.002 * (1 + k / 1000)} for k in range(6)]
    change(results, hundredth, lambda told: told.update(history=hardly))
    assert module.verdict(results).direction is Badge.PARTLY  # a thousandth is no cost
    assert "extra time of JS-A +0.1 [+0.1, +0.1] % (level;" in module.verdict(results).sentence


def test_uncertainty_is_a_mean_over_folds_beside_the_published(results, tmp_path):
    nlls = {"kl": (0.2, 0.4), "js_g": (0.1, 0.1), "js_a": (0.1, 0.1)}
    set_test(results, "histopathology", None, nlls, "nll")
    module = item("uncertainty_metrics")
    assert "test NLL of JS-G below KL +66.7 [" in module.verdict(results).sentence
    table, *_ = module.draw(results, tmp_path)
    rows = {row["divergence"]: row for row in csv.DictReader(table.read_text().splitlines())}
    assert rows["KL, at the mean"]["test NLL"] == "0.3 ± 0.14"
    assert rows["KL, at the mean"]["test loss, published"] == "177.6"
    assert "KL, averaged" in rows
    assert "deterministic, averaged" not in rows  # a point estimate has one prediction


def test_the_authors_protocol_stands_beside_ours_and_a_missing_run_is_a_dash(results, tmp_path):
    module = item("authors_protocol")
    for experiment, values in (
        ("cifar10-paper", (0.39, 0.1, 0.2)),
        ("cifar10-224", (0.3, 0.3, 0.3)),
    ):
        for name, value in zip(("kl", "js_g", "js_a"), values, strict=True):

            def edit(told, value=value):
                for part in ("validation", "test"):
                    told["at_best"][part]["mean"]["accuracy"] = value
                    told["at_best"][part]["averaged"]["accuracy"] = value + 0.01
                told["at_end"]["validation"]["mean"]["accuracy"] = 0.11

            change(results, Place(experiment, name, 1, 0.9), edit)
    for fold, value in ((1, 0.40), (2, 0.42)):

        def edit(told, value=value):
            told["at_best"]["validation"]["mean"]["accuracy"] = value

        change(results, Place("cifar10", "kl", fold, 0.9), edit)
    Place("cifar10-224", "js_a", 1, 0.9).path(results).unlink()
    verdict = module.verdict(results)
    assert verdict.outcome is Outcome.UNDECIDED  # one fold
    said = "KL validates 39.00% with the authors' protocol, 11.00% at the last epoch"
    assert f"{said} (published 39.72%)" in verdict.sentence
    assert "27 of 30 runs" in verdict.missing
    table, page, _ = module.draw(results, tmp_path)
    rows = {row["divergence"]: row for row in csv.DictReader(table.read_text().splitlines())}
    assert list(rows) == ["KL", "JS-G", "JS-A"]
    assert rows["JS-G"]["authors' protocol: test"] == "10.00 / 11.00"
    assert rows["JS-G"]["authors' formulas: test"] == "–"
    assert rows["KL"]["ours: validation"].startswith("41.00 / ")
    assert rows["JS-G"]["ours, 224 px: validation"] == "30.00 / 31.00"
    assert rows["JS-A"]["ours, 224 px: validation"] == "–"
    assert [row["published validation"] for row in rows.values()] == ["39.72", "–", "41.78"]
    assert "8 pixels, 2 epochs, batches of 16" in page.read_text()


def test_the_mechanism_is_judged_by_the_gap_and_shows_the_pull(results, tmp_path):
    for name, gap in (("kl", 0.05), ("js_g", 0.10), ("js_a", 0.20), ("lambda_kl", 0.3)):
        for fold in (1, 2):

            def edit(told, gap=gap + fold / 10_000):
                told["at_end"]["gap"] = gap
                told["at_end"]["pull"]["mean"] = 7.5

            change(results, Place("cifar10", name, fold, 0.9), edit)
    verdict = item("mechanism").verdict(results)
    assert "gap of JS-G below KL on CIFAR-10, noise 0.9 -5.00 [-5.00, -5.00] points (behind)" in (
        verdict.sentence
    )
    assert "gap of λKL 30.0 points on CIFAR-10, noise 0.9, pull 7.5" in verdict.sentence
    assert "the pull on trained weights" not in verdict.missing


def test_what_is_missing_counts_the_papers_plan(results):
    lacks = item("test_accuracy").verdict(results).missing
    assert "123 of 135 runs" in lacks  # 9 noise levels, 5 folds, 3 losses; 2 levels of 2 folds here
    assert {"224 pixels (8)", "50 epochs (2)", "TPE (even spread)"} <= set(lacks)


def test_tuned_settings_stand_beside_the_papers_and_can_be_read_back(made, tmp_path):
    table, _, _, settings = item("tuned_cifar10").draw(made, tmp_path)
    rows = [tuple(row) for row in csv.reader(table.read_text().splitlines())]
    assert ("JS-A", "paper, noise 0.9", "0.5792", "100000", "1e-05", "rho = -10", "–", "–") in rows
    assert ("JS-G", "paper, noise 0.1", "0.004", "1", "0.0001", "rho = -10", "–", "–") in rows
    (ours,) = [row for row in rows if row[:2] == ("JS-A", "ours")]
    assert ours[2:6] == ("0.5", "1", "0.003", "0.02")
    (read,) = yaml.safe_load(settings.read_text())
    for name, values in read.items():
        assert Setting(name, **values) == images_results.tuned(made, "cifar10-tuning")[name]
    verdict = item("tuned_histopathology").verdict(made)
    assert "JS-A α 0.5 (0.0729), JS-A λ 1 (100), JS-A rate 0.003 (0.0001)" in verdict.sentence
    assert verdict.outcome is Outcome.NOT  # λ is 1, that of the paper 100


@pytest.mark.skipif(not COMMITTED.is_dir(), reason="results/ is not beside the tests")
@pytest.mark.parametrize("data", ["cifar10", "histopathology"])
def test_our_settings_are_those_that_the_committed_searches_found(data):
    (row,) = read_settings(f"ours_{data}")
    assert row.pop("noise", None) == (0.9 if data == "cifar10" else None)
    best = images_results.tuned(COMMITTED.parent, f"{data}-tuning")
    assert {name: Setting(name, **values) for name, values in row.items()} == best


def test_a_search_asks_for_its_refinement_too(results):
    missing = item("tuned_cifar10").NEEDS.missing(results)
    assert "cifar10-tuning: KL (near1), fold 1, noise 0.9" in missing
    assert "cifar10-tuning: KL (0), fold 1, noise 0.9" not in missing


def test_a_run_that_never_trained_is_left_out(results, tmp_path):
    def edit(told):
        told.update(diverged=True, diverged_epoch=1, history=[], at_best=None, at_end=None)

    change(results, Place("cifar10", "js_g", 1, 0.9), edit)
    item("training_curves").draw(results, tmp_path)
    told = images_results.folds(results, "cifar10", "js_g", 0.9)
    assert [each["fold"] for each in told] == [2]


def test_a_quick_item_trains_a_toy_that_says_so(tmp_path, monkeypatch):
    whole = images_running.toy

    def smaller(plan):
        protocol = replace(TINY, epochs=1, batch_size=512)
        return replace(whole(plan), protocol=protocol, folds=(1,), noises=plan.noises[:1])

    monkeypatch.setattr(images_running, "toy", smaller)
    lines = []
    module = item("cifar100")
    module.NEEDS.compute(tmp_path, Effort.QUICK, lines.append)
    assert not any("fold 1" in each for each in module.NEEDS.missing(tmp_path))
    assert images_running.is_toy(tmp_path)
    assert "cifar100-folds: 5 runs to do" in lines
    module.draw(tmp_path, tmp_path)
    assert module.verdict(tmp_path).outcome is not Outcome.OPEN
