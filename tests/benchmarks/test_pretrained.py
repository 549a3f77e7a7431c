"""The harness of fine-tuned networks: network, pieces, folds, scores, one small run, its tables."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.metrics import roc_auc_score, roc_curve

from benchmarks.field.tables import read as results_in
from benchmarks.pretrained import tables
from benchmarks.pretrained.data import CASES, FEW, FOLDS, Diagonal, fold, groups, read
from benchmarks.pretrained.methods import METHODS, last
from benchmarks.pretrained.network import Conv, Lite0, body, lite0, renamed
from benchmarks.pretrained.pack import pieces
from benchmarks.pretrained.run import main
from benchmarks.pretrained.scores import cut, missed, of_two

RESULTS = Path(tables.__file__).parent / "results"


def toy() -> dict[str, dict[str, np.ndarray]]:
    """Patches and images whose brightness gives their class away."""
    random = np.random.default_rng(0)

    def pixels(y: np.ndarray, step: int, side: int) -> np.ndarray:
        noise = random.integers(0, 60, (len(y), 3, side, side)).astype(np.uint8)
        return noise + (step * y).astype(np.uint8)[:, None, None, None]

    patches, few, test = (random.integers(0, n, m) for n, m in ((2, 90), (10, 60), (10, 30)))
    patient = np.arange(90) // 5
    return {
        "patches": {
            "x": pixels(patches, 90, 10),
            "y": patches.astype(np.uint8),
            "patient": patient,
        },
        "few": {"x": pixels(few, 19, 8), "y": few.astype(np.uint8)},
        "test": {"x": pixels(test, 19, 8), "y": test.astype(np.uint8)},
    }


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for number, piece in enumerate(pieces(toy(), size=12_000)):
        np.savez_compressed(folder / f"pretrained_{number}.npz", **piece)
    return folder


def test_pieces_come_back_bit_for_bit(packed):
    found = read(packed)
    assert len(list(packed.iterdir())) > 3
    for name, arrays in toy().items():
        for key, array in arrays.items():
            assert np.array_equal(found[name][key].numpy(), array)


def test_a_folder_without_pieces_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="must hold pretrained"):
        read(tmp_path)


def test_no_patient_of_a_fold_is_in_two_parts_and_every_one_of_five_groups_is_tested():
    random = np.random.default_rng(1)
    patient = torch.from_numpy(random.integers(0, 60, 900))
    x = patient.to(torch.uint8)[:, None, None, None].expand(900, 3, 2, 2)
    sets = {"patches": {"x": x, "y": torch.zeros(900).long(), "patient": patient}}
    tested = []
    for number in range(FOLDS):
        parts = [set(part.x[:, 0, 0, 0].tolist()) for part in fold(sets, "patches", number)]
        assert sum(map(len, parts)) == len(set.union(*parts)) == 60
        tested += [*parts[2]]
    assert len(tested) == len(set(tested))
    sizes = groups(patient, 6).bincount()
    assert len(sizes) == 6
    assert sizes.min() > 120


def test_every_fold_of_images_trains_on_its_own():
    x = torch.arange(FEW * (FOLDS + 1), dtype=torch.int32)[:, None, None, None]
    sets = {"few": {"x": x, "y": x.flatten().long()}, "test": {"x": x[:5], "y": x[:5].flatten()}}
    parts = [fold(sets, "cifar", number) for number in range(FOLDS)]
    trained = torch.cat([part.train.y for part in parts])
    assert len(trained.unique()) == FEW * FOLDS
    assert all(part.validation.y.tolist() == list(range(5000, 6000)) for part in parts)


def test_mirrored_images_are_transposed_or_as_they_were():
    torch.manual_seed(0)
    images = torch.rand(40, 1, 3, 3)
    changed = Diagonal()(images)
    turned = (changed == images.transpose(-1, -2)).flatten(1).all(1)
    assert 10 < turned.sum() < 30
    assert torch.equal(changed[~turned], images[~turned])


@pytest.mark.parametrize(("size", "stride"), [(3, 2), (5, 2), (3, 1), (5, 1), (1, 1)])
def test_a_convolution_looks_where_tensorflows_looks(size, stride):
    # The output at place i sees the pixels from stride·i minus half of what is added in all.
    conv = Conv(1, 1, size, stride)
    torch.nn.init.ones_(conv[0].weight)
    image = torch.zeros(1, 1, 8, 8)
    image[..., 7, 7] = 1.0
    seen = conv[0](torch.nn.functional.pad(image, conv.sides))[0, 0]
    outputs = 8 // stride
    added = (outputs - 1) * stride + size - 8
    first = [place for place in range(outputs) if stride * place - added // 2 + size > 7]
    assert seen.shape == (outputs, outputs)
    assert seen[-1].nonzero().flatten().tolist() == first


def test_published_weights_load_and_the_last_layer_starts_at_0(tmp_path):
    torch.manual_seed(0)
    whole = lite0(1000)
    published = {f"_p{place}": own for place, own in enumerate(whole.state_dict().values())}
    save_file(body(renamed(published)), tmp_path / "lite0.safetensors")
    network = Lite0(2, tmp_path / "lite0.safetensors").build().eval()
    x = torch.randn(1, 3, 32, 32)
    assert sum(weight.numel() for weight in whole.parameters()) == 4_652_008
    assert torch.equal(network(x), torch.zeros(1, 2))
    with torch.no_grad():
        assert torch.equal(network[:-1](x), whole.eval()[:-1](x))


def test_other_weights_are_refused():
    with pytest.raises(SystemExit, match="EfficientNet-lite0"):
        renamed({"a": torch.zeros(3)})


def test_the_last_layer_is_one_matrix():
    network = lite0(3, width=0.1)
    assert [name for name, own in network.named_parameters() if last(name, own)] == ["head.weight"]


def test_every_method_has_as_many_settings():
    assert {len(method.grid) for method in METHODS.values()} == {4}
    assert METHODS.keys() == tables.TITLES.keys()


def test_what_is_missed_at_a_specificity_is_read_off_scikit_learns_curve():
    torch.manual_seed(0)
    y = torch.randint(2, (400,))
    tumour = (torch.randn(400) + y).sigmoid().double()
    false, true, above = roc_curve(y, tumour, drop_intermediate=False)
    allowed = false <= 0.1
    assert missed(tumour, y, cut(tumour, y)) == pytest.approx(1 - true[allowed].max())
    logs = torch.stack([1 - tumour, tumour], -1).log()
    found = of_two(logs, y, above=above[allowed][-1] - 1e-9)
    assert found["auc"] == pytest.approx(roc_auc_score(y, tumour))
    assert found["specificity"] == pytest.approx(1 - false[allowed].max())
    assert found["missed"] == pytest.approx(found["missed_equal"])


def options(tmp_path: Path, *more: str) -> list[str]:
    places = {"--data": "data", "--runs": "runs", "--known": "known", "--out": "out"}
    named = [part for key, name in places.items() for part in (key, str(tmp_path / name))]
    small = ["--width", "0.1", "--epochs", "1", "--batch", "30", "--samples", "2"]
    return [*named, *small, "--device", "cpu", "--case", "patches", *more]


def test_a_run_leaves_a_result_and_is_not_repeated(tmp_path, packed, capsys, monkeypatch):
    monkeypatch.setitem(CASES, "patches", CASES["patches"].__class__(2, 32, 1, ()))
    for name in ("plain", "last_jsa", "all_jsg"):
        main(options(tmp_path, "--stage", "tune", "--only", name, "--limit", "2", "--guess", "1"))
        assert f"tune-patches-{name}-0: accuracy" in capsys.readouterr().out
    best = {"scores": {"validation": {"nll": -1.0}}}
    (tmp_path / "runs" / "tune-patches-all_kl-2.json").write_text(json.dumps(best))
    main(options(tmp_path, "--only", "all_kl", "--folds", "1"))
    assert "final-patches-all_kl-0: accuracy" in capsys.readouterr().out
    result = json.loads((tmp_path / "runs" / "final-patches-all_kl-0.json").read_text())
    assert result["settings"]["lr"] == METHODS["all_kl"].grid[2]["ours"].lr
    assert {"missed", "missed_equal", "auc", "nll", "ece"} <= result["scores"]["test"].keys()
    with tarfile.open(tmp_path / "out" / "pretrained_0.tar") as archive:
        assert "final-patches-all_kl-0.json" in archive.getnames()
    main(options(tmp_path, "--only", "all_kl", "--folds", "1"))
    assert not capsys.readouterr().out
    assert "| all weights, λKL | 1 |" in tables.page(results_in(tmp_path / "runs"))


def test_a_run_that_would_not_end_in_time_is_not_begun(tmp_path, packed, capsys):
    main(options(tmp_path, "--limit", "50", "--guess", "100"))
    assert "no time is left for final-patches-plain-0" in capsys.readouterr().out


def result(method: str, number: int, auc: float) -> dict:
    test = {column.score: 0.5 for column in tables.COLUMNS["patches"]} | {"auc": auc}
    whole = {"stage": "final", "case": "patches", "method": method, "seed": number, "epochs": 1}
    return whole | {"scores": {"test": test}}


def test_a_larger_auc_is_ahead_and_missing_folds_are_named():
    pairs = [(0.80, 0.85), (0.82, 0.86), (0.81, 0.86)]
    found = [result("plain", n, own) for n, (own, _) in enumerate(pairs)]
    found += [result("all_jsa", n, own) for n, (_, own) in enumerate(pairs)]
    page = tables.page(found)
    # Differences .05, .04, .05: mean .046667, standard error .003333, quantile 4.302653.
    wanted = "| AUC | +0.0467 | +0.0323 … +0.0610 | 3 | ahead |"
    assert f"| all weights, JS-A | plain fine-tuning {wanted}" in page
    assert "Not run: plain fine-tuning, fold 3; plain fine-tuning, fold 4; last layer, λKL" in page


def test_committed_tables_are_those_of_the_committed_results():
    page = RESULTS / "tables.md"
    results = results_in(RESULTS)
    assert page.exists() == bool(results)
    if results:
        assert page.read_text() == tables.page(results)
