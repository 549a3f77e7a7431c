"""The data sets that come along, against scikit-learn's own arrays; and names that do not exist."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from bayesdiv.app.data.columns import Encoder
from bayesdiv.app.data.loading import datasets, load, opened
from bayesdiv.app.data.splits import DataError, Splits
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.app.tasks.regression import Regression

EMBEDDED = ("breast_cancer", "diabetes", "digits")


def together(splits: Splits) -> tuple[torch.Tensor, torch.Tensor]:
    parts = (splits.train, splits.validation, splits.test)
    return torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts])


@pytest.mark.parametrize("name", EMBEDDED)
def test_every_embedded_set_loads_the_same_twice_and_without_notes(name):
    first, again, other = load(name), load(name), load(name, seed=1)
    assert torch.equal(first.train.x, again.train.x)
    assert torch.equal(first.test.y, again.test.y)
    assert not torch.equal(first.train.x, other.train.x)
    assert (first.name, first.notes) == (name, ())


@pytest.mark.parametrize("name", EMBEDDED)
def test_the_encoder_of_an_embedded_set_survives_json(name):
    splits = load(name)
    again = Encoder.from_json(json.loads(json.dumps(splits.encoder.to_json())))
    frame = opened(name).frame
    assert torch.equal(again.encode(frame), splits.encoder.encode(frame))


@pytest.mark.parametrize("name", EMBEDDED)
def test_the_parts_hold_every_row_once(name):
    splits = load(name)
    x, y = together(splits)
    frame = opened(name).frame
    assert len(x) == len(y) == len(frame)
    expected = splits.encoder.encode(frame).double().sum(0)
    torch.testing.assert_close(x.double().sum(0), expected)


def test_diabetes_is_a_regression_in_units_of_progression():
    splits = load("diabetes")
    assert isinstance(splits.task, Regression)
    assert splits.shape == (10,)
    _, y = together(splits)
    expected = np.sort(load_diabetes().target)
    np.testing.assert_allclose(np.sort(splits.task.to_units(y)), expected, rtol=1e-5)


def test_diabetes_is_standardised_by_its_training_rows():
    x, y = load("diabetes").train
    assert x.mean(0).abs().max() < 1e-5
    assert (x.std(0, correction=0) - 1).abs().max() < 1e-5
    assert abs(y.mean()) < 1e-5


def test_a_new_patient_is_told_in_years_and_not_in_scaled_ones():
    age = load("diabetes").encoder.columns[0]
    assert age.name == "age"
    assert 45 < age.loc < 52
    assert 10 < age.scale < 16


def test_class_one_of_breast_cancer_is_malignant():
    splits = load("breast_cancer")
    assert splits.task == Classification(("benign", "malignant"))
    _, y = together(splits)
    found = load_breast_cancer()
    malignant = list(found.target_names).index("malignant")
    assert int(y.sum()) == int((found.target == malignant).sum()) == 212


def test_malignant_tumours_are_the_larger_ones():
    splits = load("breast_cancer")
    radius = splits.train.x[:, splits.encoder.names.index("mean radius")]
    assert radius[splits.train.y == 1].mean() > radius[splits.train.y == 0].mean() + 1


def test_digits_are_images_between_zero_and_one():
    splits = load("digits")
    x, y = together(splits)
    assert x.shape == (1797, 1, 8, 8)
    assert (x.min(), x.max()) == (0, 1)
    assert splits.task == Classification(tuple("0123456789"))
    assert splits.num_features == 64
    assert y.unique().tolist() == list(range(10))


def test_digits_are_upright():
    splits = load("digits")
    frame = opened("digits").frame
    found = load_digits()
    images = torch.tensor(found.images / 16, dtype=torch.float32)
    assert torch.equal(splits.encoder.encode(frame)[:, 0], images)


def test_digits_are_stratified():
    counts = torch.bincount(load("digits").test.y)
    assert (counts - torch.from_numpy(np.bincount(load_digits().target)) * 0.2).abs().max() < 1.5


@pytest.mark.parametrize(
    "options", [{"target": "age"}, {"drop": ("age",)}, {"task": Classification}]
)
def test_choices_for_files_are_refused_for_an_embedded_set(options):
    with pytest.raises(DataError, match="'diabetes' is a ready-made data set, which takes no"):
        load("diabetes", **options)


def test_the_own_target_of_an_embedded_set_may_be_said():
    assert load("diabetes", target="progression", task=Regression).target == "progression"


@pytest.mark.parametrize(
    ("typed", "meant"), [("diabete", "diabetes"), ("concret", "concrete"), ("wine-red", "wine_red")]
)
def test_a_misspelt_name_gets_the_closest_one_and_no_list(typed, meant):
    with pytest.raises(DataError) as caught:
        load(typed)
    assert str(caught.value) == (
        "data must be a .csv, .tsv, .txt, .xlsx or .parquet file or the name of a data set, got "
        f"{typed!r}; did you mean {meant!r}?"
    )


def test_a_name_like_no_other_gets_all_names_in_order():
    with pytest.raises(DataError, match=r"one of airfoil, .*, yacht, got 'mortgages'$") as caught:
        load("mortgages")
    names = str(caught.value).split("one of ")[1].split(", got")[0].split(", ")
    assert names == datasets()


def test_the_data_side_imports_no_heavy_package_before_it_loads():
    code = (
        "import sys, bayesdiv.app.data.loading; "
        "print([m for m in ('pandas', 'sklearn', 'pyarrow', 'pooch', 'rich') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
