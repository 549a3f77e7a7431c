"""Image experiments: one run in all its parts, plans, resuming, what a search found."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.ndimage import map_coordinates
from sklearn.metrics import confusion_matrix, log_loss, roc_auc_score
from torch.distributions import Categorical, Normal, kl_divergence
from torch.nn.functional import softplus

from bayesdiv import KL, Predictive
from bayesdiv.app import runs
from bayesdiv.app.data.splits import DataError, Part, Splits
from bayesdiv.app.nets.images import small_stem
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.training.batches import Batches
from reproduction.contenders import CONTENDERS
from reproduction.images import assessing, comparing, inputs
from reproduction.images import protocol as images_protocol
from reproduction.images import results as images_results
from reproduction.images import running as images_running
from reproduction.images.data import parts
from reproduction.images.inputs import Execution
from reproduction.images.plans import PLANS, Job, needed, plan, toy
from reproduction.images.protocol import PAPER, PAPER_START, SEARCHES, Protocol, Setting
from reproduction.images.results import Place
from reproduction.images.running import Machine, Queue
from reproduction.images.searching import candidates, refined
from reproduction.images.training import Training, build, run
from reproduction.intervals import row_variance

CPU = torch.device("cpu")
TINY = Protocol(
    pixels=8, stem=small_stem, width=4, batch_size=16, epochs=2, test_samples=3, averaged_every=2
)


def tiny_data(classes=2, seed=0):
    """Stripes across or down, with noise: 40 to train, 20 to validate, 20 to test."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(80) % classes
    x = 0.3 * torch.randn(80, 3, 8, 8, generator=generator)
    x[y == 0, :, ::2, :] += 1
    x[y == 1, :, :, ::2] += 1
    cuts = (slice(0, 40), slice(40, 60), slice(60, 80))
    return Splits(*(Part(x[some], y[some]) for some in cuts), Classification(("a", "b")))


def first_setting(name, **changes):
    return replace(Setting(name, **SEARCHES[name].first), learning_rate=3e-3, **changes)


@pytest.mark.parametrize("name", SEARCHES)
def test_every_contender_gives_a_whole_result_that_json_can_hold(name):
    told = run(tiny_data(), first_setting(name), TINY, seed=1)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert [line["epoch"] for line in told["history"]] == [1, 2]
    assert told["history"][0]["validation_accuracy_averaged"] is None
    assert 0 <= told["history"][1]["validation_accuracy_averaged"] <= 1
    assert told["sizes"] == {"train": 40, "validation": 20, "test": 20}
    for at in ("at_best", "at_end"):
        for way in ("mean", "averaged"):
            test = told[at]["test"][way]
            assert sum(map(sum, test["confusion"])) == 20
            assert {"accuracy", "nll", "loss", "ece", "auc", "roc", "false_negatives"} <= set(test)
    assert told["diverged"] is False
    assert {"hardware", "torch", "date", "version", "seed"} <= told.keys()


def test_a_run_learns_and_its_seed_repeats_it():
    setting, protocol = first_setting("js_a"), replace(TINY, epochs=6)
    told = run(tiny_data(), setting, protocol, seed=3)
    assert told["at_end"]["test"]["mean"]["accuracy"] > 0.9
    again = run(tiny_data(), setting, protocol, seed=3)
    other = run(tiny_data(), setting, protocol, seed=4)

    def nlls(one):
        return [line["nll"] for line in one["history"]]

    assert nlls(told) == nlls(again) != nlls(other)


def test_the_best_epoch_is_the_first_highest_and_its_parameters_come_back():
    protocol = replace(TINY, epochs=5)
    told = run(tiny_data(classes=4), first_setting("kl"), protocol, seed=1)
    seen = [line["validation_accuracy"] for line in told["history"]]
    assert told["best_epoch"] == 1 + seen.index(max(seen))
    assert told["best_epoch"] < 5  # else this would test nothing
    assert told["at_best"]["validation"]["mean"]["accuracy"] == max(seen)
    assert told["at_end"]["validation"]["mean"]["accuracy"] == seen[-1]
    best = told["history"][told["best_epoch"] - 1]
    assert told["at_best"]["validation"]["mean"]["nll"] == pytest.approx(best["validation_nll"])
    gap = told["at_best"]["train_accuracy"] - max(seen)
    assert told["at_best"]["gap"] == pytest.approx(gap)


def test_a_run_that_diverges_says_when():
    lines = []
    told = run(tiny_data(), first_setting("kl", start=1e25), TINY, tell=lines.append)
    assert told["diverged"] is True
    assert told["diverged_epoch"] == 1
    assert told["history"] == []
    assert told["at_best"] is told["at_end"] is told["best_epoch"] is None
    assert lines == ["diverged in epoch 1"]
    json.dumps(told, allow_nan=False)


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(5, 300, 2))
    y = rng.integers(0, 2, 300)
    predictive = Predictive(Categorical(logits=torch.from_numpy(logits)))
    told = assessing.scores(predictive, torch.from_numpy(y), penalised=600.0)
    each = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    mean = each.mean(0)
    called = mean.argmax(-1)
    assert told["accuracy"] == pytest.approx((called == y).mean())
    assert told["nll"] == pytest.approx(log_loss(y, mean))
    assert told["loss"] == pytest.approx(2.0 + log_loss(y, mean))
    assert told["confusion"] == confusion_matrix(y, called).tolist()
    assert told["false_negatives"] == ((y == 1) & (called == 0)).sum()
    assert told["auc"] == pytest.approx(roc_auc_score(y, mean[:, 1]), abs=1e-6)
    confidence = mean.max(-1)
    bins = np.ceil(confidence * 15) - 1
    error = sum(
        (bins == k).mean() * abs((called == y)[bins == k].mean() - confidence[bins == k].mean())
        for k in np.unique(bins)
    )
    assert told["ece"] == pytest.approx(error)


def test_a_kept_roc_curve_is_short_and_spans_the_square():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 5000, 2, generator=generator)
    y = torch.arange(5000) % 2
    curve = assessing.scores(Predictive(Categorical(logits=logits)), y, 0.0)["roc"]
    for side in curve.values():
        assert len(side) == assessing.ROC_POINTS
        assert (side[0], side[-1]) == (0.0, 1.0)
        assert side == sorted(side)


def test_the_penalty_is_the_sum_over_weights_that_torch_computes():
    training = build(tiny_data(), first_setting("kl"), TINY, Execution())
    posterior, prior = training.model.posterior, training.model.p()
    expected = kl_divergence(Normal(posterior.loc, softplus(posterior.rho)), prior).double().sum()
    assert assessing.penalty(training) == pytest.approx(expected.item(), rel=1e-5)
    plain = build(tiny_data(), first_setting("deterministic"), TINY, Execution())
    assert assessing.penalty(plain) == 0.0


def test_the_pull_is_the_slope_of_the_penalty_by_the_means():
    training = build(tiny_data(), first_setting("kl", strength=0.3), TINY, Execution())
    loc, prior = training.model.posterior.loc.detach(), training.model.p()
    wanted = (0.3 * loc.abs() / prior.scale**2).double().numpy()
    found = assessing.pull(training)
    assert found["mean"] == pytest.approx(wanted.mean(), rel=1e-4)
    ends = [found[key] for key in ("low", "median", "high")]
    assert ends == pytest.approx(np.quantile(wanted, [0.1, 0.5, 0.9]), rel=1e-3)
    plain = build(tiny_data(), first_setting("deterministic"), TINY, Execution())
    assert assessing.pull(plain)["mean"] == 0.0


def test_a_result_keeps_which_test_rows_were_called_right():
    told = run(tiny_data(), first_setting("kl"), TINY, seed=1)
    mean = told["at_best"]["test"]["mean"]
    packed = np.frombuffer(bytes.fromhex(mean["right"]), dtype=np.uint8)
    assert np.unpackbits(packed, count=20).mean() == pytest.approx(mean["accuracy"])
    assert comparing.answers(told, "right").mean() == pytest.approx(mean["accuracy"])
    assert "right" not in told["at_best"]["validation"]["mean"]
    missed, found = mean["confusion"][1]
    assert comparing.answers(told, "found").tolist().count(1.0) == found
    assert len(comparing.answers(told, "found")) == missed + found
    assert 1 - comparing.answers(told, "found").mean() == pytest.approx(comparing.MISSED.of(told))


def in_training(setting, protocol):
    return Training(build(tiny_data(), setting, protocol, Execution()), tiny_data(), seed=0)


def test_an_epoch_leaves_out_what_fills_no_batch_and_keeps_the_order_if_asked():
    batches = in_training(first_setting("kl"), TINY).batches
    assert len(batches) == 2  # of 16 each, 8 of the 40 images wait for another epoch
    taken = torch.cat(list(batches.places())).tolist()
    assert len(set(taken)) == 32
    assert taken != sorted(taken)
    kept = replace(TINY, order=images_protocol.in_order)
    batches = in_training(first_setting("kl"), kept).batches
    assert torch.cat(list(batches.places())).tolist() == list(range(32))
    assert [len(y) for _, y in batches] == [16, 16]


def test_the_learning_rate_follows_its_schedule():
    training = in_training(first_setting("kl"), replace(TINY, epochs=4))
    rates = []
    for _ in range(8):
        rates.append(float(training.optimizer.param_groups[0]["lr"]))
        training.optimizer.step()
        training.schedule.step()
    expected = [3e-3 * 0.5 * (1 + math.cos(math.pi * step / 8)) for step in range(8)]
    assert rates == pytest.approx(expected)
    assert images_protocol.constant(30, 50) == 1.0


def test_the_training_accuracy_is_the_share_called_right_at_the_drawn_weights():
    """Without noise or updates it is that of the network as it stands."""
    setting = replace(first_setting("deterministic"), learning_rate=1e-12)
    training = in_training(setting, replace(TINY, batch_size=40, epochs=1))
    (line,) = training.epochs()
    at_mean = assessing.predicted(training.network, tiny_data().train)
    assert line.accuracy == pytest.approx(assessing.accuracy(at_mean, tiny_data().train.y))
    assert line.nll == pytest.approx(assessing.nll(at_mean, tiny_data().train.y), rel=1e-5)
    assert line.divergence == 0.0


def test_predictions_average_probabilities_of_draws_that_are_always_alike():
    training = build(tiny_data(), first_setting("kl", start=0.5), TINY, Execution())
    part = tiny_data().test
    one = assessing.predicted(training, part, 3)
    torch.manual_seed(99)
    two = assessing.predicted(training, part, 3)
    torch.testing.assert_close(one.probabilities, two.probabilities, rtol=0, atol=0)
    assert one.samples == 3
    at_mean = assessing.predicted(training, part)
    assert at_mean.samples == 1
    with torch.no_grad():
        expected = training.model.with_weights(training.model.loc, part.x)
    torch.testing.assert_close(at_mean.conditional.logits, expected.log_softmax(-1)[None])


def test_patches_are_complemented_and_resized_and_noise_is_left_alone():
    patches = torch.full((2, 3, 50, 50), 204, dtype=torch.uint8)
    found = inputs.seen(patches, 64, Execution())
    assert found.shape == (2, 3, 64, 64)
    torch.testing.assert_close(found, torch.full_like(found, 0.2))
    noisy = torch.randn(2, 3, 8, 8)
    assert torch.equal(inputs.seen(noisy, 8, Execution()), noisy)


def test_a_complement_is_that_of_the_paper():
    every = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    expected = [(255 - p) / 255 for p in range(256)]
    for dtype, error in ((torch.float32, 1e-6), (torch.bfloat16, 2**-8)):
        found = inputs.seen(every, 16, Execution(dtype))
        assert found.flatten().tolist() == pytest.approx(expected, abs=error)


@pytest.mark.parametrize("size", [64, 50, 20])
def test_a_resized_image_is_interpolated_linearly_between_the_centres_of_pixels(size):
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    at = (np.arange(size) + 0.5) * 32 / size - 0.5
    places = np.stack(np.meshgrid(at, at, indexing="ij"))
    found = inputs.seen(x, size, Execution())
    for image, expected in zip(found.flatten(0, 1), x.flatten(0, 1), strict=True):
        oracle = map_coordinates(expected.numpy(), places, order=1, mode="nearest")
        np.testing.assert_allclose(image.numpy(), oracle, atol=1e-5)


def test_a_run_with_channels_last_learns_the_same():
    protocol = replace(TINY, epochs=8)
    plain = run(tiny_data(), first_setting("js_a"), protocol, seed=3)
    execution = Execution(images=torch.channels_last)
    told = run(tiny_data(), first_setting("js_a"), protocol, seed=3, execution=execution)
    for one in (plain, told):
        assert one["at_end"]["test"]["mean"]["accuracy"] > 0.9
    assert (plain["execution"]["kernels"], told["execution"]["kernels"]) == (
        "as_stored",
        "channels_last",
    )


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_images_resized_once_are_those_resized_in_each_step(memory, monkeypatch):
    pixels = torch.randint(256, (40, 3, 6, 6), generator=torch.Generator().manual_seed(0))
    part = Part(pixels.to(torch.uint8), torch.arange(40) % 2)
    execution = Execution(images=memory)
    data = Splits(part, part, part, Classification(("a", "b")))
    kept = inputs.shown(data, TINY, execution)
    at = torch.tensor([7, 0, 39])
    wanted = inputs.seen(part.x[at], TINY.pixels, execution)
    found, _ = Batches(kept.train.x, kept.train.y, 3).gathered(at)
    torch.testing.assert_close(found, wanted)
    assert found.is_contiguous(memory_format=memory)
    monkeypatch.setattr(inputs, "ROOM", 1000)
    assert (
        inputs.shown(Splits(part, part, part, Classification(("a", "b"))), TINY, execution).train.x
        is part.x
    )


def test_the_papers_start_is_rho_minus_ten():
    protocol = replace(PAPER, pixels=8, width=4)
    setting = Setting("kl", start=PAPER_START)
    model = build(tiny_data(), setting, protocol, Execution()).model
    torch.testing.assert_close(model.posterior.rho, torch.full_like(model.posterior.rho, -10.0))
    assert model.p().scale.item() == pytest.approx(0.1)
    assert protocol.told()["prior"] == "SameScale(scale=0.1)"
    assert protocol.told()["order"] == "in_order"


def test_a_setting_must_name_a_contender_and_its_alpha():
    with pytest.raises(ValueError, match=r"contender must be one of kl, .* got 'kll'"):
        Setting("kll")
    with pytest.raises(ValueError, match="alpha must be given for js_a, got None"):
        Setting("js_a")


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_tries_as_many_settings_of_every_contender_within_its_ranges(name):
    tried = list(candidates(Path(), name).values())
    assert len(set(tried)) == 5
    assert tried[0] == Setting(name, **SEARCHES[name].first)
    for setting in tried:
        for key, (low, high) in SEARCHES[name].ranges.items():
            assert low <= getattr(setting, key) <= high
    if name == "kl":
        assert {setting.strength for setting in tried} == {1.0}
    if name == "deterministic":
        assert {setting.strength for setting in tried} == {0.0}


def write_result(results, place, accuracies, setting, **changes):
    told = {
        "setting": setting.__dict__,
        "diverged": False,
        "history": [{"validation_accuracy": value} for value in accuracies],
        "data": "cifar10",
    }
    runs.write_json(place.path(results), {**told, **changes})


def test_the_tuned_setting_has_the_highest_validation_accuracy_of_those_that_ended(tmp_path):
    settings = [Setting("kl", learning_rate=rate) for rate in (1e-4, 2e-4, 3e-4)]
    for tag, (setting, values, diverged) in enumerate(
        zip(settings, ([0.1, 0.5], [0.6, 0.2], [0.9]), (False, False, True), strict=True)
    ):
        place = Place("cifar10-tuning", "kl", 1, 0.9, str(tag))
        write_result(tmp_path, place, values, setting, diverged=diverged)
    write_result(
        tmp_path, Place("cifar10-tuning", "js_a", 1, 0.9, "0"), [0.3], Setting("js_a", alpha=0.5)
    )
    best = images_results.tuned(tmp_path, "cifar10-tuning")
    assert best == {"kl": settings[1], "js_a": Setting("js_a", alpha=0.5)}


def test_a_plan_that_needs_a_search_says_so(tmp_path):
    with pytest.raises(runs.RunError, match="must hold a search of kl, got none"):
        plan("cifar10-folds").jobs(tmp_path)


def test_a_plan_must_be_known():
    with pytest.raises(ValueError, match=r"a plan must be one of cifar10-tuning, .* got 'mnist'"):
        plan("mnist")


def test_every_plan_has_a_file_of_its_own_for_each_run(tmp_path):
    for experiment, noise in (
        *(("cifar10-tuning", 0.9), ("cifar100-tuning", 0.5), ("histopathology-tuning", None)),
    ):
        for name in SEARCHES:
            setting = Setting(name, **SEARCHES[name].first)
            write_result(tmp_path, Place(experiment, name, 1, noise, "0"), [0.5], setting)
    for whole in PLANS.values():
        jobs = whole.jobs(tmp_path)
        assert len({job.place.path(tmp_path) for job in jobs}) == len(jobs) > 0
        if not whole.experiment.endswith("-tuning"):
            assert {job.place for job in jobs} == set(whole.places())


def test_the_papers_plan_has_its_settings():
    jobs = {job.place.contender: job for job in plan("cifar10-paper").jobs(Path())}
    assert jobs["js_a"].setting == Setting("js_a", 1e-5, 1e5, 0.5792, PAPER_START)
    assert jobs["js_g"].setting == Setting("js_g", 1e-3, 1.0, 0.7584, PAPER_START)
    assert jobs["kl"].setting == Setting("kl", 1e-3, 1.0, None, PAPER_START)
    assert jobs["kl"].protocol == replace(PAPER, pixels=64, epochs=25)


def test_folds_share_no_image_between_their_parts():
    def rows(part):
        return {tuple(image.flatten().tolist()) for image in part.x}

    validations = []
    for fold in (1, 2):
        place = Place("cifar10", "kl", fold, 0.9)
        train, validation, test = map(rows, parts("digits", place, None, CPU).parts)
        assert not train & validation
        assert not train & test
        assert not validation & test
        assert len(train) + len(validation) + len(test) == 1797
        validations.append(validation)
    assert not validations[0] & validations[1]


def tiny_plan(whole):
    """A toy of a toy, for tests."""
    small = toy(whole)
    protocol = replace(small.protocol, epochs=1, batch_size=512, test_samples=1)
    return replace(small, protocol=protocol, contenders=("kl", "js_a"))


def test_a_plan_goes_on_where_it_stopped(tmp_path):
    lines = []
    machine = Machine(CPU)
    names = ["cifar10-tuning"]
    images_running.execute(
        names, tmp_path, replace(machine, limit=0), lines.append, changed=tiny_plan
    )
    assert lines == []  # none was begun
    images_running.execute(names, tmp_path, machine, lines.append, changed=tiny_plan)
    files = sorted(tmp_path.rglob("*.json"))
    assert [file.relative_to(tmp_path).as_posix() for file in files] == [
        f"images/cifar10-tuning/{name}-{tag}/fold1-noise0.9.json"
        for name in ("js_a", "kl")
        for tag in "01"
    ]
    kept = files[1].read_bytes()
    files[0].unlink()
    lines.clear()
    images_running.execute(names, tmp_path, machine, lines.append, changed=tiny_plan)
    assert lines[0] == "cifar10-tuning: 1 runs to do"
    assert lines[-1].startswith("cifar10-tuning: JS-A (0), fold 1, noise 0.9 has validation ")
    assert files[0].exists()
    assert files[1].read_bytes() == kept
    told = runs.read_json(files[0])
    assert (told["fold"], told["noise"], told["data"], told["processes"]) == (1, 0.9, "digits", 1)
    with pytest.raises(runs.RunError, match="must hold either toy or full results"):
        images_running.execute(names, tmp_path, machine, lines.append)


def test_a_run_that_fails_does_not_stop_the_others():
    bad = Job(Place("cifar10", "kl", 7), "digits", Setting("kl"), TINY)
    good = replace(bad, place=Place("cifar10", "kl", 1), protocol=replace(TINY, epochs=1))
    lines, finished = [], []
    computed = images_running.computed(
        Queue({"any": lambda: [bad, good]}), Machine(CPU), lines.append
    )
    with pytest.raises(RuntimeError, match="1 of 2 runs failed, the first: cifar10: KL, fold 7"):
        finished.extend(job for job, _ in computed)
    assert finished == [good]
    assert any("fold must lie between 1 and 5, got 7" in line for line in lines)


def test_a_queue_hands_out_what_needs_nothing_while_a_search_ends():
    def jobs(name, count):
        places = [Place(name, "kl", fold) for fold in range(1, count + 1)]
        return [Job(place, "digits", Setting("kl"), TINY) for place in places]

    listed = []
    search, folds, other = jobs("search", 2), jobs("folds", 1), jobs("other", 1)
    queue = Queue(
        {
            "search": lambda: search,
            "folds": lambda: listed.append("folds") or folds,
            "other": lambda: other,
        },
        {"folds": ["search", "a plan that is not run"]},
    )
    assert [queue.take() for _ in range(4)] == [*search, *other, None]
    queue.ended(search[1])
    assert queue.take() is None
    assert listed == []  # their settings are not known before
    queue.ended(search[0])
    assert [queue.take(), queue.take()] == [*folds, None]


def test_a_refined_search_stays_near_the_best_and_inside_the_ranges(tmp_path):
    best = Setting("js_a", 1e-3, 0.3, 0.9, 0.1)
    write_result(tmp_path, Place("cifar10-tuning", "js_a", 1, 0.9, "0"), [0.5], best)
    write_result(
        tmp_path, Place("cifar10-tuning", "js_a", 1, 0.9, "1"), [0.4], Setting("js_a", alpha=0.1)
    )
    found = refined(tmp_path, "js_a")
    assert list(found) == ["near1", "near2"]
    assert refined(tmp_path, "kl") == {}
    for setting in found.values():
        assert setting != best
        assert 10**-3.2 <= setting.learning_rate <= 1e-3
        assert 0.3 / 100**0.2 - 0.01 <= setting.strength <= 0.3 * 100**0.2
        assert 0.72 <= setting.alpha <= 0.95


def test_needs_of_needs_come_first():
    assert needed("cifar10-noise") == [
        "cifar10-tuning",
        "cifar10-refined",
        "cifar10-folds",
    ]


@pytest.mark.slow
def test_several_processes_compute_the_same_results():
    jobs = tiny_plan(plan("cifar10-tuning")).jobs(Path())
    alone, together = (
        dict(images_running.computed(Queue({"any": lambda: jobs}), Machine(CPU, processes)))
        for processes in (1, 2)
    )
    assert alone.keys() == together.keys()
    for job in jobs:
        one, two = (each[job]["history"][0]["nll"] for each in (alone, together))
        assert one == pytest.approx(two, rel=1e-4)


def test_what_computes_needs_no_package_of_the_command_line():
    blocked = ("rich", "optuna", "matplotlib", "yaml")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked!r})); "
        "import reproduction.running, reproduction.images.running"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_set_of_images_must_be_known():
    with pytest.raises(DataError, match=r"data must be one of cifar10, .* got 'mnist'"):
        parts("mnist", Place("cifar10", "kl", 1), None, CPU)


def test_time_is_measured_of_the_three_losses_of_the_paper():
    assert plan("timing").contenders == ("kl", "js_g", "js_a")


def told(fold, value, diverged=False):
    test = {"mean": {"accuracy": value}}
    best = None if diverged else {"test": test}
    return {"fold": fold, "diverged": diverged, "at_best": best, "sizes": {"test": 100}}


def test_differences_are_paired_by_fold():
    ones = [told(1, 0.5), told(2, 0.7), told(3, 0.9)]
    others = [told(2, 0.6), told(1, 0.5)]
    found = comparing.ahead(ones, others)
    wanted = stats.ttest_rel([0.5, 0.7], [0.5, 0.6]).confidence_interval(0.95)
    assert found == pytest.approx((0.05, *wanted, 2))
    assert comparing.ahead(ones[:1], others) == (0.0, -math.inf, math.inf, 1)
    assert comparing.ahead(ones, []) is None


def test_a_run_that_diverged_is_the_worst_result():
    kl = [told(fold, 0.4 + fold / 100) for fold in range(1, 6)]
    js = [told(fold, 0.5, diverged=fold > 1) for fold in range(1, 6)]
    found = comparing.ahead(js, kl)
    assert found.n == 5
    assert found.high < 0
    assert comparing.by_fold(js[1:], comparing.MISSED) == {2: 1.0, 3: 1.0, 4: 1.0, 5: 1.0}


def test_seeds_of_a_fold_are_averaged_before_folds_are_compared():
    ones = [told(1, 0.5), told(1, 0.7), told(2, 0.8)]
    assert comparing.by_fold(ones, comparing.ACCURACY) == pytest.approx({1: 0.6, 2: 0.8})


def test_answers_per_row_widen_the_interval_by_the_bootstrap_of_the_rows():
    rng = np.random.default_rng(0)
    right = rng.random((4, 100)) < [[0.5], [0.55], [0.7], [0.75]]
    runs_ = []
    for fold, bits in zip((1, 2, 1, 2), right, strict=True):
        run_ = told(fold, bits.mean())
        run_["at_best"]["test"]["mean"]["right"] = np.packbits(bits).tobytes().hex()
        runs_.append(run_)
    found = comparing.ahead(runs_[2:], runs_[:2])
    rows = (right[2:].astype(float) - right[:2]).mean(0)
    again = stats.bootstrap((rows,), np.mean, n_resamples=9999, random_state=0).standard_error
    differences = right[2:].mean(1) - right[:2].mean(1)
    variance = differences.var(ddof=1) / 2 + again**2
    assert found.high - found.mean == pytest.approx(
        stats.t.ppf(0.975, 1) * math.sqrt(variance), rel=0.02
    )


def answered(fold, bits):
    run_ = told(fold, bits.mean())
    if bits.size == 100:
        run_["at_best"]["test"]["mean"]["right"] = np.packbits(bits).tobytes().hex()
    return run_


def test_folds_that_keep_answers_stand_for_those_that_do_not():
    """Two of four folds keep them, one of these with two seeds, whose answers are averaged."""
    rng = np.random.default_rng(1)
    right = rng.random((6, 100)) < 0.5
    kl = [answered(fold, right[0]) for fold in (1, 2)] + [told(3, 0.5), told(4, 0.52)]
    js = [answered(fold, right[fold]) for fold in (1, 2)] + [told(3, 0.6), told(4, 0.5)]
    js.append(answered(1, right[3]))
    found = comparing.ahead(js, kl)
    seeds = right[[1, 3]].mean(0) - right[0], right[2].astype(float) - right[0]
    own = comparing.by_fold(js, comparing.ACCURACY), comparing.by_fold(kl, comparing.ACCURACY)
    differences = [own[0][fold] - own[1][fold] for fold in (1, 2, 3, 4)]
    variance = np.var(differences, ddof=1) / 4 + row_variance(np.stack(seeds), 4)
    wanted = stats.t.ppf(0.975, 3) * math.sqrt(variance)
    assert found.high - found.mean == pytest.approx(wanted)
    none = comparing.ahead(js[2:4], kl[2:4])
    assert none.high - none.mean == pytest.approx(stats.t.ppf(0.975, 1) * 0.06)
    patients = [run_ | {"tag": "by-patient"} for run_ in js]
    assert comparing.of_rows(patients, kl, [1, 2, 3, 4], comparing.ACCURACY) == 0.0


def fitted(fold, nll, diverged=False):
    run_ = told(fold, 0.5)
    return run_ | {"history": [{"nll": nll}], "best_epoch": 1, "diverged": diverged}


@pytest.mark.parametrize(("lost", "ahead"), [("kl", False), ("js_g", False), (None, True)])
def test_a_diverged_run_never_makes_the_claim_on_the_training_nll_true(lost, ahead):
    js = [fitted(fold, 0.4 + fold / 1000, lost == "js_g") for fold in range(1, 6)]
    kl = [fitted(fold, 0.3, lost == "kl") for fold in range(1, 6)]
    found = comparing.ahead(js, kl, comparing.TRAINING_NLL)
    assert (found.low > 0) is ahead
    assert (found.high < 0) is not ahead


def test_the_divergence_of_alpha_zero_is_kl():
    assert CONTENDERS["kl"].divergence(0.0) == KL()
