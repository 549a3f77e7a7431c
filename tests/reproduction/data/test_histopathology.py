"""Histopathology patches: what is read and skipped, the cache, the splits and what they leak."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from bayesdiv.app.data.splits import DataError
from reproduction.data import histopathology
from reproduction.data.histopathology import load_patches, read_patches, save_patches
from reproduction.data.patches import Patches, at_random, by_patient, leak

REAL = Path(os.environ.get("BAYESDIV_DATA", "nowhere")) / "IDC_regular_ps50_idx5"
SPLITS = (at_random, by_patient)


def pixels(patient: str, label: int, place: int) -> np.ndarray:
    seed = [int(patient), label, place]
    return np.random.default_rng(seed).integers(0, 256, (50, 50, 3), dtype=np.uint8)


def write(root: Path, patient: str, label: int, place: int, image: np.ndarray) -> Path:
    path = root / patient / str(label) / f"{patient}_idx5_x{place}_y1_class{label}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path)
    return path


def made(root: Path) -> Path:
    """Three patients with two patches a class, and one narrow patch at a border."""
    for patient in ("10253", "8863", "9036"):
        for label in (0, 1):
            for place in (51, 101):
                write(root, patient, label, place, pixels(patient, label, place))
    write(root, "9036", 0, 2951, np.zeros((50, 37, 3), np.uint8))
    return root


def some(patient: torch.Tensor, seed: int = 0) -> Patches:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, patient.shape, generator=generator)
    images = torch.arange(len(patient)).reshape(-1, 1, 1, 1).expand(-1, 3, 1, 1)
    return Patches(images, labels, patient, tuple(map(str, range(int(patient.max()) + 1))), 0)


def test_patches_labels_and_patients_are_those_of_the_files(tmp_path):
    patches = read_patches(made(tmp_path))
    assert patches.images.shape == (12, 3, 50, 50)
    assert patches.patients == ("10253", "8863", "9036")
    assert patches.labels.bincount().tolist() == [6, 6]
    expected = {
        pixels(patient, label, place).transpose(2, 0, 1).tobytes(): (patient, label)
        for patient in patches.patients
        for label in (0, 1)
        for place in (51, 101)
    }
    found = {
        image.numpy().tobytes(): (patches.patients[patient], label)
        for image, label, patient in zip(
            patches.images, patches.labels.tolist(), patches.patient.tolist(), strict=True
        )
    }
    assert found == expected


def test_narrow_patches_are_skipped_and_counted(tmp_path):
    made(tmp_path)
    write(tmp_path, "10253", 1, 4001, np.zeros((12, 50, 3), np.uint8))
    patches = read_patches(tmp_path)
    assert (len(patches), patches.skipped) == (12, 2)


def test_patients_one_folder_deeper_are_found(tmp_path):
    made(tmp_path / "IDC_regular_ps50_idx5")
    assert len(read_patches(tmp_path)) == 12


def test_an_archive_with_all_patients_twice_is_read_once(tmp_path):
    made(tmp_path)
    made(tmp_path / "IDC_regular_ps50_idx5")
    assert len(read_patches(tmp_path)) == 12


def test_other_files_beside_the_patches_are_passed_over(tmp_path):
    made(tmp_path)
    (tmp_path / "notes.txt").write_text("read me")
    (tmp_path / "8863" / "0" / "._8863_idx5_x51_y1_class0.png").write_text("of another system")
    assert len(read_patches(tmp_path)) == 12


def test_the_order_does_not_depend_on_threads_or_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(histopathology, "_AT_A_TIME", 2)
    first = read_patches(made(tmp_path))
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert torch.equal(read_patches(tmp_path).images, first.images)


def test_the_environment_names_the_folder_around(tmp_path, monkeypatch):
    made(tmp_path / "IDC_regular_ps50_idx5")
    monkeypatch.setenv("BAYESDIV_DATA", str(tmp_path))
    assert len(read_patches()) == 12


def test_without_a_folder_the_user_learns_where_to_get_one(tmp_path, monkeypatch):
    monkeypatch.delenv("BAYESDIV_DATA", raising=False)
    with pytest.raises(DataError, match=r"got none: get it from kaggle\.com/.*an account"):
        read_patches()
    monkeypatch.setenv("BAYESDIV_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"idx5, which is no folder: get it from kaggle\.com"):
        read_patches()


def test_a_folder_without_patches_is_refused(tmp_path):
    with pytest.raises(DataError, match="which has 0 such folders inside"):
        read_patches(tmp_path)
    for name in ("one", "two"):
        made(tmp_path / name)
    with pytest.raises(DataError, match="which has 2 such folders inside"):
        read_patches(tmp_path)
    (tmp_path / "three" / "77" / "0").mkdir(parents=True)
    with pytest.raises(DataError, match=r"which has no \.png files there"):
        read_patches(tmp_path / "three")


@pytest.mark.parametrize(
    "name",
    ["other.png", "8863_idx5_x1_y1_class1.png", "9036_idx5_x1_y1_class0.png", "8863_x1_class0.png"],
)
def test_a_name_that_contradicts_its_folders_is_refused(tmp_path, name):
    source = write(tmp_path, "8863", 0, 1, pixels("8863", 0, 1))
    source.rename(source.with_name(name))
    with pytest.raises(DataError, match=f"must be named 8863_idx5_xX_yY_class0.png.*got .*{name}"):
        read_patches(tmp_path)


def test_a_damaged_or_large_file_is_named(tmp_path):
    path = write(made(tmp_path), "8863", 1, 9, pixels("8863", 1, 9))
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DataError, match=rf"{path.name} is not a readable \.png file"):
        read_patches(tmp_path)
    path.write_text("nonsense")
    with pytest.raises(DataError, match=rf"{path.name} is not a readable \.png file"):
        read_patches(tmp_path)
    Image.new("RGB", (60, 50)).save(path)
    with pytest.raises(DataError, match=rf"at most 50×50 pixels, got 60×50 in .*{path.name}"):
        read_patches(tmp_path)


def test_narrow_patches_alone_are_refused(tmp_path):
    write(tmp_path, "8863", 0, 1, np.zeros((9, 9, 3), np.uint8))
    with pytest.raises(DataError, match="50×50 pixels, got smaller ones only"):
        read_patches(tmp_path)


def same(one: Patches, two: Patches) -> bool:
    tensors = ("images", "labels", "patient")
    plain = ("patients", "skipped", "classes")
    return all(torch.equal(getattr(one, n), getattr(two, n)) for n in tensors) and all(
        getattr(one, n) == getattr(two, n) for n in plain
    )


def test_a_cache_spares_reading_and_gives_the_same(tmp_path, monkeypatch):
    made(tmp_path / "set")
    first = read_patches(tmp_path / "set", cache=tmp_path / "new" / "cache")
    assert same(first, read_patches(tmp_path / "set"))
    monkeypatch.setattr(histopathology, "_decoded", lambda files: pytest.fail("read again"))
    assert same(read_patches(tmp_path / "set", cache=tmp_path / "new" / "cache"), first)
    assert [path.name for path in (tmp_path / "new" / "cache").iterdir()] == ["histopathology.npz"]


def test_a_cache_of_other_files_is_written_anew(tmp_path):
    made(tmp_path / "set")
    read_patches(tmp_path / "set", cache=tmp_path)
    write(tmp_path / "set", "8863", 1, 9, pixels("8863", 1, 9))
    assert len(read_patches(tmp_path / "set", cache=tmp_path)) == 13
    assert len(load_patches(tmp_path / "histopathology.npz")) == 13


def test_a_damaged_cache_is_written_anew(tmp_path):
    made(tmp_path / "set")
    read_patches(tmp_path / "set", cache=tmp_path)
    cache = tmp_path / "histopathology.npz"
    cache.write_bytes(cache.read_bytes()[:1000])
    assert len(read_patches(tmp_path / "set", cache=tmp_path)) == 12
    assert len(load_patches(cache)) == 12


def test_patches_saved_are_loaded_the_same(tmp_path):
    patches = read_patches(made(tmp_path / "set"))
    save_patches(patches, tmp_path / "all.npz")
    assert same(load_patches(tmp_path / "all.npz"), patches)


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    patches = read_patches(made(tmp_path / "set"))
    save_patches(patches, tmp_path / "all.npz")
    before = (tmp_path / "all.npz").read_bytes()

    def full(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(DataError, match=r"all\.npz could not be written: No space left on device"):
        save_patches(patches, tmp_path / "all.npz")
    assert (tmp_path / "all.npz").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.npz", "set"]


def test_a_cache_in_the_place_of_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("here")
    with pytest.raises(DataError, match="could not be written"):
        read_patches(made(tmp_path / "set"), cache=tmp_path / "file")


def arrays(**other: object) -> dict[str, object]:
    return {
        "images": np.zeros((2, 3, 50, 50), np.uint8),
        "labels": np.array([0, 1]),
        "patient": np.array([0, 0]),
        "patients": np.array(["7"]),
        "skipped": np.array(0),
        "source": np.array(""),
        **other,
    }


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        ({"images": np.zeros((2, 50, 50, 3), np.uint8)}, "uint8 images of 3×50×50, got"),
        ({"images": np.zeros((2, 3, 50, 50))}, "uint8 images of 3×50×50, got float64"),
        ({"labels": np.array([0, 2])}, "labels in .* must lie between 0 and 1"),
        ({"labels": np.array([0])}, "one of labels for each of 2 patches"),
        ({"patient": np.array([0, -1])}, "patient in .* must lie between 0 and 0"),
        ({"skipped": np.array("many")}, "is not a complete file of patches"),
        ({"patients": np.array([print], dtype=object)}, "is not a complete file of patches"),
    ],
)
def test_a_file_of_other_arrays_is_refused(tmp_path, other, complaint):
    np.savez(tmp_path / "all.npz", **arrays(**other))
    with pytest.raises(DataError, match=complaint):
        load_patches(tmp_path / "all.npz")


def test_a_file_that_is_no_cache_is_refused(tmp_path):
    (tmp_path / "all.npz").write_text("nonsense")
    with pytest.raises(DataError, match="is not a complete file of patches"):
        load_patches(tmp_path / "all.npz")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(DataError, match="is not a complete file of patches"):
        load_patches(tmp_path / "one.npy")


@pytest.mark.parametrize("split", SPLITS)
def test_parts_are_apart_and_hold_every_patch(split):
    patches = some(torch.arange(200) // 8)
    rows = split(patches, 3, 1)
    assert sorted(torch.cat(rows).tolist()) == list(range(200))
    assert [len(part) for part in rows] == pytest.approx([128, 32, 40], abs=8)


@pytest.mark.parametrize("split", SPLITS)
def test_five_folds_share_the_test_part_and_validate_on_the_rest_once(split):
    patches = some(torch.arange(200) // 8)
    folds = [split(patches, number, 1) for number in range(1, 6)]
    assert all(torch.equal(fold.test, folds[0].test) for fold in folds)
    validated = torch.cat([fold.validation for fold in folds]).tolist()
    tested = folds[0].test.tolist()
    assert sorted(validated) == sorted(set(range(200)) - set(tested))


@pytest.mark.parametrize("split", SPLITS)
def test_a_seed_fixes_the_split(split):
    patches = some(torch.arange(200) // 8)
    first, again, other = (split(patches, 2, seed) for seed in (5, 5, 6))
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    assert set(first.test.tolist()) != set(other.test.tolist())


@settings(max_examples=40)
@given(sizes=st.lists(st.integers(1, 12), min_size=40, max_size=60), fold=st.integers(1, 5))
def test_no_patient_is_in_two_parts_of_a_split_by_patient(sizes, fold):
    patient = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    patches = some(patient)
    rows = by_patient(patches, fold, seed=2)
    owners = [set(patient[part].tolist()) for part in rows]
    assert sum(map(len, owners)) == len(set.union(*owners)) == len(sizes)
    assert leak(patches, rows) == 0.0
    # A cut is off by half a patient at most.
    assert abs(len(rows.test) - sum(sizes) / 5) <= max(sizes)


def test_a_random_split_leaks_and_says_how_much():
    patches = some(torch.arange(400) // 20)
    rows = at_random(patches, 1, 0)
    seen = set(patches.patient[rows.train].tolist())
    by_hand = sum(patches.patient[row].item() in seen for row in rows.test.tolist())
    assert leak(patches, rows) == by_hand / len(rows.test) > 0.9


@pytest.mark.parametrize("split", SPLITS)
def test_a_fold_holds_the_patches_of_its_rows(split):
    patches = some(torch.arange(100) // 4)
    parts = patches.fold(4, seed=3, by=split)
    for part, rows in zip(parts.parts, split(patches, 4, 3), strict=True):
        assert part.x[:, 0, 0, 0].tolist() == rows.tolist()
        assert torch.equal(part.y, patches.labels[rows])


@pytest.mark.parametrize("split", SPLITS)
def test_splits_that_cannot_be_made_are_refused(split):
    with pytest.raises(DataError, match="fold must lie between 1 and 5, got 0"):
        split(some(torch.arange(100)), 0, 0)
    with pytest.raises(DataError, match=r"every part must have patches, got .* 2 patients"):
        split(some(torch.arange(2)), 1, 0)


@pytest.mark.skipif(not REAL.is_dir(), reason="BAYESDIV_DATA has no IDC_regular_ps50_idx5")
def test_real_patches_leak_at_random_and_not_by_patient(tmp_path):
    patches = read_patches(REAL, cache=tmp_path)
    assert len(patches.patients) == 279
    assert 0.25 < patches.labels.double().mean() < 0.3
    assert leak(patches, at_random(patches, 1)) > 0.99
    assert leak(patches, by_patient(patches, 1)) == 0.0
