"""Commands killed at random moments: what is there is whole, and the same command goes on.

A child is forked from this process, so that it begins at once and not with imports.
"""

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import bayesdiv as bd
from bayesdiv.app import runs
from bayesdiv.app import training as trainings
from command import call

pytestmark = pytest.mark.slow
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
PATIENCE = 240  # seconds, after which a child hangs
QUICK = ["--test_samples", "3", "--members", "1", "--samples", "1"]


def started(work, *arguments):
    """A child that does this work and ends with its exit code."""
    child = os.fork()
    if child:
        return child
    try:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = work(*arguments)
    except BaseException:
        code = 99
    os._exit(code or 0)


def ended(child):
    """How a child ended: its exit code, or minus the signal that killed it."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("a child hangs")


def killed(seed, seconds, work, *arguments):
    """End a child by a random signal at a random moment of so many seconds."""
    r = random.Random(seed)
    how = r.choice(SIGNALS)
    child = started(work, *arguments)
    time.sleep(r.uniform(0.0, 1.1 * seconds))
    os.kill(child, how)
    code = ended(child)
    assert code in (0, 99, -how, 128 + how), (how, code)
    return how, code


def timed(work, *arguments):
    begin = time.monotonic()
    assert ended(started(work, *arguments)) == 0
    return time.monotonic() - begin


@pytest.fixture(scope="module")
def wholes(finished, tmp_path_factory):
    """Results of commands that nobody stopped, made once in a folder, and the seconds they took."""
    folder, took = tmp_path_factory.mktemp("wholes"), {}
    shutil.copy(finished / "numbers.csv", folder)

    def whole(work, *arguments):
        if arguments not in took:
            before = Path.cwd()
            os.chdir(folder)
            try:
                took[arguments] = timed(work, *arguments)
            finally:
                os.chdir(before)
        return took[arguments], folder

    return whole


def nothing_half_written(folder):
    names = [path.name for path in Path(folder).rglob("*") if path.name.endswith(".part")]
    assert not names


# train ---------------------------------------------------------------------------------------

TRAIN = ("train", "numbers.csv", "--epochs", "40", *QUICK)


@pytest.mark.parametrize("seed", range(16))
def test_a_killed_training_goes_on_bit_for_bit(place, wholes, monkeypatch, seed):
    monkeypatch.setattr(trainings, "SECONDS_BETWEEN_CHECKPOINTS", 0.05)
    seconds, folder = wholes(call, *TRAIN, "--out", "whole")
    for again in range(3):
        how, code = killed(10 * seed + again, seconds, call, *TRAIN, "--out", "parts")
        if how == signal.SIGTERM and code == 143 and Path("parts/history.jsonl").exists():
            done = len(runs.read_history(Path("parts")))
            assert Path("parts/checkpoint.safetensors").exists() or not done
        if Path("parts/metrics.json").exists():
            break
    if not Path("parts/metrics.json").exists():
        assert call(*TRAIN, "--out", "parts") == 0
    both = (folder / "whole", Path("parts"))
    whole, parts = (runs._read(each / runs.WEIGHTS)[0] for each in both)
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[key], parts[key]) for key in whole)
    results = [runs.read_json(each / runs.METRICS) for each in both]
    assert all(results[0][key] == results[1][key] for key in ("test", "validation", "best_epoch"))
    assert len(runs.read_history(Path("parts"))) == 40
    assert call("predict", "parts", "numbers.csv", "-o", "out.csv") == 0
    nothing_half_written("parts")


def test_of_two_trainings_in_one_folder_the_second_is_refused(place, wholes):
    _, folder = wholes(call, *TRAIN, "--out", "whole")
    children = [started(call, *TRAIN, "--out", "both") for _ in range(2)]
    assert sorted(map(ended, children)) == [0, 2]
    whole, both = (runs._read(f / runs.WEIGHTS)[0] for f in (folder / "whole", Path("both")))
    assert all(torch.equal(whole[key], both[key]) for key in whole)
    assert len(runs.read_history(Path("both"))) == 40


# compare -------------------------------------------------------------------------------------

COMPARE = ("compare", "numbers.csv", "--epochs", "5", "--seeds", "2", *QUICK)
LOSSES = ("--divergences", "KL", "JSA:0.3")


def numbers(folder):
    told = json.loads(Path(folder, "comparison.json").read_text())["results"]
    return {name: [run["test"] for run in found] for name, found in told.items()}


@pytest.mark.parametrize("seed", range(8))
def test_a_killed_comparison_is_whole_or_made_again(place, wholes, seed):
    seconds, folder = wholes(call, *COMPARE, *LOSSES, "--out", "compared")
    killed(100 + seed, seconds, call, *COMPARE, *LOSSES, "--out", "parts")
    if not Path("parts/comparison.json").exists():
        assert call(*COMPARE, *LOSSES, "--out", "parts") == 0
    assert numbers("parts") == numbers(folder / "compared")
    assert Path("parts/comparison.html").read_text().startswith("<!doctype html>")
    nothing_half_written("parts")


# tune ----------------------------------------------------------------------------------------

TUNE = ("tune", "numbers.csv", "--epochs", "3", "--trials", "4", *QUICK, "--search", "optuna")


@pytest.mark.parametrize("seed", range(8))
def test_a_killed_search_goes_on(place, wholes, seed):
    seconds, folder = wholes(call, *TUNE, "--out", "searched")
    killed(200 + seed, seconds, call, *TUNE, "--out", "parts")
    if not Path("parts/result.json").exists():
        assert call(*TUNE, "--out", "parts") == 0
    names = [
        {path.name for path in each.iterdir()} for each in (folder / "searched", Path("parts"))
    ]
    assert names[0] <= names[1]
    for path in Path("parts").glob("*.json"):
        json.loads(path.read_text())
    nothing_half_written("parts")


# export --------------------------------------------------------------------------------------


def exported(shift):
    torch.manual_seed(0)
    net = bd.bayesianize(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1)), bd.FanIn())
    net.posterior.loc.data += shift
    bd.export(net, bd.Gaussian(), torch.zeros(3, 2), "model.pt2", samples=3)
    return 0


@pytest.mark.parametrize("seed", range(8))
def test_a_killed_export_leaves_a_whole_file(place, wholes, seed):
    seconds, folder = wholes(exported, 0.0)
    before = (folder / "model.pt2").read_bytes()
    Path("model.pt2").write_bytes(before)
    killed(300 + seed, seconds, exported, 1.0)
    if Path("model.pt2").read_bytes() != before:
        assert torch.export.load("model.pt2").module()(torch.zeros(3, 2))
    assert sum(path.name.startswith("model") for path in Path().iterdir()) == 1
