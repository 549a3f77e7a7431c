"""Rows kept together, parted by time or by groups, tested on a file of their own, filled."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

from bayesdiv.app.data.columns import Dates, Encoder, Numeric, OneHot
from bayesdiv.app.data.loading import load, opened, parted
from bayesdiv.app.data.splits import DataError, Splits
from bayesdiv.app.data.table import add_noise, checked, split
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.app.tasks.regression import Regression

ROWS = 80
PARTS = ("train", "validation", "test")


def rows(count: int = ROWS) -> pd.DataFrame:
    random = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "a": random.normal(size=count),
            "town": random.choice(["Bern", "Oslo"], count),
            "day": [f"{1 + k % 28:02}/{1 + k // 28:02}/2024" for k in range(count)],
            "y": random.normal(size=count),
        }
    )


def parts_of(frame, seed=0, **options) -> list[np.ndarray]:
    """The values of column a in each part."""
    splits = split(checked(frame, "rows", target="y", **options), seed=seed)
    (column,) = [c for c in splits.encoder.columns if c.name == "a"]
    place = splits.encoder.names.index("a")
    return [
        (part.x[:, place].double() * column.scale + column.loc).numpy() for part in splits.parts
    ]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("target", ["y", "town"])
def test_repeated_rows_are_in_one_part_and_noted(seed, target):
    frame = pd.concat([rows(), rows().head(15), rows().head(4)], ignore_index=True)
    table = checked(frame, "rows", target=target)
    assert "rows that repeat another: 19, kept with it in one part" in table.notes
    splits = split(table, seed=seed)
    place = splits.encoder.names.index("a")
    seen = [set(part.x[:, place].tolist()) for part in splits.parts]
    assert seen[0].isdisjoint(seen[1] | seen[2])
    assert seen[1].isdisjoint(seen[2])
    assert sum(len(part.y) for part in splits.parts) == len(frame)


def test_a_table_of_few_different_rows_is_drawn_row_by_row():
    frame = pd.DataFrame({"a": [0, 1, 2, 3] * 20, "y": ["no", "yes"] * 40})
    table = checked(frame, "rows")
    assert "76 of 80 rows repeat others: too many to be kept in one part" in table.notes
    assert len(split(table).test.y) == 16


def test_a_table_without_repeats_is_drawn_as_before():
    """The rows of a seed are those of a permutation by torch, the first of them tested."""
    splits = split(checked(rows(), "rows", target="y"), seed=4)
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(4))
    assert splits.test_rows == tuple((order[:16] + 1).tolist())


def test_the_latest_rows_are_tested_and_those_before_them_validated():
    frame = rows().sample(frac=1, random_state=0)
    train, validation, test = parts_of(frame, apart="time:day")
    by_day = rows()["a"].to_numpy()
    assert (len(train), len(validation), len(test)) == (48, 16, 16)
    np.testing.assert_allclose(sorted(test), sorted(by_day[-16:]), atol=1e-6)
    np.testing.assert_allclose(sorted(train), sorted(by_day[:48]), atol=1e-6)


def test_rows_of_one_time_are_in_one_part():
    frame = rows().assign(year=np.repeat([2001, 2002, 2003, 2004, 2005], 16))
    for seed in range(2):
        train, validation, test = parts_of(frame, seed, apart="time:year")
        assert (len(train), len(validation), len(test)) == (48, 16, 16)
        np.testing.assert_allclose(sorted(test), sorted(frame["a"][-16:]), atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_a_group_is_in_one_part(seed):
    frame = rows().assign(patient=[f"p{k % 13}" for k in range(ROWS)])
    seen = []
    for part in parts_of(frame, seed, apart="group:patient"):
        near = np.abs(frame["a"].to_numpy() - part[:, None]).argmin(1)
        seen.append(set(frame["patient"].iloc[near]))
        assert seen[-1]
    assert sum(map(len, seen)) == 13


def test_the_column_that_parts_is_no_input_and_must_be_fit():
    table = checked(rows(), "rows", target="y", apart="time:day")
    assert "day" not in table.features
    assert "column 'day' splits the rows and is not an input" in table.notes
    with pytest.raises(DataError, match="column 'town' must hold a date or a number"):
        checked(rows(), "rows", target="y", apart="time:town")
    with pytest.raises(ValueError, match="split must be time:COLUMN or group:COLUMN, got day"):
        checked(rows(), "rows", target="y", apart="day")
    with pytest.raises(DataError, match="target 'y' cannot split the rows: choose another --split"):
        checked(rows(), "rows", target="y", apart="group:y")


def test_a_file_of_its_own_is_the_test_part(tmp_path):
    rows().to_csv(tmp_path / "train.csv", index=False)
    tested = rows(100).tail(20).assign(town="Oslo", more=1)
    tested.loc[tested.index[3], "town"] = "Paris"
    tested.to_csv(tmp_path / "test.csv", index=False)
    source = opened(tmp_path / "train.csv", target="y", tested_on=tmp_path / "test.csv")
    for seed in range(2):
        splits = parted(source, seed=seed)
        assert (len(splits.train.y), len(splits.validation.y), len(splits.test.y)) == (64, 16, 19)
        assert splits.test_rows == tuple(k for k in range(1, 21) if k != 4)
        left = "rows left out, as no training row has their category or gap: 1"
        assert left in splits.notes


def test_rows_of_the_test_file_that_are_trained_on_are_noted(tmp_path):
    rows().to_csv(tmp_path / "train.csv", index=False)
    rows().head(12).to_csv(tmp_path / "test.csv", index=False)
    notes = load(tmp_path / "train.csv", target="y", tested_on=tmp_path / "test.csv").notes
    assert "rows to test on that are among the others too: 12" in notes
    again = load(
        tmp_path / "train.csv", target="y", tested_on=tmp_path / "test.csv", apart="time:day"
    )
    assert "rows to test on that are among the others too: 12" in again.notes
    rows().drop(columns="a").to_csv(tmp_path / "less.csv", index=False)
    with pytest.raises(DataError, match=r"lacks the column 'a' of train.csv: add what is"):
        load(tmp_path / "train.csv", target="y", tested_on=tmp_path / "less.csv")


def test_a_file_to_test_on_without_any_target_is_refused(tmp_path):
    rows().to_csv(tmp_path / "train.csv", index=False)
    rows().head(5).assign(y=np.nan).to_csv(tmp_path / "test.csv", index=False)
    with pytest.raises(DataError, match="must have a row with a value of the target 'y', got none"):
        load(tmp_path / "train.csv", target="y", tested_on=tmp_path / "test.csv")


# Missing values


def test_missing_values_are_filled_as_scikit_learn_does_and_marked():
    frame = rows()[["a", "town"]]
    frame.loc[[1, 5], "a"] = np.nan
    frame.loc[[2, 7, 9], "town"] = np.nan
    encoder = Encoder.fit(frame)
    x = encoder.encode(frame).numpy()
    imputed = SimpleImputer(strategy="median", add_indicator=True).fit_transform(frame[["a"]])
    scaler = StandardScaler().fit(frame[["a"]].dropna().to_numpy())
    np.testing.assert_allclose(x[:, :1], scaler.transform(imputed[:, :1]), atol=1e-6)
    np.testing.assert_array_equal(x[:, 1], imputed[:, 1])
    commonest = SimpleImputer(strategy="most_frequent").fit_transform(frame[["town"]])
    np.testing.assert_array_equal(x[:, 2], commonest[:, 0] == "Bern")
    np.testing.assert_array_equal(x[:, 4], frame["town"].isna())
    again = Encoder.from_json(encoder.to_json())
    assert again == encoder
    assert again.columns[0].fill is not None


def test_filling_is_asked_for_and_noted():
    frame = rows()
    frame.loc[[1, 5], "a"] = np.nan
    with pytest.raises(DataError, match="2 in 'a', the first in row 2: fill them with --impute"):
        checked(frame, "rows", target="y")
    table = checked(frame, "rows", target="y", impute=True)
    assert "missing values are filled and marked: 2 in 'a'" in table.notes
    assert len(split(table).train.x[0]) == 5


def test_an_odd_word_among_numbers_is_filled_too():
    frame = rows().assign(age=[str(20 + k % 30) for k in range(ROWS)])
    frame.loc[3, "age"] = "unknown"
    table = checked(frame, "rows", target="y", impute=True)
    said = "missing values are filled and marked: 1 in 'age'; 1 in 'age' is not a number: 'unknown'"
    assert f"{said} in row 4" in table.notes
    kinds = {column.name: column for column in split(table).encoder.columns}
    assert kinds["age"].fill is not None
    assert isinstance(kinds["age"], Numeric)
    new = pd.Series(["30", "unknown", None, "3 or 4"], name="age")
    told = kinds["age"].problems(new)
    assert told == ["", "", "", "column 'age' must hold numbers, got '3 or 4'"]
    alone = Encoder((kinds["age"],), (2,))
    assert alone.encode(new[:3].to_frame())[:, 1].tolist() == [0.0, 1.0, 1.0]


def test_a_column_without_any_value_is_left_out():
    table = checked(rows().assign(empty=np.nan), "rows", target="y")
    assert "columns without a value left out: 'empty'" in table.notes


def test_rows_without_a_target_are_left_out_and_counted():
    frame = rows()
    frame.loc[[4, 6], "y"] = np.nan
    table = checked(frame, "rows", target="y")
    assert "rows left out, as their target 'y' is missing: 2" in table.notes
    splits = split(table)
    assert not {5, 7} & set(splits.test_rows)
    assert sum(len(part.y) for part in splits.parts) == ROWS - 2


# What a column and a target are


def test_a_day_that_comes_first_is_seen_in_the_training_rows_and_kept():
    (column,) = Encoder.fit(rows()[["day"]]).columns
    assert column == Dates("day", column.loc, column.scale, format="%d/%m/%Y")
    (value,) = column.values(pd.Series(["03/02/2024"], name="day"))
    assert value == (pd.Timestamp(2024, 2, 3) - pd.Timestamp(0)).days
    assert Encoder.from_json(Encoder((column,), (1,)).to_json()).columns == (column,)


def test_a_date_that_stands_for_no_end_is_a_number_of_days():
    frame = rows().assign(day=["2024-01-02", "9999-12-31"] * (ROWS // 2))
    (column,) = Encoder.fit(frame[["day"]]).columns
    assert column.values(frame["day"])[:2].tolist() == [19724.0, 2932896.0]


def test_dates_that_could_be_read_in_two_ways_are_noted():
    frame = rows().assign(day=[f"{1 + k % 12:02}/{1 + k % 5:02}/2024" for k in range(ROWS)])
    notes = checked(frame, "rows", target="y").notes
    assert any("'day' holds dates, read as %m/%d/%Y; if the day comes first" in n for n in notes)


@pytest.mark.parametrize(
    ("target", "task", "words"),
    [
        (np.random.default_rng(0).poisson(2.0, ROWS), Regression, "--task counts"),
        (np.arange(ROWS) % 10, Classification, "--task regression"),
        (np.repeat([0, 1], [70, 10]), Classification, "--task regression"),
    ],
)
def test_counts_are_a_quantity_and_a_note_says_how_to_change_it(target, task, words):
    table = checked(rows().assign(y=target), "rows", target="y")
    assert table.task is task
    assert any(words in note for note in table.notes)


def test_a_column_that_numbers_the_rows_is_noted():
    notes = checked(rows().assign(id=np.arange(ROWS)), "rows", target="y").notes
    assert "column 'id' numbers the rows; if it says nothing, leave it out with --drop id" in notes


def test_columns_to_drop_may_be_named_together(tmp_path):
    frame = rows().assign(**{"b,c": 1.0, "note": [f"text {k}" for k in range(ROWS)]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match="drop it with --drop note"):
        load(tmp_path / "t.csv", target="y")
    splits = load(tmp_path / "t.csv", target="y", drop=["note,day"])
    assert splits.encoder.names == ("a", "town")
    assert load(tmp_path / "t.csv", target="y", drop=["b,c", "note"]).encoder.names[-1] == "day"


def test_numbers_of_a_regression_may_have_a_unit():
    frame = rows().assign(y=[f"{k % 37} €" for k in range(ROWS)])
    splits = split(checked(frame, "rows", target="y"))
    assert type(splits.task) is Regression
    assert isinstance(splits.encoder.columns[1], OneHot)


# Noise on inputs and classes thinned out -----------------------------------------------------


@pytest.fixture(scope="module")
def digits() -> Splits:
    return load("digits")


def added(noisy: Splits, clean: Splits, part: str) -> torch.Tensor:
    return getattr(noisy, part).x - getattr(clean, part).x


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
    add_noise(digits, 0.5)
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
