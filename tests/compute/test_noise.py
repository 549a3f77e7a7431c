"""Noise for many weights: its distribution, its seed, and that both ways to it agree."""

import math
import os
import shutil

import numpy as np
import pytest
import torch
from scipy import stats

from bayesdiv.compute import native, noise

COUNT = 1_000_003
needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CC") or "cc") is None, reason="there is no C compiler"
)


@pytest.fixture(params=["as it comes", "in passes"])
def drawn(request, monkeypatch):
    """A million numbers, in the way that this machine takes and in plain operations."""
    if request.param == "in passes":
        monkeypatch.setattr(noise, "_transform", lambda: noise.in_passes)
    torch.manual_seed(0)
    return noise.standard_normal((COUNT,), torch.empty(0)).numpy()


def test_it_is_normal(drawn):
    assert drawn.dtype == np.float32
    assert drawn.shape == (COUNT,)
    assert stats.kstest(drawn, "norm").pvalue > 0.01
    assert abs(drawn.mean()) < 5 / math.sqrt(COUNT)
    assert abs((drawn.astype(float) ** 4).mean() - 3) < 5 * math.sqrt(96 / COUNT)


def test_its_tails_are_those_of_a_normal(drawn):
    for limit in (3.0, 4.0):
        share = 2 * stats.norm.sf(limit)
        found = (np.abs(drawn) > limit).sum()
        assert abs(found - COUNT * share) < 5 * math.sqrt(COUNT * share)


def test_numbers_do_not_depend_on_each_other(drawn):
    half = (COUNT + 1) // 2  # the two numbers of a pair lie so far apart
    for values in (drawn, np.abs(drawn)):
        for lag in (1, 2, half):
            found = np.corrcoef(values[:-lag], values[lag:])[0, 1]
            assert abs(found) < 5 / math.sqrt(COUNT - lag)


def test_a_seed_repeats_it_and_calls_differ():
    like = torch.empty(0)
    torch.manual_seed(3)
    first, second = (noise.standard_normal((2, noise.MANY), like) for _ in range(2))
    torch.manual_seed(3)
    assert torch.equal(noise.standard_normal((2, noise.MANY), like), first)
    assert abs(np.corrcoef(first.flatten(), second.flatten())[0, 1]) < 0.01


def test_words_become_numbers_by_the_formula():
    words = np.random.SFC64(1).random_raw(500).view(np.int32)
    low = ((words[500:] & 0x1FFFF) + np.float32(0.5)) / np.float32(2.0**48)
    high = (words[:500].view(np.uint32) >> 1).astype(np.float32) / np.float32(2.0**31)
    uniform = (high + low.astype(np.float32)).astype(float)  # the last digit counts near 1
    angle = math.pi * words[500:].astype(float) / 2**31
    radius = np.sqrt(-2 * np.log(uniform))
    wanted = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    for transform in (noise.in_passes, noise._transform()):
        found = transform(torch.from_numpy(words.copy()))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("word", [0, -1, 255, 256, 2**31 - 1, -(2**31)])
def test_no_word_gives_anything_but_a_number(word):
    for transform in (noise.in_passes, noise._transform()):
        found = transform(torch.full((64,), word, dtype=torch.int32))
        assert found.isfinite().all()
        assert found.abs().max() < 8.3


def test_the_extreme_word_maps_beyond_eight_standard_deviations():
    for transform in (noise.in_passes, noise._transform()):
        found = transform(torch.zeros(64, dtype=torch.int32))
        assert found.abs().max().item() == pytest.approx(math.sqrt(2 * 49 * math.log(2)), rel=1e-6)


@pytest.mark.slow
def test_a_billion_draws_have_the_tails_of_a_normal():
    limits, rounds, each = (4.0, 5.0, 5.5, 5.77), 120, 1 << 23
    found = torch.zeros(len(limits))
    for seed in range(rounds):
        far = noise.many(each, seed).abs_()
        far = far[far > limits[0]]
        found += torch.tensor([float((far > limit).sum()) for limit in limits])
    for limit, count in zip(limits, found.tolist(), strict=True):
        wanted = rounds * each * 2 * stats.norm.sf(limit)
        assert abs(count - wanted) < 5 * math.sqrt(wanted), limit
    assert found[-1] > 0


@pytest.mark.parametrize("count", [100, noise.MANY])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_given_seed_makes_the_same_noise_again_and_leaves_the_generator_alone(count, dtype):
    like = torch.empty(0, dtype=dtype)
    before = torch.get_rng_state()
    first, again, other = (noise.standard_normal((count,), like, seed) for seed in (7, 7, 8))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    assert abs(np.corrcoef(first, other)[0, 1]) < 5 / math.sqrt(count)


@pytest.mark.parametrize("plain", [False, True])
def test_words_are_those_of_the_generator_and_leave_it_where_they_end(plain, monkeypatch):
    if plain:
        monkeypatch.setattr(native, "library", lambda: None)
    noise._words.cache_clear()
    found, wanted = np.random.SFC64(7), np.random.SFC64(7)
    for count in (1, 4097, 0, 2):
        assert np.array_equal(noise._words()(found, count), wanted.random_raw(count))
    assert found.random_raw() == wanted.random_raw()
    noise._words.cache_clear()


@needs_compiler
def test_code_that_computes_something_else_is_left_alone(monkeypatch, caplog):
    class Wrong:
        @staticmethod
        def normals(*arguments):
            """Leaves the words as they are."""

    monkeypatch.setattr(native, "library", Wrong)
    assert noise._transform.__wrapped__() is noise.in_passes
    assert "noise is not used" in caplog.text


def test_without_a_compiler_plain_operations_serve(monkeypatch):
    monkeypatch.setattr(native, "library", lambda: None)
    assert noise._transform.__wrapped__() is noise.in_passes


@pytest.mark.parametrize(
    ("count", "dtype"),
    [(noise.MANY - 1, torch.float32), (noise.MANY, torch.float64)],
)
def test_few_numbers_and_other_dtypes_are_those_of_torch(count, dtype):
    torch.manual_seed(0)
    found = noise.standard_normal((count,), torch.empty(0, dtype=dtype))
    torch.manual_seed(0)
    assert torch.equal(found, torch.randn(count, dtype=dtype))


def test_under_vmap_each_row_has_noise_of_its_own():
    def noisy(x):
        return x + noise.standard_normal((noise.MANY,), x)

    rows = torch.vmap(noisy, randomness="different")(torch.zeros(2, noise.MANY))
    assert not torch.equal(*rows)


def test_no_default_of_torch_disturbs_it():
    like = torch.empty(0)
    torch.manual_seed(0)
    wanted = noise.standard_normal((noise.MANY,), like)
    torch.manual_seed(0)
    with torch.device("meta"):
        found = noise.standard_normal((noise.MANY,), like)
    assert torch.equal(found, wanted)
