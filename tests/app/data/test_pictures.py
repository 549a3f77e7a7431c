"""Folders and tables of pictures: what is read, what is refused, and all commands on them."""

import json
import math
import os
import re
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from bayesdiv import KL
from bayesdiv.app import training as trainings
from bayesdiv.app.data import images
from bayesdiv.app.data.loading import load
from bayesdiv.app.data.splits import DataError
from bayesdiv.app.experiment import Training
from bayesdiv.training.fit import Epoch
from command import call

RED, GREEN, BLUE = (250, 10, 10), (10, 250, 10), (10, 10, 250)


def paint(path: Path, colour: tuple[int, ...], size: tuple[int, int] = (12, 9)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = "RGBA" if len(colour) == 4 else "RGB"
    Image.new(mode, size, colour).save(path)
    return path


@pytest.fixture(scope="module")
def album(tmp_path_factory) -> Path:
    """Noisy red and green pictures, twelve of each."""
    folder, random = tmp_path_factory.mktemp("album"), np.random.default_rng(0)
    for channel, name in enumerate(("apple", "leaf")):
        for number in range(12):
            pixels = random.integers(0, 100, (10, 14, 3)).astype(np.uint8)
            pixels[..., channel] += 120
            (folder / name).mkdir(exist_ok=True)
            Image.fromarray(pixels).save(folder / name / f"{number:02}.png")
    return folder


def one(path: Path, size: int = 8) -> torch.Tensor:
    (x,), (problem,) = images.decoded([path], size)
    assert not problem
    return x


def problem_of(path: Path) -> str:
    _, (problem,) = images.decoded([path], 8)
    assert "\n" not in problem
    return problem


def test_a_single_picture_is_refused_with_what_to_give(album):
    with pytest.raises(DataError, match=r"00\.png is a single picture: give a folder or a table"):
        images.new(album / "leaf" / "00.png", None, 8)


def test_every_class_is_in_every_part_of_every_fold(album):
    for seed in range(5):
        splits = load(album, size=8, seed=seed)
        assert splits.task.classes == ("apple", "leaf")
        assert [len(part.y) for part in splits.parts] == [16, 4, 4]
        assert all(part.y.bincount().unique().numel() == 1 for part in splits.parts)
        assert splits.train.x.dtype == torch.uint8
        red, green = splits.train.x[:, 0].float().mean((1, 2)), splits.train.x[:, 1].float()
        assert torch.equal(red < green.mean((1, 2)), splits.train.y.bool())


def test_a_small_class_is_trained_on_first(album, tmp_path):
    (tmp_path / "apple").symlink_to(album / "apple")
    paint(tmp_path / "rare" / "a.png", BLUE)
    assert load(tmp_path, size=8).train.y.sum() == 1


def test_too_few_pictures_for_three_parts_are_refused(tmp_path, capsys):
    for number in range(3):
        paint(tmp_path / "few" / "red" / f"{number}.png", RED)
        paint(tmp_path / "few" / "blue" / f"{number}.png", BLUE)
    assert call("train", tmp_path / "few", "--out", tmp_path / "run") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "some class must have 6 pictures or more" in said
    assert "got 3 in the largest of 2 classes of few" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("mode", "colour", "wanted"),
    [
        ("L", 128, (128, 128, 128)),
        ("RGBA", (250, 10, 10, 0), (255, 255, 255)),
        ("RGBA", (250, 10, 10, 255), RED),
        ("LA", (40, 255), (40, 40, 40)),
        ("1", 1, (255, 255, 255)),
        ("I;16", 65535 // 2, (127, 127, 127)),
        ("P", 0, (0, 0, 0)),
    ],
)
def test_every_mode_becomes_red_green_and_blue(tmp_path, mode, colour, wanted):
    Image.new(mode, (5, 4), colour).save(tmp_path / "one.png")
    assert one(tmp_path / "one.png")[:, 4, 4].tolist() == list(wanted)


def test_a_picture_of_one_pixel_fills_the_square(tmp_path):
    assert one(paint(tmp_path / "dot.png", GREEN, (1, 1)))[1].unique().tolist() == [250]


def test_a_rotated_photograph_is_turned_upright(tmp_path):
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:8] = 255  # the upper half is white
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    Image.fromarray(pixels).save(tmp_path / "a.jpg", exif=exif, quality=95)
    x = one(tmp_path / "a.jpg").float()
    assert x[:, :3].mean() < 20
    assert x[:, 5:].mean() > 235


def chunk(kind: bytes, content: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + checksum


@pytest.mark.parametrize("side", [8_000, 60_000])
def test_a_bomb_is_refused_by_its_head_alone(tmp_path, side):
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    content = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    (tmp_path / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    assert "pixels" in problem_of(tmp_path / "bomb.png")


def test_damaged_files_are_named_in_one_sentence(tmp_path):
    Image.effect_noise((64, 64), 50).save(tmp_path / "cut.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "cut.jpg").read_bytes()[:700])
    (tmp_path / "text.png").write_text("no picture at all")
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "program.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    for name in ("cut.jpg", "text.png", "empty.png", "program.png", "absent.png"):
        assert f"{name} cannot be read as a picture" in problem_of(tmp_path / name)


def test_cut_files_of_every_length_are_read_or_refused(tmp_path):
    Image.effect_noise((9, 9), 50).save(tmp_path / "whole.png")
    content = (tmp_path / "whole.png").read_bytes()
    random = np.random.default_rng(0)
    for number in range(60):
        changed = bytearray(content[: random.integers(len(content))] if number % 2 else content)
        for place in random.integers(0, max(1, len(changed)), 3) if changed else ():
            changed[place] = random.integers(256)
        (tmp_path / f"{number}.png").write_bytes(changed)
    _, problems = images.decoded(sorted(tmp_path.glob("*.png")), 8)
    assert len(problems) == 61
    assert any(problems)
    assert not all(problems)


def test_links_in_a_circle_and_pipes_are_not_followed(album, tmp_path):
    for name in ("apple", "leaf"):
        (tmp_path / name).symlink_to(album / name)
    paint(tmp_path / "stone" / "a.png", BLUE)
    (tmp_path / "stone" / "again").symlink_to(tmp_path)
    (tmp_path / "stone" / "self.png").symlink_to(tmp_path / "stone" / "self.png")
    os.mkfifo(tmp_path / "stone" / "pipe.png")
    found = images.folder(tmp_path, 8)
    assert [file for file in found.files if file.startswith("stone")] == ["stone/a.png"]
    assert len(found.files) == len(found.labels) == 25


def test_linked_classes_are_predicted_as_they_are_trained_on_and_hidden_folders_are_not(
    album, tmp_path
):
    (tmp_path / "apple").symlink_to(album / "apple")
    paint(tmp_path / "leaf" / "a.png", GREEN)
    paint(tmp_path / "leaf" / ".checkpoints" / "a.png", GREEN)
    paint(tmp_path / ".trash" / "a.png", GREEN)
    frame, _, (x, _) = images.new(tmp_path, None, 8)
    assert frame["picture"].tolist() == list(images.folder(tmp_path, 8).files)
    assert frame["class"].tolist() == ["apple"] * 12 + ["leaf"]
    assert len(x) == 13


def test_a_broken_picture_stops_training_unless_it_is_to_be_left_out(album, tmp_path):
    for name in ("apple", "leaf"):
        (tmp_path / name).symlink_to(album / name)
    (tmp_path / "stone").mkdir()
    (tmp_path / "stone" / "bad.png").write_text("no")
    paint(tmp_path / "stone" / "good.png", BLUE)
    with pytest.raises(DataError, match=r"stone/bad.png cannot be read.*--skip_broken"):
        load(tmp_path)
    splits = load(tmp_path, size=8, skip_broken=True)
    assert splits.notes == ("pictures left out, as they cannot be read: 1",)
    assert sum(len(part.y) for part in splits.parts) == 25


def test_a_folder_without_classes_and_options_of_tables_are_refused(album, tmp_path):
    with pytest.raises(DataError, match="one folder per class"):
        load(album / "apple")
    with pytest.raises(DataError, match="which takes no --"):
        load(album, target="class")
    with pytest.raises(DataError, match="size must lie between 8 and 1024"):
        load(album, size=4)


@pytest.mark.parametrize("size", ["0", "-5", "4", "2000", "wide"])
def test_a_size_out_of_range_is_refused_with_the_range(album, tmp_path, size, capsys):
    assert call("train", album, f"--size={size}", "--out", tmp_path / "run") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"size must be a whole number of pixels between 8 and 1024, got {size}" in said
    with pytest.raises(DataError, match="size must lie between 8 and 1024"):
        load(album, size=0)


def test_a_table_names_pictures_and_their_classes(album, tmp_path):
    names = [f"{kind}/{number:02}.png" for kind in ("apple", "leaf") for number in range(12)]
    frame = pd.DataFrame({"file": names, "kind": [name[0] for name in names]})
    frame.to_csv(album / "list.csv", index=False)
    try:
        splits = load(album / "list.csv", pictures="file", size=8)
        assert splits.target == "kind"
        assert splits.task.classes == ("a", "l")
        assert torch.equal(splits.test.x, load(album, size=8).test.x)
        with pytest.raises(DataError, match="did you mean 'file'"):
            load(album / "list.csv", pictures="files")
    finally:
        (album / "list.csv").unlink()


def test_pictures_beyond_the_ceiling_lie_in_a_file(album, monkeypatch):
    wanted = load(album, size=8)
    monkeypatch.setattr(images, "CEILING", 100)
    found = load(album, size=8)
    assert isinstance(images.room((3, 3, 8, 8)), np.memmap)
    for part, other in zip(found.parts, wanted.parts, strict=True):
        assert torch.equal(part.x, other.x)


def test_noise_is_kept_for_many_pictures(album, monkeypatch):
    wanted = load(album, size=8, noise=0.5)
    monkeypatch.setattr(images, "CEILING", 100)
    assert torch.equal(load(album, size=8, noise=0.5).train.x, wanted.train.x)
    assert wanted.train.x.is_floating_point()


@pytest.fixture(scope="module")
def trained(album, tmp_path_factory) -> Path:
    """A residual network that was trained for a moment, and one that began with its weights."""
    place = tmp_path_factory.mktemp("runs")
    small = ["--size", "16", "--epochs", "1", "--test_samples", "2", "--net", "resnet20"]
    assert call("train", album, *small, "--out", place / "first") == 0
    more = ["--pretrained", place / "first", "--out", place / "second"]
    assert call("train", album, *small, *more) == 0
    return place


def test_the_weights_of_a_run_stand_for_the_run_to_begin_with(trained, album, tmp_path):
    small = ["--size", "16", "--epochs", "1", "--test_samples", "2", "--net", "resnet20"]
    file = trained / "first" / "weights.safetensors"
    assert call("train", album, *small, "--pretrained", file, "--out", tmp_path / "third") == 0
    places = trained / "second", tmp_path / "third"
    wanted, found = (load_file(place / "weights.safetensors") for place in places)
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())


def test_the_run_of_a_folder_keeps_its_classes_and_the_recipe_of_images(trained):
    told = json.loads((trained / "first" / "settings.json").read_text())
    assert told["task"]["classes"] == ["apple", "leaf"]
    assert told["network"]["net"] == "resnet20"
    assert told["divergence"] == "JSG:0.5"
    assert told["shape"] == [3, 16, 16]


def test_a_stopped_training_goes_on_as_if_it_had_not_been_stopped(album, tmp_path):
    how = Training(epochs=2, net="resnet20", test_samples=2)

    def stop(epoch: Epoch, _: object) -> None:
        if epoch.number == 1:
            raise KeyboardInterrupt

    splits = load(album, size=8)
    with pytest.raises(KeyboardInterrupt):
        trainings.train(splits, KL(), how, folder=tmp_path, tell=stop)
    whole, _ = trainings.train(splits, KL(), how)
    parts, _ = trainings.train(splits, KL(), how, folder=tmp_path)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, parts.model.state_dict()[name]), name


def test_a_plain_network_learns_by_sgd_and_is_compared(album, tmp_path):
    experiment, result = trainings.train(
        load(album, size=8), None, Training(epochs=1, net="resnet20", test_samples=2)
    )
    assert isinstance(experiment.optimizer(), torch.optim.SGD)
    assert result["test"]["nll"] < math.inf


def test_epochs_are_judged_with_the_statistics_of_their_own_weights(album):
    """Few updates leave running statistics near their start: the epochs are judged without them."""
    how = Training(epochs=2, net="resnet20", test_samples=2)
    experiment, result = trainings.train(load(album, size=8), None, how)
    best = experiment.history[result["best_epoch"] - 1]
    assert best["validation_nll"] == pytest.approx(result["validation"]["nll"], abs=0.05)


def test_new_pictures_are_predicted_and_broken_ones_have_their_reason(trained, album, tmp_path):
    for number in range(2):
        paint(tmp_path / "new" / f"{number}.png", RED)
    (tmp_path / "new" / "bad.jpg").write_text("no")
    new, out = tmp_path / "new", tmp_path / "out.csv"
    assert call("predict", trained / "first", new, "-o", out) == 0
    found = pd.read_csv(tmp_path / "out.csv", keep_default_na=False)
    assert found["picture"].tolist() == ["0.png", "1.png", "bad.jpg"]
    assert found["problem"].str.contains("cannot be read as a picture").tolist() == [0, 0, 1]
    assert float(found["probability_apple"][0]) == pytest.approx(
        1 - float(found["probability_leaf"][0]), abs=1e-5
    )


def test_a_run_of_pictures_is_evaluated_on_its_own_and_on_new_ones(trained, album):
    for name in ("first", "second"):
        assert call("evaluate", trained / name) == 0
        assert call("evaluate", trained / name, album) == 0


def test_a_picture_that_broke_after_training_gets_no_advice_on_training(
    trained, album, tmp_path, capsys
):
    shutil.copytree(album, tmp_path / "album")
    (tmp_path / "album" / "leaf" / "03.png").write_text("no")
    capsys.readouterr()
    assert call("report", trained / "first", "--data", tmp_path / "album") == 2
    said = capsys.readouterr().err
    assert "03.png cannot be read as a picture" in said
    assert said.endswith("; give the data that first was trained on with --data\n")
    assert "repair" not in said


def test_a_report_on_pictures_shows_some(trained, tmp_path):
    assert call("report", trained / "first", "-o", tmp_path / "page.html") == 0
    page = (tmp_path / "page.html").read_text()
    assert "data:image/png" in page
    named = re.findall(r'alt="((?:apple|leaf)/\d\d\.png)">', page)
    for name in named:
        assert f'<span class="quiet">{name}</span><span>' in page
        assert re.search(
            rf">{name}</span><span>predicted [^<]*</span><span>target {name[:4]}", page
        )
    assert len(named) >= 4
    text = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "training pictures the network" in text
    assert "each column" not in text
    assert "Each picture has its path in" in text


@pytest.mark.slow
def test_a_run_of_pictures_is_exported_as_it_predicts(trained, album, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    assert call("export", trained / "first", tmp_path / "one.onnx", "--samples", "2") == 0
    session = onnxruntime.InferenceSession(tmp_path / "one.onnx")
    (x,) = session.get_inputs()
    pixels = load(album, size=16).test.x.numpy()
    found = session.run(["probabilities"], {x.name: pixels})[0]
    assert found.shape == (4, 2)
    assert np.allclose(found.sum(-1), 1, atol=1e-5)


def test_weights_of_another_network_are_refused(trained, album, tmp_path, capsys):
    for net in ("resnet18", "resnet20_frn"):  # the latter has no running statistics
        given = ["--net", net, "--size", "16", "--epochs", "1", "--out", tmp_path / "no"]
        assert call("train", album, *given, "--pretrained", trained / "first") == 2
        assert "pretrained weights must be those of this --net" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--net", "resnet20", "--members", "3"], "takes no --members and no --prior_gain"),
        (["--net", "resnet20", "--prior_gain", "2"], "takes no --members and no --prior_gain"),
        (["--net", "resnet20", "--strength=-1"], "strength must be positive and finite"),
        (["--net", "resnet20", "--strength", "nan"], "strength must be positive and finite"),
        (["--net", "resnet20", "--strength", "0"], "this prior follows it, got 0.0"),
    ],
)
def test_settings_that_a_residual_network_has_not_are_refused(album, tmp_path, capsys, given, told):
    assert call("train", album, "--size", "8", *given, "--out", tmp_path / "no") == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_pretrained_weights_are_for_a_residual_network(trained, album, tmp_path, capsys):
    for data in (album, "diabetes"):
        given = ["--pretrained", trained / "first", "--out", tmp_path / "no"]
        assert call("train", data, *given) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "is for pictures and a resnet, got --net conv: choose a resnet, or" in said


def test_a_net_for_pictures_is_refused_for_a_table(tmp_path, capsys):
    assert call("train", "digits", "--net", "resnet18", "--out", tmp_path / "no") == 2
    assert "is read as a table, which takes no --net, got" in capsys.readouterr().err


def test_a_search_has_no_residual_networks_and_no_command_forgets_pretrained_weights(
    album, tmp_path, capsys
):
    assert call("tune", "digits", "--net", "resnet20", "--out", tmp_path / "no") == 2
    assert "tune has no option --net" in capsys.readouterr().err
    assert call("compare", album, "--pretrained", "x", "--out", tmp_path / "no") == 2
    assert "compare has no option --pretrained" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"pretrained must be a \.safetensors file, got x"):
        trainings.train(load(album, size=8), KL(), Training(net="resnet20", pretrained="x"))
