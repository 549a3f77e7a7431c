"""Noise on inputs and classes thinned out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesdiv.app.data.loading import load
from bayesdiv.app.data.splits import DataError, Splits
from bayesdiv.app.data.splitting import Bias, add_noise, thin
from bayesdiv.app.tasks.classification import Classification

PARTS = ("train", "validation", "test")


@pytest.fixture(scope="module")
def digits() -> Splits:
    return load("digits")


@pytest.fixture(scope="module")
def tumours() -> Splits:
    return load("breast_cancer")


def added(noisy: Splits, clean: Splits, part: str) -> torch.Tensor:
    return getattr(noisy, part).x - getattr(clean, part).x


def count(part: tuple[torch.Tensor, torch.Tensor], code: int) -> int:
    return int((part[1] == code).sum())


@pytest.mark.parametrize("part", PARTS)
def test_noise_has_its_scale_in_every_part_and_leaves_targets_alone(digits, part):
    noisy = add_noise(digits, 0.5, seed=1)
    noise = added(noisy, digits, part)
    assert abs(noise.mean()) < 0.02
    assert abs(noise.std() - 0.5) < 0.01
    assert abs((noise.abs() < 0.5).float().mean() - 0.6827) < 0.01
    assert torch.equal(getattr(noisy, part).y, getattr(digits, part).y)


def test_noise_differs_between_parts_rows_and_columns(digits):
    noisy = add_noise(digits, 1.0)
    train, test = added(noisy, digits, "train"), added(noisy, digits, "test")
    assert not torch.allclose(train[: len(test)], test)
    assert train.flatten(1).std(0).min() > 0.8
    assert train.flatten(1).std(1).min() > 0.6


def test_a_seed_fixes_the_noise(digits):
    first, again, other = (add_noise(digits, 0.5, seed) for seed in (1, 1, 2))
    assert torch.equal(first.test.x, again.test.x)
    assert not torch.equal(first.test.x, other.test.x)


def test_noise_leaves_the_random_numbers_of_others_alone(digits):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    thin(add_noise(digits, 0.5), Bias("3", 0.5))
    assert torch.equal(torch.rand(3), expected)


def test_no_noise_changes_nothing(digits):
    assert add_noise(digits, 0.0) is digits


@pytest.mark.parametrize("scale", [-0.1, float("nan"), float("inf")])
def test_noise_that_is_no_standard_deviation_is_refused(digits, scale):
    with pytest.raises(DataError, match=r"noise must be a finite standard deviation .* got"):
        add_noise(digits, scale)


def test_loading_adds_the_noise_once_after_scaling():
    clean, noisy = load("diabetes", seed=5), load("diabetes", seed=5, noise=0.3)
    assert torch.equal(noisy.train.x, add_noise(clean, 0.3, seed=5).train.x)
    assert noisy.encoder == clean.encoder


def test_a_bias_thins_its_class_in_training_and_validation_alone(tumours):
    thinned = thin(tumours, Bias("malignant", keep=0.2))
    for part in ("train", "validation"):
        before, after = getattr(tumours, part), getattr(thinned, part)
        assert count(after, 1) == round(0.2 * count(before, 1))
        assert count(after, 0) == count(before, 0)
    assert thinned.test is tumours.test


def test_a_bias_keeps_pairs_of_x_and_y_and_their_order(tumours):
    thinned = thin(tumours, Bias("malignant", keep=0.5))
    places = [int((tumours.train.x == x).all(1).nonzero()[0, 0]) for x in thinned.train.x]
    assert places == sorted(places)
    assert torch.equal(tumours.train.y[places], thinned.train.y)


def test_a_bias_is_noted_with_its_counts(tumours):
    before = count(tumours.train, 1)
    note = f"bias leaves {round(before * 0.2)} of {before} training rows of class 'malignant'"
    assert thin(tumours, Bias("malignant", keep=0.2)).notes == (note,)


def test_a_seed_fixes_the_rows_that_a_bias_leaves(tumours):
    first, again, other = (thin(tumours, Bias(1, 0.2), seed) for seed in (1, 1, 2))
    assert torch.equal(first.train.x, again.train.x)
    assert not torch.equal(first.train.x, other.train.x)


def test_a_keep_of_one_keeps_every_row(tumours):
    assert torch.equal(thin(tumours, Bias("benign", 1.0)).train.x, tumours.train.x)


@pytest.mark.parametrize("label", ["malignant", "1", 1])
def test_a_label_is_a_name_or_an_index(tumours, label):
    assert Bias(label, 0.2).index(tumours.task.classes) == 1


@pytest.mark.parametrize("label", [2, "2"])
def test_a_name_goes_before_an_index(label):
    assert Bias(label, 0.5).index(("1", "2", "3")) == 1


@pytest.mark.parametrize("label", ["Malignant", "2", -1, "", "²"])
def test_an_unknown_label_is_refused_with_the_classes(tumours, label):
    with pytest.raises(DataError, match="one of the classes 'benign', 'malignant' or an index"):
        thin(tumours, Bias(label, 0.5))


@pytest.mark.parametrize("keep", [0.0, -0.5, 1.1, float("nan")])
def test_a_share_outside_zero_to_one_is_refused(keep):
    with pytest.raises(DataError, match=r"keep must lie in \(0, 1\], got"):
        Bias("malignant", keep)


def test_a_bias_that_leaves_no_training_row_is_refused(tumours):
    with pytest.raises(DataError, match=r"must leave a training row .* got 0\.001 of 127 rows"):
        thin(tumours, Bias("malignant", 0.001))


def test_a_bias_on_a_regression_is_refused():
    with pytest.raises(DataError, match="bias must name a class, but diabetes is a regression"):
        load("diabetes", bias=Bias("1", 0.5))


@pytest.mark.parametrize(
    ("text", "bias"),
    [
        ("malignant:0.2", Bias("malignant", 0.2)),
        ("1:0.2", Bias("1", 0.2)),
        ("ratio 1:2:0.5", Bias("ratio 1:2", 0.5)),
    ],
)
def test_a_bias_is_read_from_text(text, bias):
    assert Bias.parse(text) == bias


@pytest.mark.parametrize("text", ["malignant", "malignant:", ":0.2", "malignant:few", "", ":"])
def test_text_that_is_no_bias_is_refused(text):
    with pytest.raises(DataError, match="must be written LABEL:KEEP"):
        Bias.parse(text)


def test_a_share_outside_zero_to_one_in_text_is_refused():
    with pytest.raises(DataError, match=r"keep must lie in \(0, 1\], got 2\.0"):
        Bias.parse("malignant:2")


def test_the_test_part_is_the_same_with_and_without_bias():
    plain = load("breast_cancer", noise=0.5)
    biased = load("breast_cancer", noise=0.5, bias=Bias.parse("malignant:0.2"))
    assert torch.equal(plain.test.x, biased.test.x)
    assert biased.num_data < plain.num_data


@settings(max_examples=30)
@given(keep=st.floats(0.01, 1.0), code=st.integers(0, 9))
def test_a_bias_leaves_its_share_of_any_class(digits, keep, code):
    assert isinstance(digits.task, Classification)
    thinned = thin(digits, Bias(code, keep))
    assert count(thinned.train, code) == round(keep * count(digits.train, code))
    rest = thinned.num_data - count(thinned.train, code)
    assert rest == digits.num_data - count(digits.train, code)
