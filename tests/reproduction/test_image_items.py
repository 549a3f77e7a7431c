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
from bayesdiv.app.data.splits import Splits
from bayesdiv.app.nets.resnet import small_stem
from bayesdiv.app.tasks.classification import Classification
from reproduction.images import results as images_results
from reproduction.images import running as images_running
from reproduction.images.plans import ALL, read_settings
from reproduction.images.protocol import CONTENDERS, Protocol, Setting
from reproduction.images.results import FOLDER, Place
from reproduction.images.training import run
from reproduction.item import Effort, Outcome

FIGURES = (
    *("training_curves", "test_accuracy", "histopathology", "confusion", "deterministic_baseline"),
    *("lambda_kl_baseline", "unmodified_js", "cifar100", "loss_evolution"),
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
    data = Splits.at(x, y, cuts, Classification(("a", "b")))
    setting = replace(Setting(name, **CONTENDERS[name].first), learning_rate=3e-3)
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
        yield Place("timing", name, 1)
        yield Place("cifar10-tuning", name, 1, 0.9, "0")
        yield Place("histopathology-tuning", name, 1, tag="0")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    results = tmp_path_factory.mktemp("results")
    for name in ALL:
        for fold in (1, 2):
            told = tiny_run(name, fold)
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

            change(results, Place(experiment, name, fold, noise), edit)


@pytest.mark.parametrize("name", ITEMS)
def test_without_results_an_item_is_open_and_says_what_is_missing(name, tmp_path):
    module = item(name)
    assert len(module.missing(tmp_path)) >= 3
    assert module.verdict(tmp_path).outcome is Outcome.OPEN
    with pytest.raises(runs.RunError, match="there are no image results in"):
        module.draw(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_is_drawn_and_judged_from_its_results(name, made, tmp_path):
    written = item(name).draw(made, tmp_path)
    assert all(path.exists() for path in written)
    if name in FIGURES:
        assert [path.name for path in written] == [f"{name}.png"]
        assert written[0].read_bytes().startswith(b"\x89PNG")
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
    assert item(name).missing(results)
    if name != "unmodified_js":
        item(name).draw(results, tmp_path / "out")
    if not name.startswith("tuned"):
        assert item(name).verdict(results).outcome is Outcome.OPEN


def test_a_missing_run_is_named(results):
    Place("histopathology", "js_a", 2).path(results).unlink()
    assert "histopathology: JS-A, fold 2" in item("confusion").missing(results)
    assert "histopathology: JS-A, fold 1" not in item("confusion").missing(results)


def test_curves_are_reproduced_where_js_validates_better_on_both_sets(results):
    module = item("training_curves")
    worse = {"kl": (0.40, 0.41), "js_g": (0.39, 0.40), "js_a": (0.38, 0.39)}
    better = {"kl": (0.40, 0.41), "js_g": (0.42, 0.44), "js_a": (0.38, 0.39)}
    set_validation(results, "cifar10", 0.9, worse)
    set_validation(results, "histopathology", None, worse)
    assert module.verdict(results).outcome is Outcome.NOT
    set_validation(results, "cifar10", 0.9, better)
    verdict = module.verdict(results)
    assert verdict.outcome is Outcome.PARTLY
    assert "KL 40.50%, JS-G +2.50 ± 0.50 points over 2 folds" in verdict.sentence
    set_validation(results, "histopathology", None, better)
    assert module.verdict(results).outcome is Outcome.REPRODUCED


def test_accuracy_against_noise_must_grow_ahead_of_kl(results):
    module = item("test_accuracy")
    set_test(
        results, "cifar10", 0.1, {"kl": (0.8, 0.8), "js_g": (0.81, 0.81), "js_a": (0.81, 0.81)}
    )
    set_test(
        results, "cifar10", 0.9, {"kl": (0.4, 0.4), "js_g": (0.43, 0.43), "js_a": (0.42, 0.42)}
    )
    verdict = module.verdict(results)
    assert verdict.outcome is Outcome.REPRODUCED
    assert verdict.sentence.startswith("above KL in 4 of 4 cases: JS-G +3.00 points at noise 0.9")
    set_test(results, "cifar10", 0.9, {"js_a": (0.39, 0.39)})
    assert module.verdict(results).outcome is Outcome.PARTLY
    set_test(results, "cifar10", 0.9, {"js_g": (0.39, 0.39)})
    assert module.verdict(results).outcome is Outcome.NOT


def test_histopathology_asks_for_every_run_and_the_area(results):
    module = item("histopathology")
    accuracies = {"kl": (0.80, 0.81), "js_g": (0.82, 0.83), "js_a": (0.81, 0.84)}
    set_test(results, "histopathology", None, accuracies)
    set_test(
        results,
        "histopathology",
        None,
        {"kl": (0.8,) * 2, "js_g": (0.9,) * 2, "js_a": (0.9,) * 2},
        "auc",
    )
    verdict = module.verdict(results)
    assert verdict.outcome is Outcome.REPRODUCED
    assert "JS-G +2.00 ± 0.00 points over KL, ahead in 2 of 2 runs, area 0.900" in verdict.sentence
    set_test(results, "histopathology", None, {"js_g": (0.82, 0.80)})
    assert module.verdict(results).outcome is Outcome.PARTLY


def test_unseen_patients_are_compared_over_the_folds_that_all_have(results, tmp_path):
    module = item("histopathology")
    patients = {
        "kl": (0.80, 0.81),
        "js_g": (0.79, 0.82),
        "js_a": (0.83, 0.9),
        "deterministic": (0.7, 0.7),
    }
    for name, values in patients.items():
        for fold, value in enumerate(values, start=1):

            def edit(told, value=value):
                told["at_best"]["test"]["mean"]["accuracy"] = value

            change(results, Place("histopathology", name, fold, tag="by-patient"), edit)
    assert "on unseen patients KL 80.50%, JS-G +0.00 ± 1.00, JS-A +6.00 ± 3.00 points (2 folds" in (
        module.verdict(results).sentence
    )
    gone = Place("histopathology", "deterministic", 2, tag="by-patient")
    gone.path(results).unlink()
    verdict = module.verdict(results)
    assert "on unseen patients KL 80.00%, JS-G -1.00 ± " in verdict.sentence
    assert "JS-A +3.00 ± " in verdict.sentence
    assert "points (1 fold that all have)" in verdict.sentence
    assert str(gone) in module.missing(results)
    (written,) = module.draw(results, tmp_path)
    assert written.exists()
    shutil.rmtree(Place("histopathology", "kl", 1, tag="by-patient").path(results).parent)
    assert "unseen patients" not in module.verdict(results).sentence


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


def test_false_negatives_are_compared_with_those_of_kl(results):
    module = item("confusion")
    counts = {"kl": (100, 100), "js_g": (88, 89), "js_a": (87, 87)}
    matrices = {n: [[[900, 0], [c, 300 - c]] for c in each] for n, each in counts.items()}
    set_test(results, "histopathology", None, matrices, "confusion")
    verdict = module.verdict(results)
    assert verdict.outcome is Outcome.REPRODUCED
    assert "against the 100 of KL: JS-G -11.5% ± 0.5% (published -11.7%)" in verdict.sentence
    assert "JS-A -13.0% ± 0.0% (published -12.8%)" in verdict.sentence
    matrices["js_g"] = [[[900, 0], [97, 203]]] * 2
    set_test(results, "histopathology", None, matrices, "confusion")
    assert module.verdict(results).outcome is Outcome.PARTLY


def test_the_deterministic_network_must_end_lower_with_a_larger_gap(results):
    ends = {
        "deterministic": (0.30, 0.60),
        "kl": (0.35, 0.20),
        "js_g": (0.38, 0.08),
        "js_a": (0.1, 0),
    }
    for name, (accuracy, gap) in ends.items():
        for fold in (1, 2):

            def edit(told, accuracy=accuracy, gap=gap):
                told["at_end"]["validation"]["mean"]["accuracy"] = accuracy
                told["at_end"]["gap"] = gap

            change(results, Place("cifar10", name, fold, 0.9), edit)
    verdict = item("deterministic_baseline").verdict(results)
    assert verdict.outcome is Outcome.REPRODUCED
    assert "KL +5.0 points (published +5), gap 67% smaller (published 63%)" in verdict.sentence
    assert "JS-G +8.0 points (published +8), gap 87% smaller (published 86%)" in verdict.sentence


def test_lambda_kl_must_lie_between_kl_and_js(results):
    values = {
        "kl": (0.39, 0.40),
        "lambda_kl": (0.40, 0.41),
        "js_g": (0.3, 0.3),
        "js_a": (0.41, 0.43),
    }
    set_validation(results, "cifar10", 0.9, values)
    module = item("lambda_kl_baseline")
    assert module.verdict(results).outcome is Outcome.REPRODUCED
    set_validation(results, "cifar10", 0.9, {"lambda_kl": (0.44, 0.45)})
    verdict = module.verdict(results)
    assert verdict.outcome is Outcome.PARTLY
    assert "JS-A 42.00% (-2.50 ± 0.50 over λKL)" in verdict.sentence


def test_modified_divergences_are_compared_with_their_own_unmodified_ones(results):
    values = {"js_a": (0.85, 0.86), "unmodified_js_a": (0.82, 0.83), "js_g": (0.8, 0.8)}
    set_validation(results, "histopathology", None, {**values, "unmodified_js_g": (0.81, 0.82)})
    verdict = item("unmodified_js").verdict(results)
    assert verdict.outcome is Outcome.PARTLY
    assert (
        "JS-A +3.00 ± 0.00 points over the unmodified one (published about +3)" in verdict.sentence
    )
    assert "JS-G -1.50 ± 0.50 points" in verdict.sentence


def test_unmodified_divergences_that_are_the_same_are_told(results):
    same = "both searches chose α = 0.5 for JS-A, where it is the unmodified one"
    assert same in item("unmodified_js").verdict(results).sentence
    place = Place("histopathology", "unmodified_js_a", 2)
    change(results, place, lambda told: told["setting"].update(alpha=0.4))
    assert "both searches chose" not in item("unmodified_js").verdict(results).sentence


def test_cifar100_compares_single_runs_by_the_error_of_a_share(results):
    accuracies = {"kl": (0.22,), "js_g": (0.40,), "js_a": (0.23,)}
    set_test(results, "cifar100", 0.5, accuracies)
    verdict = item("cifar100").verdict(results)
    assert verdict.outcome is Outcome.PARTLY  # a point more is within the error of 20 images
    assert "JS-G 40.00% (+18.00 ± 10.95 points)" in verdict.sentence


def test_cifar100_tells_of_the_deterministic_network_at_its_best_and_at_its_end(results, tmp_path):
    accuracies = {"kl": (0.2,), "js_g": (0.21,), "js_a": (0.23,), "deterministic": (0.25,)}
    set_test(results, "cifar100", 0.5, accuracies)

    def edit(told):
        told["at_end"]["test"]["mean"]["accuracy"] = 0.19

    change(results, Place("cifar100", "deterministic", 1, 0.5), edit)
    module = item("cifar100")
    told = "a deterministic network has 25.00% at its best epoch, +2.00 points over JS-A"
    assert f"{told}, and 19.00% at the last one" in module.verdict(results).sentence
    place = Place("cifar100", "deterministic", 1, 0.5)
    change(results, place, lambda told: told.update(at_end=None))
    assert module.verdict(results).sentence.endswith(told)
    module.draw(results, tmp_path)
    place.path(results).unlink()
    assert "deterministic" not in module.verdict(results).sentence
    assert module.missing(results) == [str(place)]


def test_parts_of_the_loss_are_judged_by_three_claims(results):
    set_test(
        results,
        "histopathology",
        None,
        {"kl": (0.3, 0.3), "js_g": (0.2, 0.2), "js_a": (0.2, 0.2)},
        "nll",
    )
    for name, value in (("kl", 0.1), ("js_g", 0.15)):
        for fold in (1, 2):

            def edit(told, value=value):
                for line in told["history"]:
                    line["nll"] = value

            change(results, Place("histopathology", name, fold), edit)
    module = item("loss_evolution")
    assert module.verdict(results).outcome is Outcome.REPRODUCED
    set_test(results, "histopathology", None, {"js_a": (0.4, 0.4)}, "nll")
    assert module.verdict(results).outcome is Outcome.PARTLY


def test_times_are_told_as_ratios_to_kl(results, tmp_path):
    for name, seconds in (("kl", 2.0), ("js_g", 2.1), ("js_a", 2.4)):
        change(
            results,
            Place("timing", name, 1),
            lambda told, seconds=seconds: told.update(seconds_per_epoch=seconds),
        )
    module = item("time_per_epoch")
    verdict = module.verdict(results)
    assert verdict.outcome is Outcome.REPRODUCED
    assert "JS-G 1.05 and JS-A 1.20 times that" in verdict.sentence
    table, page, _ = module.draw(results, tmp_path)
    rows = {row["divergence"]: row for row in csv.DictReader(table.read_text().splitlines())}
    assert rows["JS-A"]["over KL"] == "1.20"
    assert rows["JS-A"]["published over KL"] == "1.63"
    assert "several runs at a time" not in page.read_text()


def test_uncertainty_is_a_mean_over_folds_beside_the_published(results, tmp_path):
    set_test(
        results,
        "histopathology",
        None,
        {"kl": (0.2, 0.4), "js_g": (0.1, 0.1), "js_a": (0.1, 0.1)},
        "nll",
    )
    set_test(
        results,
        "histopathology",
        None,
        {"kl": (0.2, 0.2), "js_g": (0.1, 0.1), "js_a": (0.3, 0.3)},
        "ece",
    )
    module = item("uncertainty_metrics")
    verdict = module.verdict(results)
    assert verdict.outcome is Outcome.PARTLY
    assert "KL NLL 0.3000 (published 0.0810), ECE 0.2000 (0.0323)" in verdict.sentence
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
    gone = Place("cifar10-224", "js_a", 1, 0.9)
    gone.path(results).unlink()
    verdict = module.verdict(results)
    assert verdict.outcome is Outcome.PARTLY  # KL is within two points of 39.72 %, JS-A is not
    assert "KL 39.00% (11.00% at the last epoch, published 39.72%, ours 41.00%)" in verdict.sentence
    assert str(gone) in module.missing(results)
    table, page, _ = module.draw(results, tmp_path)
    rows = {row["divergence"]: row for row in csv.DictReader(table.read_text().splitlines())}
    assert list(rows) == ["KL", "JS-G", "JS-A"]
    assert rows["JS-G"]["authors' protocol: test"] == "10.00 / 11.00"
    assert rows["KL"]["ours: validation"].startswith("41.00 / ")
    assert rows["JS-G"]["ours, 224 px: validation"] == "30.00 / 31.00"
    assert rows["JS-A"]["ours, 224 px: validation"] == "–"
    assert [row["published validation"] for row in rows.values()] == ["39.72", "–", "41.78"]
    assert "8 pixels, 2 epochs, batches of 16" in page.read_text()


@pytest.mark.parametrize(
    ("kl", "js_a", "outcome"),
    [
        (0.4171, 0.3979, Outcome.REPRODUCED),
        (0.4173, 0.3977, Outcome.NOT),
        (0.3771, 0.44, Outcome.NOT),
    ],
)
def test_two_points_decide_whether_the_authors_protocol_is_met(kl, js_a, outcome, results):
    for name, value in (("kl", kl), ("js_a", js_a)):

        def edit(told, value=value):
            told["at_best"]["validation"]["mean"]["accuracy"] = value

        change(results, Place("cifar10-paper", name, 1, 0.9), edit)
    assert item("authors_protocol").verdict(results).outcome is outcome


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
    assert "JS-A α 0.5, λ 1, rate 0.003 (α 0.0729, λ 100, rate 0.0001)" in (
        item("tuned_histopathology").verdict(made).sentence
    )


@pytest.mark.skipif(not COMMITTED.is_dir(), reason="results/ is not beside the tests")
@pytest.mark.parametrize("data", ["cifar10", "histopathology"])
def test_our_settings_are_those_that_the_committed_searches_found(data):
    (row,) = read_settings(f"ours_{data}")
    assert row.pop("noise", None) == (0.9 if data == "cifar10" else None)
    best = images_results.tuned(COMMITTED.parent, f"{data}-tuning")
    assert {name: Setting(name, **values) for name, values in row.items()} == best


def test_a_search_asks_for_its_refinement_too(results):
    missing = item("tuned_cifar10").missing(results)
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
    module.compute(tmp_path, Effort.QUICK, lines.append)
    assert module.missing(tmp_path) == []
    assert images_running.is_toy(tmp_path)
    assert "cifar100: 4 runs to do" in lines
    module.draw(tmp_path, tmp_path)
    assert module.verdict(tmp_path).outcome is not Outcome.OPEN
