"""CIFAR from its published files: what is read, the folds, and what is refused."""

import io
import os
import pickle
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from bayesdiv.app.data import cifar
from bayesdiv.app.data.cifar import cifar10, cifar100
from bayesdiv.app.data.images import Images
from bayesdiv.app.data.loading import load
from bayesdiv.app.data.splits import DataError
from command import call

TEN, HUNDRED = "cifar-10-batches-py", "cifar-100-python"
NAMES = [b"airplane", b"automobile", b"bird"]
ROWS = 4  # images a file
REAL = Path(os.environ.get("BAYESDIV_DATA", "nowhere"))


def pixels(seed: int, rows: int = ROWS) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (rows, 3072), dtype=np.uint8)


def dumped(content: object, protocol: int = 2) -> bytes:
    return pickle.dumps(content, protocol=protocol)


def batch(seed: int, **other: object) -> dict[bytes, object]:
    found = {b"data": pixels(seed), b"labels": [0, 1, 2, 0], b"batch_label": b"some"}
    return {**found, **{key.encode(): value for key, value in other.items()}}


def ten(folder: Path, protocol: int = 2) -> Path:
    """Files of CIFAR-10 with a few images each, all of them random numbers of their seed."""
    made = folder / TEN
    made.mkdir(parents=True)
    for number in range(1, 6):
        (made / f"data_batch_{number}").write_bytes(dumped(batch(number), protocol))
    (made / "test_batch").write_bytes(dumped(batch(6), protocol))
    (made / "batches.meta").write_bytes(dumped({b"label_names": NAMES}, protocol))
    return made


def hundred(folder: Path) -> Path:
    made = folder / HUNDRED
    made.mkdir(parents=True)
    for name, rows in (("train", 20), ("test", 4)):
        labels = {
            b"fine_labels": [index % 3 for index in range(rows)],
            b"coarse_labels": [7] * rows,
        }
        (made / name).write_bytes(dumped({b"data": pixels(rows, rows), **labels}, 3))
    (made / "meta").write_bytes(dumped({b"fine_label_names": ["apple", "bear", "bee"]}, 3))
    return made


def archived(folder: Path, path: Path) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, arcname=folder.name)
    return path


def by_python_2(seed: int) -> bytes:
    """A batch as the published ones are: strings of bytes, and numpy by its older name."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value if len(value) < 256 else long_text(value)

    def long_text(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    array = b"".join([
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85" + text(b"b") + b"tR",
        b"(K\x01K", bytes([ROWS]), b"M\x00\x0c\x86cnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR",
        b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
        b"I00\n", long_text(pixels(seed).tobytes()), b"tb",
    ])  # fmt: skip
    labels = b"](K\x00K\x01K\x02K\x00e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + labels + b"u."


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_images_labels_and_classes_are_those_of_the_files(tmp_path, protocol):
    images = cifar10(ten(tmp_path, protocol))
    expected = np.concatenate([pixels(seed).reshape(-1, 3, 32, 32) for seed in range(1, 7)])
    assert np.array_equal(images.images.numpy(), expected)
    assert images.images.dtype == torch.uint8
    assert images.labels.dtype == torch.int64
    assert images.labels.tolist() == [0, 1, 2, 0] * 6
    assert images.classes == ("airplane", "automobile", "bird")


def test_a_file_as_python_2_wrote_it_is_read(tmp_path):
    folder = ten(tmp_path)
    (folder / "data_batch_3").write_bytes(by_python_2(seed=30))
    found = cifar10(folder).fold(3).validation
    assert np.array_equal(found.x.numpy(), pixels(30).reshape(-1, 3, 32, 32))
    assert found.y.tolist() == [0, 1, 2, 0]


def test_an_array_stored_by_columns_is_read(tmp_path):
    folder = ten(tmp_path)
    turned = batch(1, data=np.asfortranarray(pixels(9)))
    (folder / "data_batch_1").write_bytes(dumped(turned, 3))
    found = cifar10(folder).fold(1).validation.x
    assert np.array_equal(found.numpy(), pixels(9).reshape(-1, 3, 32, 32))


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_a_fold_validates_on_its_batch_and_trains_on_the_other_four(tmp_path, number):
    train, validation, test = cifar10(ten(tmp_path)).fold(number).parts
    others = [seed for seed in range(1, 6) if seed != number]
    for part, seeds in ((train, others), (validation, [number]), (test, [6])):
        expected = np.concatenate([pixels(seed).reshape(-1, 3, 32, 32) for seed in seeds])
        assert np.array_equal(part.x.numpy(), expected)
        assert part.y.tolist() == [0, 1, 2, 0] * len(seeds)


@pytest.mark.parametrize("number", [0, 6, -1])
def test_a_fold_that_is_not_one_of_five_is_refused(tmp_path, number):
    with pytest.raises(DataError, match=f"fold must lie between 1 and 5, got {number}"):
        cifar10(ten(tmp_path)).fold(number)


def test_folds_of_cifar100_are_five_consecutive_parts(tmp_path):
    images = cifar100(hundred(tmp_path))
    assert images.classes == ("apple", "bear", "bee")
    train, validation, test = images.fold(2).parts
    everything = pixels(20, 20).reshape(-1, 3, 32, 32)
    assert np.array_equal(validation.x.numpy(), everything[4:8])
    assert np.array_equal(train.x.numpy(), np.delete(everything, range(4, 8), axis=0))
    assert np.array_equal(test.x.numpy(), pixels(4, 4).reshape(-1, 3, 32, 32))


def test_an_archive_gives_what_its_folder_does_and_writes_nothing(tmp_path):
    folder = ten(tmp_path / "made")
    archive = archived(folder, tmp_path / "some.tar.gz")
    before = sorted(tmp_path.rglob("*"))
    assert torch.equal(cifar10(archive).images, cifar10(folder).images)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_around_the_folder_or_the_archive_will_do(tmp_path):
    folder = ten(tmp_path / "one")
    (tmp_path / "two").mkdir()
    archived(folder, tmp_path / "two" / "cifar-10-python.tar.gz")
    images = [cifar10(tmp_path / name).images for name in ("one", "two")]
    assert torch.equal(*images)


def test_a_member_of_an_archive_that_leads_elsewhere_is_passed_over(tmp_path):
    path = tmp_path / "bad.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in (f"../../{TEN}/evil", "/etc/data_batch_1"):
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
        link = tarfile.TarInfo(f"{TEN}/data_batch_1")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
    with pytest.raises(DataError, match=r"bad\.tar\.gz must hold .* data_batch_1, got none"):
        cifar10(path)


def test_the_users_data_folder_goes_before_a_download(tmp_path, monkeypatch):
    ten(tmp_path)
    monkeypatch.setenv("BAYESDIV_DATA", str(tmp_path))
    monkeypatch.setattr(cifar, "fetch", lambda *_: pytest.fail("downloaded"))
    assert len(cifar10().labels) == 24


@pytest.mark.parametrize(
    ("read", "make", "name", "md5"),
    [
        (cifar10, ten, "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),
        (cifar100, hundred, "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),
    ],
)
def test_without_files_the_published_archive_is_fetched(
    tmp_path, monkeypatch, read, make, name, md5
):
    archive, asked = archived(make(tmp_path / "made"), tmp_path / name), []
    monkeypatch.setenv(
        "BAYESDIV_DATA", str(tmp_path / "made" / ".." / "made" / TEN[:0] or tmp_path)
    )
    monkeypatch.delenv("BAYESDIV_DATA")
    monkeypatch.setattr(cifar, "fetch", lambda *told: asked.append(told) or archive)
    assert len(read().labels) == 24
    assert asked == [(f"https://www.cs.toronto.edu/~kriz/{name}", f"md5:{md5}", name)]


class Evil:
    def __reduce__(self):
        return os.system, ("touch reached",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_file_that_asks_for_a_function_is_refused_before_it_runs(tmp_path, monkeypatch, protocol):
    folder = ten(tmp_path)
    monkeypatch.chdir(tmp_path)
    (folder / "test_batch").write_bytes(dumped(batch(6, filenames=Evil()), protocol))
    with pytest.raises(DataError, match=r"test_batch asks for \w+\.system: not a CIFAR file"):
        cifar10(folder)
    assert not (tmp_path / "reached").exists()


@pytest.mark.parametrize(
    "asks",
    ["builtins eval", "builtins getattr", "numpy load", "numpy.core.multiarray scalar", "os popen"],
)
def test_nothing_but_the_names_of_an_array_is_found(tmp_path, asks):
    folder = ten(tmp_path)
    module, name = asks.split()
    (folder / "data_batch_1").write_bytes(f"c{module}\n{name}\n.".encode())
    with pytest.raises(DataError, match=f"asks for {module}.{name}: not a CIFAR file"):
        cifar10(folder)


@pytest.mark.parametrize(
    "content",
    [
        # Attributes set on what stands for an array, a call of it, and of the one way to bytes.
        b"cnumpy\nndarray\n(N}U\x08__init__K\x01stb.",
        b"cnumpy\ndtype\n}U\x01aK\x01sb.",
        b"c_codecs\nencode\n(N}U\x01aK\x01stb.",
        b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00zipt\x52.",
        b"\x80\x04\x8c\x05numpy\x8c\x07ndarray\x93J\xff\xff\xff\x7f\x85R.",
        b"Pthing\n.",
        b"\x82\x01.",
    ],
)
def test_a_crafted_file_changes_nothing_and_is_refused(tmp_path, content):
    folder = ten(tmp_path)
    whole = (folder / "data_batch_1").read_bytes()
    (folder / "data_batch_1").write_bytes(content)
    with pytest.raises(DataError):
        cifar10(folder)
    (folder / "data_batch_1").write_bytes(whole)
    assert len(cifar10(folder).labels) == 24


def test_an_array_of_objects_is_refused(tmp_path):
    folder = ten(tmp_path)
    things = np.array([[1, "two"]], dtype=object)
    (folder / "data_batch_2").write_bytes(dumped(batch(2, data=things)))
    with pytest.raises(DataError, match="must hold 'data', rows of 3072 bytes"):
        cifar10(folder)


LABELS = "data_batch_4 must hold 'labels', a number from 0 to 2 for each of 4 images"
PIXELS = "data_batch_4 must hold 'data', rows of 3072 bytes: not a CIFAR file"


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        ({"labels": [0, 1, 2, 3]}, LABELS),
        ({"labels": [0, -1, 2, 1]}, LABELS),
        ({"labels": [0, 1]}, LABELS),
        ({"labels": ["cat"] * 4}, LABELS),
        ({"labels": None}, LABELS),
        ({"data": np.zeros((4, 1024), np.uint8)}, PIXELS),
        ({"data": np.zeros((4, 3, 32, 32), np.uint8)}, PIXELS),
        ({"data": np.zeros((0, 3072), np.uint8)}, PIXELS),
        ({"data": np.zeros((4, 3072), np.float32)}, PIXELS),
        ({"data": [1, 2]}, PIXELS),
        ({"data": None}, PIXELS),
    ],
)
def test_a_batch_of_another_kind_is_refused(tmp_path, other, complaint):
    folder = ten(tmp_path)
    (folder / "data_batch_4").write_bytes(dumped(batch(4, **other), 3))
    with pytest.raises(DataError, match=complaint):
        cifar10(folder)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.999])
def test_a_truncated_file_is_refused(tmp_path, share):
    path = ten(tmp_path) / "data_batch_5"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(DataError, match="data_batch_5 is truncated or damaged"):
        cifar10(path.parent)


def test_a_truncated_archive_is_refused(tmp_path):
    archive = archived(ten(tmp_path), tmp_path / "half.tar.gz")
    archive.write_bytes(archive.read_bytes()[:20000])
    with pytest.raises(DataError, match=r"half\.tar\.gz must be a whole \.tar\.gz archive"):
        cifar10(archive)


def test_a_file_that_is_no_archive_is_refused(tmp_path):
    (tmp_path / "some.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"some\.csv must be a whole \.tar\.gz archive"):
        cifar10(tmp_path / "some.csv")


@pytest.mark.parametrize("name", ["data_batch_2", "test_batch", "batches.meta"])
def test_a_missing_file_is_named(tmp_path, name):
    folder = ten(tmp_path)
    (folder / name).unlink()
    with pytest.raises(DataError, match=f"must hold the CIFAR-10 file {name}, got none"):
        cifar10(folder)


def test_a_folder_without_the_set_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"CIFAR-100 must be .*, which has neither: name cifar-100"):
        cifar100(tmp_path)
    with pytest.raises(DataError, match=r"nowhere, which does not exist"):
        cifar10(tmp_path / "nowhere")


@pytest.mark.skipif(not (REAL / TEN).is_dir(), reason=f"BAYESDIV_DATA has no {TEN}")
def test_the_published_cifar10_is_read_whole():
    images = cifar10(REAL)
    assert images.notes == ()
    assert images.batch.bincount().tolist() == [10000] * 6
    assert images.labels.bincount().tolist() == [6000] * 10
    train = images.images[images.batch > 0].numpy()
    means = [0.49139968, 0.48215841, 0.44653091]  # as they are commonly stated
    np.testing.assert_allclose(train.mean((0, 2, 3)) / 255, means, atol=1e-7)


@pytest.mark.skipif(not (REAL / HUNDRED).is_dir(), reason=f"BAYESDIV_DATA has no {HUNDRED}")
def test_the_published_cifar100_is_read_whole():
    images = cifar100(REAL)
    assert images.labels.bincount().tolist() == [600] * 100
    assert images.batch.bincount().tolist() == [10000] * 6
    assert images.classes[:2] == ("apple", "aquarium_fish")


def random_images(count: int, side: int = 32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 3, side, side), generator=generator, dtype=torch.uint8)


def noisy(images: torch.Tensor, *how: float, **more: object) -> torch.Tensor:
    none = torch.zeros(len(images)).long()
    return Images(images, none, ("one",), none, "some").noisy(*how, **more).images


def test_noise_has_its_scale_and_is_added_to_pixels_from_zero_to_one():
    images = random_images(1100)  # more than are drawn at once
    noise = noisy(images, 0.9, seed=3) - images.float() / 255
    assert abs(noise.mean()) < 0.003
    assert abs(noise.std() - 0.9) < 0.003
    assert abs((noise.abs() < 0.9).double().mean() - 0.6827) < 0.002
    flat = noise.flatten(1)
    assert abs(torch.corrcoef(flat[[0, 1, 1024, 1099]]) - torch.eye(4)).max() < 0.1


def test_a_seed_fixes_the_noise_and_leaves_the_random_numbers_of_others_alone():
    images = random_images(5)
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    first, again, other = (noisy(images, 0.5, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_no_noise_only_scales():
    images = random_images(2)
    assert np.array_equal(noisy(images, 0.0).numpy(), images.numpy().astype(np.float32) / 255)


def test_half_precision_rounds_the_same_noise():
    images = random_images(3)
    found = noisy(images, 0.9, seed=1, dtype=torch.bfloat16)
    assert torch.equal(found, noisy(images, 0.9, seed=1).bfloat16())


def test_an_image_has_the_same_noise_in_every_fold_and_differs_between_parts(tmp_path):
    images = cifar10(ten(tmp_path))
    seen = images.noisy(0.9, seed=4)
    one, two = seen.fold(1), seen.fold(2)
    assert torch.equal(one.test.x, two.test.x)
    assert torch.equal(one.validation.x, two.train.x[:ROWS])
    assert torch.equal(one.train.y, images.fold(1).train.y)
    clean = images.noisy(0.0).fold(1)
    added = [noise.x - plain.x for noise, plain in zip(one.parts, clean.parts, strict=True)]
    assert not torch.allclose(added[1], added[2], atol=1e-3)


@pytest.mark.parametrize("noise", [-0.1, float("nan"), float("inf")])
def test_noise_that_is_no_standard_deviation_is_refused(noise):
    with pytest.raises(DataError, match=r"noise must be a finite standard deviation .* got"):
        noisy(random_images(1), noise)


def test_images_that_are_floats_already_are_not_scaled_again():
    with pytest.raises(DataError, match=r"images must be uint8, .* got torch\.float32"):
        noisy(torch.zeros(1, 3, 8, 8), 0.1)


def test_readers_and_networks_import_with_torch_and_numpy_alone():
    absent = "PIL pooch rich pandas sklearn safetensors accelerate torchmetrics matplotlib scipy"
    code = f"""
import sys
for name in {absent.split()}:
    sys.modules[name] = None
import bayesdiv.app.data.cifar, reproduction.data.histopathology, bayesdiv.app.nets.images
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_images_are_loaded_trained_and_reported_by_their_name(tmp_path, monkeypatch, capsys):
    ten(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BAYESDIV_DATA", str(tmp_path))
    first, second = load("cifar10", seed=0), load("cifar10", seed=1)
    assert torch.equal(first.test.x, second.test.x)
    assert torch.equal(first.validation.y, cifar10(tmp_path).fold(1).validation.y)
    assert torch.equal(second.validation.y, cifar10(tmp_path).fold(2).validation.y)
    assert first.train.x.amin() >= 0
    assert first.train.x.amax() <= 1
    quick = ["--epochs", 1, "--test_samples", 2]
    assert call("train", "cifar10", "--noise", 0.1, "--out", "run", *quick) == 0
    assert call("report", "run", "-o", "run.html") == 0
    assert "an input has 3 × 32 × 32 numbers" in (tmp_path / "run.html").read_text()
    capsys.readouterr()
    (tmp_path / "new.csv").write_text("a\n1\n")
    assert call("predict", "run", "new.csv", "-o", "out.csv") == 2
    assert "a run on images cannot predict a table" in capsys.readouterr().err
    with pytest.raises(DataError, match="is a ready-made data set, which takes no --"):
        load("cifar10", target="class")
