"""The harness of the field: its data, peers, scores, one small run of it, and its tables."""

import io
import json
import subprocess
import sys
import tarfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import scipy.ndimage
import torch
from PIL import Image
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn.functional import cross_entropy

from bayesdiv.training.augmentation import Prepare
from benchmarks.field import page, tables
from benchmarks.field.corruptions import CORRUPTIONS, corrupted
from benchmarks.field.data import (
    MEAN,
    SCALE,
    Case,
    Part,
    decoded,
    encoded,
    read,
    training_part,
    tuning_parts,
)
from benchmarks.field.evaluation import Trained, judged, predicted, seen
from benchmarks.field.methods import METHODS
from benchmarks.field.peers import LastLayerLaplace, Swag
from benchmarks.field.run import best, chosen, main
from benchmarks.field.scores import aurc, averaged, far_auroc, scores
from field_toy import write_toy

RESULTS = Path(tables.__file__).parent / "results"


@pytest.fixture
def train() -> Part:
    torch.manual_seed(0)
    x = torch.arange(1000, dtype=torch.float32).expand(3, 32, 32, 1000).permute(3, 0, 1, 2)
    return Part(x, torch.randint(10, (1000,)))


def test_packed_images_come_back_bit_for_bit():
    images = np.random.default_rng(0).integers(0, 256, (20, 3, 32, 32)).astype(np.uint8)
    assert np.array_equal(decoded(encoded(images)), images)


def test_a_folder_without_images_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="must hold field"):
        read(tmp_path)


def test_false_labels_are_others_and_as_many_as_asked_for(train):
    noisy = training_part(train, Case(noise=0.4), seed=0)
    clean = training_part(train, Case(), seed=0)
    assert torch.equal(noisy.x, clean.x)
    assert 0.35 < (noisy.y != clean.y).float().mean() < 0.45
    assert noisy.y.unique().tolist() == list(range(10))
    assert torch.equal(noisy.y, training_part(train, Case(noise=0.4), seed=0).y)


@pytest.mark.parametrize("case", [Case(), Case(images=100), Case(noise=0.2)])
def test_validation_images_are_not_trained_on(train, case):
    inside, outside = (set(part.x[:, 0, 0, 0].tolist()) for part in tuning_parts(train, case, 0))
    assert not inside & outside
    assert len(inside) == (case.images or 800)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_corruption_moves_images_further_as_it_gets_worse(name):
    torch.manual_seed(0)
    rough = torch.rand(40, 3, 6, 6)
    images = nn.functional.interpolate(rough, (32, 32), mode="bilinear")
    away = []
    for severity in range(1, 6):
        changed = corrupted(images, name, severity)
        assert changed.shape == images.shape
        assert changed.min() >= 0
        assert changed.max() <= 1
        assert torch.equal(changed, corrupted(images, name, severity))
        away.append((changed - images).square().mean().item())
    assert away[0] > 0
    # Saturation is first lowered, then raised: only the ends of each are in order.
    pairs = [(0, 1), (2, 4)] if name == "saturate" else [(0, 4)]
    assert all(away[low] < away[high] for low, high in pairs)


def test_gaussian_blur_is_that_of_scipy():
    torch.manual_seed(0)
    images = torch.rand(2, 3, 32, 32)
    blurred = scipy.ndimage.gaussian_filter(
        images.numpy(), sigma=(0, 0, 1.0, 1.0), mode="mirror", radius=(0, 0, 4, 4)
    )
    assert np.allclose(corrupted(images, "gaussian_blur", 5), blurred, atol=1e-5)


def test_jpeg_is_what_a_jpeg_file_keeps():
    torch.manual_seed(0)
    smooth = nn.functional.interpolate(torch.rand(1, 3, 5, 5), (32, 32), mode="bilinear")
    image = (255 * smooth).round().to(torch.uint8)
    file = io.BytesIO()
    pixels = image[0].permute(1, 2, 0).numpy()
    Image.fromarray(pixels).save(file, "JPEG", quality=40, subsampling=0)
    kept = np.asarray(Image.open(file)).astype(float)
    ours = 255 * corrupted(image, "jpeg", 5)[0].permute(1, 2, 0).numpy()
    assert np.abs(ours - kept).mean() < 1.0
    assert np.abs(pixels - kept).mean() > 2 * np.abs(ours - kept).mean()


def test_scores_agree_with_plain_loops_and_scikit_learn():
    torch.manual_seed(0)
    logs, y = torch.randn(50, 4).log_softmax(-1), torch.randint(4, (50,))
    far = (0.3 * torch.randn(40, 4)).log_softmax(-1)
    order = sorted(range(50), key=lambda row: -logs[row].max().item())
    wrong = [int(logs[row].argmax() != y[row]) for row in order]
    risks = [sum(wrong[:kept]) / kept for kept in range(1, 51)]
    assert aurc(logs, y) == pytest.approx(sum(risks) / 50)
    found = scores(logs, y)
    assert found["nll"] == pytest.approx(cross_entropy(logs.double(), y).item())
    entropies = [-(own.exp() * own).sum(-1).double().numpy() for own in (logs, far)]
    wanted = roc_auc_score([0] * 50 + [1] * 40, np.concatenate(entropies))
    assert far_auroc(logs, far) == pytest.approx(wanted)


def test_an_ensemble_is_the_mean_of_probabilities():
    torch.manual_seed(0)
    members = [torch.randn(5, 3).log_softmax(-1).half() for _ in range(3)]
    wanted = torch.stack([member.double().softmax(-1) for member in members]).mean(0)
    assert torch.allclose(averaged(members).exp(), wanted)


def test_swag_draws_have_the_covariance_of_its_formula():
    torch.manual_seed(0)
    model = nn.Linear(3, 1, bias=False).double()
    path = torch.randn(6, 3, dtype=torch.float64) * torch.tensor([1.0, 0.1, 2.0]).double()
    swag = Swag(model, rank=4)
    deviations = []
    for number, weights in enumerate(path, start=1):
        model.weight.data = weights[None].clone()
        swag.collect()
        deviations.append(weights - path[:number].mean(0))
    draws = []
    for _ in range(4000):
        swag.draw()
        draws.append(model.weight.detach().flatten().clone())
    last = torch.stack(deviations[-4:])
    covariance = path.var(0, correction=0).diag() / 2 + last.T @ last / (2 * 3)
    assert torch.allclose(torch.stack(draws).mean(0), path.mean(0), atol=0.1)
    assert torch.allclose(torch.stack(draws).T.cov(), covariance, rtol=0.1, atol=0.05)


def test_the_last_layers_curvature_is_the_hessian_of_the_summed_loss():
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.Tanh())
    model = nn.Sequential(nn.Identity(), nn.Sequential(trunk, nn.Linear(4, 3)))
    x, y = torch.randn(30, 3, 2, 2), torch.randint(3, (30,))
    laplace = LastLayerLaplace(model, Part(x, y))
    features = torch.cat([trunk(x), torch.ones(30, 1)], 1).detach().double()

    def loss(weights: torch.Tensor) -> torch.Tensor:
        return cross_entropy(features @ weights.reshape(3, 5).T, y, reduction="sum")

    hessian = torch.autograd.functional.hessian(loss, laplace.mean.flatten())
    assert torch.allclose(laplace.curvature, hessian, atol=1e-4)


def test_draws_of_the_last_layer_have_the_inverse_curvature_as_covariance():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), nn.Sequential(nn.Flatten(), nn.Linear(2, 2)))
    before = model[1][1].weight.detach().clone()
    laplace = LastLayerLaplace(model, Part(torch.randn(40, 2), torch.zeros(40).long()))
    draw, draws = laplace.with_precision(3.0), []
    for _ in range(4000):
        with draw():
            layer = model[1][1]
            draws.append(torch.cat([layer.weight, layer.bias[:, None]], 1).detach().flatten())
    covariance = (laplace.curvature + 3 * torch.eye(6)).inverse().float()
    assert torch.allclose(torch.stack(draws).T.cov(), covariance, atol=0.03)
    assert torch.allclose(model[1][1].weight, before)


def test_every_method_has_a_grid_of_the_same_size():
    assert {len(method.grid) for method in METHODS.values()} == {6}


def test_the_best_setting_is_the_one_of_smallest_validation_nll():
    known = {
        f"k-{place}": {"scores": {"validation": {"nll": abs(place - 2)}}} for place in (1, 2, 3)
    }
    assert best("k", 4, known) == 2
    assert best("other", 4, known) == 0


def test_shifted_images_are_judged_at_every_severity():
    torch.manual_seed(0)
    x = torch.randint(0, 256, (12, 3, 32, 32), dtype=torch.uint8)
    model = nn.Sequential(Prepare(MEAN, SCALE), nn.Flatten(), nn.Linear(3072, 10))
    sets = seen({"test": Part(x, torch.arange(12) % 10)}, shifted=3)
    logs = predicted(Trained(model, nullcontext, 1), sets)
    found = judged(logs, torch.arange(12) % 10)
    assert found["shift"].keys() == CORRUPTIONS.keys()
    pixels = corrupted(x[:3], "contrast", 5)
    wanted = cross_entropy(model((255 * pixels).round().to(torch.uint8)).double(), torch.arange(3))
    assert found["shift"]["contrast"][4]["nll"] == pytest.approx(wanted.item(), rel=1e-5)


def options(tmp_path: Path, *more: str) -> list[str]:
    folders = ["--data", str(tmp_path / "data"), "--runs", str(tmp_path / "runs")]
    known = ["--known", str(tmp_path / "known"), "--out", str(tmp_path / "out")]
    small = ["--net", "tiny", "--epochs", "2", "--batch", "64", "--shifted", "0", "--device", "cpu"]
    return [*folders, *known, *small, *more]


def test_a_run_leaves_a_result_is_not_repeated_and_forms_an_ensemble(tmp_path, capsys):
    write_toy(tmp_path / "data")
    main(options(tmp_path, "--only", "sgd", "--seeds", "3"))
    result = json.loads((tmp_path / "runs" / "final-clean-tiny-sgd-0.json").read_text())
    assert result["scores"]["test"].keys() == {"accuracy", "nll", "ece", "brier", "aurc"}
    assert result["scores"]["far"].keys() == {"cifar100", "mnist"}
    with tarfile.open(tmp_path / "out" / "field_0.tar") as packed:
        assert "final-clean-tiny-laplace-2.json" in packed.getnames()
    capsys.readouterr()
    main(options(tmp_path, "--only", "sgd", "--seeds", "3"))
    assert not capsys.readouterr().out
    main(options(tmp_path, "--stage", "ensemble"))
    assert "final-clean-tiny-ensemble3-0" in capsys.readouterr().out
    page = tables.page(tables.read(tmp_path / "runs"))
    assert "| SGD | 3 |" in page
    assert "| ensemble of 3 SGD | 1 |" in page


def test_a_run_that_would_not_end_in_time_is_not_begun(tmp_path, capsys):
    write_toy(tmp_path / "data")
    main(options(tmp_path, "--only", "sgd", "--limit", "50", "--guess", "100"))
    assert "no time is left for final-clean-tiny-sgd-0" in capsys.readouterr().out
    assert not list((tmp_path / "runs").glob("*.json"))


def test_a_shared_device_keeps_no_times_and_one_measured_alone_stands_in(tmp_path, capsys):
    write_toy(tmp_path / "data")
    main(options(tmp_path, "--only", "sgd", "--beside"))
    (one,) = [own for own in tables.read(tmp_path / "runs") if own["method"] == "sgd"]
    assert one["seconds_per_epoch"] is None
    main(options(tmp_path, "--only", "sgd", "--stage", "time"))
    assert "time-clean-tiny-sgd-0" in capsys.readouterr().out
    (one,) = [own for own in tables.read(tmp_path / "runs") if own["method"] == "sgd"]
    assert one["seconds_per_epoch"] > 0


def test_a_case_that_was_not_tuned_takes_the_setting_of_clean_images():
    def tried(case, nlls):
        names = [f"tune-{case}-tiny-dropout-{place}" for place in range(len(nlls))]
        return dict(zip(names, ({"scores": {"validation": {"nll": n}}} for n in nlls), strict=True))

    grid, clean = METHODS["dropout"].grid, tried("clean", [0.3, 0.2])
    assert chosen("dropout", "noise40", "tiny", clean) == dict(grid[1])
    assert chosen("dropout", "noise40", "tiny", clean | tried("noise40", [1.1, 1.3])) == grid[0]


@pytest.mark.parametrize("name", ["dropout", "swag", "kl", "jsg_natural"])
def test_every_method_of_our_own_code_trains_and_is_judged(tmp_path, capsys, name):
    write_toy(tmp_path / "data")
    main(options(tmp_path, "--stage", "tune", "--only", name, "--limit", "3", "--guess", "0.1"))
    assert f"tune-clean-tiny-{name}-0: accuracy" in capsys.readouterr().out


def test_the_program_needs_no_package_of_the_app():
    hidden = {"optuna", "pandas", "pooch", "rich", "sklearn", "sqlalchemy"}
    code = f"""
import sys
from importlib.machinery import PathFinder
whole = PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in {hidden!r} else whole(name, path, target)
PathFinder.find_spec = find_spec
sys.argv = ["run.py", "--help"]
import runpy
runpy.run_path("benchmarks/field/run.py", run_name="__main__")
"""
    root = Path(tables.__file__).parents[2]
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=root, check=False, capture_output=True, text=True
    )
    assert out.returncode == 0, out.stderr
    assert "--stage" in out.stdout


def result(method: str, seed: int, nll: float) -> dict:
    test = {"accuracy": 0.9, "nll": nll, "ece": 0.02, "brier": 0.1, "aurc": 0.01}
    whole = {"stage": "final", "case": "clean", "net": "tiny", "method": method, "seed": seed}
    whole |= {"epochs": 2, "seconds_per_epoch": 1.0, "memory_mib": None}
    return whole | {"scores": {"test": test, "far": {}, "shift": {}}}


def test_a_table_holds_means_and_a_paired_difference_with_its_interval():
    pairs = [(0.30, 0.25), (0.32, 0.28), (0.31, 0.26)]
    found = [result("sgd", seed, own) for seed, (own, _) in enumerate(pairs)]
    found += [result("jsa", seed, own) for seed, (_, own) in enumerate(pairs)]
    assert "| SGD | 3 | 90.00 | 0.3100 ± 0.0100 |" in tables.table(found)
    gap = tables.difference(found, "jsa", "sgd", "nll")
    # Differences -.05, -.04, -.05: mean -.046667, standard error .003333, quantile 4.302653.
    assert gap.mean == pytest.approx(-0.0466667, abs=1e-6)
    assert gap.high == pytest.approx(-0.0466667 + 4.302653 * 0.0033333, abs=1e-6)
    assert gap.verdict == "ahead"
    assert tables.difference(found[:4], "jsa", "sgd", "nll") is None
    # The best of three: the quantile 1 - 0.025/3 with 2 degrees of freedom is 7.648804.
    wider = tables.difference(found, "jsa", "sgd", "nll", picked_from=3)
    assert wider.high == pytest.approx(-0.0466667 + 7.648804 * 0.0033333, abs=1e-6)
    assert wider.verdict == "ahead"


def test_the_best_that_is_picked_on_the_scores_it_is_judged_by_has_wider_intervals():
    """Three divergences differ from SGD by chance: the best of them is rarely called better."""
    rng = np.random.default_rng(0)
    ours, called = [name for name in page.OURS if name != "kl"], {1: 0, 3: 0}
    for _ in range(400):
        own = [
            result(method, seed, 0.3 + 0.01 * rng.normal())
            for method in ("sgd", *ours)
            for seed in range(5)
        ]
        mean = page._means(own)
        best = min(ours, key=mean.__getitem__)
        for count in called:
            found = tables.difference(own, best, "sgd", "nll", picked_from=count)
            called[count] += found.high < 0
    assert called[3] <= 0.05 * 400 < called[1]
    text = page.PAGE.read_text()
    assert "98.3 % for the best of our three\ndivergences, 99.2 % for the best of six ways" in text
    assert len(ours) == 3
    assert len(page.pretrained.TITLES) == 6


def test_committed_tables_are_those_of_the_committed_results():
    page = RESULTS / "tables.md"
    results = tables.read(RESULTS)
    assert page.exists() == bool(results)
    if results:
        assert page.read_text() == tables.page(results)


def test_the_page_is_computed_from_the_committed_results_and_names_what_was_not_run():
    found = page.page(tables.read(page.FIELD), tables.read(page.PRETRAINED))
    assert page.PAGE.read_text() == found, "run python -m benchmarks.field.page"
    own = [result("sgd", seed, 0.3 + 0.01 * seed) | {"net": "resnet18"} for seed in range(3)]
    own += [result("jsg_natural", seed, 0.2 + 0.01 * seed) | {"net": "resnet18"} for seed in (0, 1)]
    text = page.section(own, "clean")
    assert "| JS-G, Natural | SGD | 2 | +0.00 ± 0.00 | −0.1000 ± 0.0000 better |" in text
    assert "JS-G, Natural (seeds 2)" in text
    assert "SGD (seeds" not in text
    assert page.points(own, page.column("nll").value, ["sgd"], {"sgd": "SGD"}) == {
        "SGD": [0.3, 0.31, 0.32]
    }


def test_the_page_begins_with_what_is_decided_against_every_rival():
    rows = {"sgd": 0.3, "swag": 0.2, "ivon": 0.1, "jsg_natural": 0.15}
    own = [
        result(method, seed, nll + 0.001 * seed)
        for method, nll in rows.items()
        for seed in range(3)
    ]
    text = page.in_short(own, "clean")
    assert "JS-G: NLL 0.151 where SGD has 0.301 (−0.150 ± 0.000 better)" in text
    assert "an epoch takes 1.00 times as long" in text
    assert "- JS-G is better than SWAG in NLL." in text
    assert "- JS-G is worse than IVON in NLL." in text
