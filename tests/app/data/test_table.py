"""Files and tables: what is refused and in which words, how rows are split and encoded."""

import datetime
import decimal
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from bayesdiv.app.data.columns import Encoder, Numeric, OneHot, kind_of
from bayesdiv.app.data.files import read, read_text
from bayesdiv.app.data.loading import load, opened, parted
from bayesdiv.app.data.splits import DataError, Splits
from bayesdiv.app.data.table import checked, split
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.app.tasks.regression import Regression

ROWS = 60


def houses(rows: int = ROWS) -> pd.DataFrame:
    """A table with numbers, text and bools whose last column is a quantity."""
    rng = np.random.default_rng(7)
    return pd.DataFrame(
        {
            "area": rng.normal(120.0, 30.0, rows),
            "rooms": rng.integers(1, 9, rows),
            "town": rng.choice(["Bergen", "Oslo", "Tromsø"], rows),
            "garden": rng.random(rows) < 0.5,
            "price": rng.normal(300.0, 80.0, rows),
        }
    )


def csv(folder: Path, frame: pd.DataFrame, name: str = "houses.csv") -> Path:
    path = folder / name
    frame.to_csv(path, index=False)
    return path


def text(folder: Path, content: str | bytes, name: str = "rows.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def all_parts(splits: Splits) -> list[torch.Tensor]:
    return [tensor for part in (splits.train, splits.validation, splits.test) for tensor in part]


def from_frame(frame: pd.DataFrame, **options) -> Splits:
    return split(checked(frame, "table", **options))


# What a file must be


def test_a_file_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"the file .*absent\.csv does not exist"):
        load(tmp_path / "absent.csv")


def test_a_folder_is_refused_as_a_table(tmp_path):
    with pytest.raises(DataError, match="got the folder"):
        read(tmp_path)


def test_an_unknown_suffix_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"must be a \.csv, .* or \.parquet file, got .*rows\.json"):
        load(text(tmp_path, "a,b\n1,2\n", "rows.json"))


def test_a_suffix_may_be_in_capitals(tmp_path):
    assert len(read(text(tmp_path, "a,b\n1,2\n", "rows.CSV"))) == 1


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_an_empty_file_is_refused(tmp_path, content):
    with pytest.raises(DataError, match="got an empty file"):
        read(text(tmp_path, content))


def test_a_header_alone_is_refused(tmp_path):
    with pytest.raises(DataError, match="must have rows, got none"):
        read(text(tmp_path, "a,b\n"))


def test_fewer_than_ten_rows_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"houses\.csv must have at least 10 rows, got 9"):
        load(csv(tmp_path, houses(9)))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"\x00\x01\x02" * 50, "got a binary file"),
        ("a,b\n1,é\n".encode("utf-16-le"), "got a binary file"),
        ("a,b\n1,café\n".encode("latin-1"), "must be UTF-8 text"),
        (b"\xff\xd8\xff\xe0" * 50, "must be UTF-8 text"),
    ],
)
def test_a_csv_file_that_is_no_utf8_text_is_refused(tmp_path, content, complaint):
    with pytest.raises(DataError, match=complaint):
        read(text(tmp_path, content))


@pytest.mark.parametrize("rows", ["1,2\n3,4,5\n", "1,2,9\n3,4,9\n", '"1,2\n3,4\n'])
def test_rows_with_more_fields_than_the_header_or_an_open_quote_are_refused(tmp_path, rows):
    with pytest.raises(DataError, match="as many fields in each row as in its header") as caught:
        read(text(tmp_path, "a,b\n" + rows))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"not a table at all"])
def test_a_parquet_file_that_is_none_is_refused(tmp_path, content):
    with pytest.raises(DataError, match="must be a Parquet file"):
        read(text(tmp_path, content, "rows.parquet"))


def test_an_unreadable_file_is_refused(tmp_path, monkeypatch):
    path = csv(tmp_path, houses())

    def refuse(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"must be readable, got: .*Permission denied"):
        read(path)


@pytest.mark.parametrize(
    "content", ["a,b,a\n1,2,3\n", "\na, b,a\n1,2,3\n", "a ,b,a\n1,2,3\n", "\ufeffa;b;a\n1;2;3\n"]
)
def test_duplicate_column_names_of_a_csv_file_are_refused(tmp_path, content):
    with pytest.raises(DataError, match="names must differ, got 'a' more than once"):
        read(text(tmp_path, content))


def test_duplicate_column_names_of_a_parquet_file_are_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    for names in (["a", "a"], ["a", "a "]):
        pq.write_table(pa.table([[1, 2], [3, 4]], names=names), path)
        with pytest.raises(DataError, match="names must differ, got 'a' more than once"):
            read(path)


def test_duplicate_column_names_of_a_pandas_table_are_refused():
    frame = pd.DataFrame([[1, 2]] * 12, columns=["a", "a"])
    with pytest.raises(DataError, match="names must differ"):
        checked(frame, "table")
    with pytest.raises(DataError, match="names must differ"):
        Encoder((Numeric("a", 0.0, 1.0),), (1,)).encode(frame)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_commas_semicolons_and_tabs_may_separate_fields(tmp_path, separator):
    path = tmp_path / "houses.csv"
    houses().to_csv(path, index=False, sep=separator)
    pd.testing.assert_frame_equal(read(path), houses())


def test_a_byte_order_mark_and_spaces_after_commas_are_no_part_of_names(tmp_path):
    frame = read(text(tmp_path, b"\xef\xbb\xbfa, b\n1, x\n"))
    assert frame.to_dict("list") == {"a": [1], "b": ["x"]}


def test_a_question_mark_is_a_missing_value(tmp_path):
    rows = "\n".join(f"{i},{i % 2}" for i in range(20))
    with pytest.raises(DataError, match="1 in 'a'"):
        load(text(tmp_path, f"a,b\n?,1\n{rows}\n"))


def test_a_csv_and_a_parquet_file_of_one_table_give_the_same_parts(tmp_path):
    path = tmp_path / "houses.parquet"
    houses().to_parquet(path)
    first, second = load(csv(tmp_path, houses())), load(path)
    assert first.encoder.names == second.encoder.names
    for a, b in zip(all_parts(first), all_parts(second), strict=True):
        torch.testing.assert_close(a, b)


def test_row_names_of_a_parquet_file_are_no_column(tmp_path):
    path = tmp_path / "houses.parquet"
    houses().set_index(pd.Index(range(100, 100 + ROWS))).to_parquet(path)
    assert list(read(path).columns) == list(houses().columns)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_read_as_text_can_be_written_back_unaltered(tmp_path, separator):
    rows = [
        ["code", "width", "note"],
        ["007", "1.50", "NA"],
        ["010", "", "?"],
        ["1e3", "nan", f'"a{separator}b"'],
        ["True", "2", "ø "],
    ]
    content = "".join(separator.join(row) + "\n" for row in rows)
    path = text(tmp_path, content)
    frame, found = read_text(path)
    assert found == separator
    assert frame["code"].tolist() == ["007", "010", "1e3", "True"]
    copy = tmp_path / "copy.csv"
    frame.to_csv(copy, index=False, sep=found)
    assert copy.read_bytes() == path.read_bytes()


def test_a_table_read_as_text_has_the_rows_and_columns_of_the_table(tmp_path):
    path = text(tmp_path, "\ufeff,a, b\n\n0,1, x\n1,2\n\n")
    frame, _ = read_text(path)
    assert list(frame.columns) == list(read(path).columns) == ["Unnamed: 0", "a", "b"]
    assert frame.to_numpy().tolist() == [["0", "1", "x"], ["1", "2", ""]]


def test_a_parquet_file_read_as_text_is_the_table_and_a_comma(tmp_path):
    path = tmp_path / "houses.parquet"
    houses().to_parquet(path)
    frame, separator = read_text(path)
    pd.testing.assert_frame_equal(frame, houses())
    assert separator == ","


def test_a_file_that_is_no_table_cannot_be_read_as_text_either(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        read_text(tmp_path / "absent.csv")
    with pytest.raises(DataError, match="as many fields in each row as in its header"):
        read_text(text(tmp_path, "a,b\n1,2,3\n"))


# Names


def test_an_unknown_target_lists_the_columns_and_suggests_the_closest(tmp_path):
    with pytest.raises(DataError) as caught:
        load(csv(tmp_path, houses()), target="Prize")
    message = str(caught.value)
    assert "'area', 'rooms', 'town', 'garden', 'price'" in message
    assert "did you mean 'price'?" in message


def test_an_unknown_column_to_drop_is_refused():
    with pytest.raises(DataError, match="did you mean 'rooms'"):
        checked(houses(), "table", drop=["room"])


def test_a_long_list_of_columns_is_cut_short():
    frame = pd.DataFrame(np.zeros((12, 50)), columns=[f"c{i}" for i in range(50)])
    with pytest.raises(DataError, match="'c19' and 30 more"):
        checked(frame, "table", target="zzz")


def test_without_a_target_the_last_column_is_taken_and_said(tmp_path):
    splits = load(csv(tmp_path, houses()))
    assert splits.target == "price"
    assert "the target is the last column, 'price'" in splits.notes


def test_the_name_of_a_file_and_its_target_stay_with_the_splits(tmp_path):
    splits = load(csv(tmp_path, houses()), target="area")
    assert (splits.name, splits.target, splits.notes) == ("houses.csv", "area", ())
    assert "area" not in splits.encoder.names


def test_dropped_columns_are_not_encoded():
    splits = from_frame(houses(), drop=("town", "garden"))
    assert splits.encoder.names == ("area", "rooms")


def test_a_target_cannot_be_dropped():
    with pytest.raises(DataError, match="the target 'price' cannot be dropped"):
        checked(houses(), "table", target="price", drop=["price"])


def test_a_table_of_the_target_alone_is_refused():
    with pytest.raises(DataError, match="a target and a column to predict it from, got 'price'"):
        checked(houses()[["price"]], "table")


def test_columns_without_a_name_are_left_out_and_counted(tmp_path):
    path = tmp_path / "indexed.csv"
    houses().to_csv(path)
    splits = load(path, target="price")
    assert splits.encoder.names == ("area", "rooms", "town", "garden")
    assert splits.notes == ("columns without a name left out: 1",)


# Values


def test_missing_values_are_refused_with_columns_and_counts():
    frame = houses()
    frame.loc[[1, 2, 3], "area"] = np.nan
    frame.loc[5, "town"] = None
    with pytest.raises(DataError, match="3 in 'area', 1 in 'town'"):
        checked(frame, "table")


def test_missing_values_in_a_dropped_column_do_not_matter():
    frame = houses().assign(empty=np.nan)
    assert checked(frame, "table", target="price", drop=["empty"]).target == "price"


@pytest.mark.parametrize("column", ["area", "price"])
def test_infinite_values_are_refused(column):
    frame = houses()
    frame.loc[4, column] = np.inf
    with pytest.raises(DataError, match=f"column '{column}' must hold finite numbers") as caught:
        checked(frame, "table")
    assert ("--drop" in str(caught.value)) == (column == "area")


def test_numbers_too_large_to_standardise_are_refused():
    with pytest.raises(DataError, match=r"must have a finite standard deviation, got .*1e\+308"):
        Encoder.fit(pd.DataFrame({"a": [1e308, -1e308, 0.0]}))


@pytest.mark.parametrize(
    "days",
    [
        pd.Series(pd.date_range("2024-01-01", periods=ROWS)),
        pd.Series([datetime.date(2024, 1, 1 + i % 28) for i in range(ROWS)], dtype=object),
        pd.Series([f"2024-01-{1 + i % 28:02}" for i in range(ROWS)]),
        pd.Series([f"{1 + i % 28}/2/2024 10:30" for i in range(ROWS)]),
        pd.Series([f"{1 + i % 28} Feb 2024" for i in range(ROWS)]),
    ],
)
def test_dates_are_days_and_no_target(days):
    frame = houses().assign(sold=days)
    (column,) = Encoder.fit(frame[["sold"]]).columns
    wanted = pd.to_datetime(days, dayfirst=days.dtype == object or "/" in str(days[0]))
    wanted = (wanted - pd.Timestamp(0)) / pd.Timedelta(days=1)
    assert column.loc == pytest.approx(wanted.mean())
    assert column.scale == pytest.approx(wanted.std(ddof=0))
    with pytest.raises(DataError, match="must hold numbers"):
        checked(frame, "table", target="sold")


def test_lengths_of_time_are_refused_with_the_option_that_helps():
    frame = houses().assign(sold=pd.to_timedelta(range(ROWS), unit="D"))
    with pytest.raises(DataError, match="got timedelta64: drop it with --drop sold"):
        checked(frame, "table", target="price")
    for task in (None, Classification):
        with pytest.raises(DataError, match="got timedelta64: choose another --target"):
            checked(frame, "table", target="sold", task=task)
    with pytest.raises(DataError, match="got timedelta64: choose another --split"):
        checked(frame, "table", target="price", apart="time:sold")


@pytest.mark.parametrize("value", [[1, 2], b"raw", 1j])
def test_values_that_are_neither_numbers_nor_categories_are_refused(value):
    frame = houses().assign(odd=pd.Series([value] * ROWS))
    with pytest.raises(DataError, match="column 'odd' must hold numbers or categories, got"):
        checked(frame, "table", target="price")


def test_constant_columns_are_left_out_and_named():
    frame = houses().assign(country="Norway", floor=0.1, price=houses()["price"])
    splits = from_frame(frame, target="price")
    assert splits.encoder.names == ("area", "rooms", "town", "garden")
    assert splits.notes == ("left out, as constant in the training rows: 'country', 'floor'",)


def test_a_column_constant_in_the_training_rows_alone_is_left_out():
    table = checked(houses(), "table", target="price")
    train = split(table).encoder
    frame = houses().assign(rare=0.0)
    # The split depends on the number of rows alone, so its rows are found by their areas.
    areas = split(checked(frame.drop(columns="rare"), "table", target="price")).test.x[:, 0]
    tested = np.isin(train.encode(houses())[:, 0].numpy().round(4), areas.numpy().round(4))
    frame.loc[tested, "rare"] = np.arange(tested.sum())
    splits = from_frame(frame, target="price")
    assert tested.sum() == 12
    assert splits.notes == ("left out, as constant in the training rows: 'rare'",)


def test_a_table_whose_columns_are_all_constant_is_refused():
    frame = pd.DataFrame({"a": 1, "b": "x", "y": np.arange(30.0)})
    with pytest.raises(
        DataError, match="must vary in the training rows, got the constant 'a', 'b'"
    ):
        from_frame(frame)


def test_text_that_hardly_repeats_is_refused():
    frame = houses().assign(owner=[f"owner {i}" for i in range(ROWS)])
    with pytest.raises(
        DataError, match=r"column 'owner' must repeat .* got 60 in 60 rows: drop it"
    ):
        checked(frame, "table", target="price")


def test_text_with_many_categories_is_noted():
    frame = houses().assign(code=[f"code {i % 25}" for i in range(ROWS)])
    notes = checked(frame, "table", target="price").notes
    assert notes == ("column 'code' holds text: each of its 25 values is a column",)


@pytest.mark.parametrize("target", ["age", "price"])
def test_a_word_in_a_column_of_numbers_is_refused_with_column_value_and_row(tmp_path, target):
    age = [str(20 + i % 9) for i in range(ROWS)]
    age[16], age[40] = "unknown", "old"
    with pytest.raises(DataError) as caught:
        load(csv(tmp_path, houses().assign(age=age)), target=target)
    remedy = "correct or remove it, fill it with --impute, or drop the column with --drop age"
    if target == "age":
        remedy = "correct or remove that row"
    assert str(caught.value) == (
        f"column 'age' must hold numbers, got 'unknown' in row 17: {remedy}"
    )


def test_a_word_that_is_filled_is_named_with_its_row(tmp_path):
    age = [str(20 + i % 9) for i in range(ROWS)]
    age[16], age[30] = "unknown", ""
    notes = load(csv(tmp_path, houses().assign(age=age)), target="price", impute=True).notes
    said = (
        "missing values are filled and marked: 2 in 'age'; 1 in 'age' is not a number: 'unknown' "
    )
    assert f"{said}in row 17" in notes
    age[40] = "old"
    notes = load(csv(tmp_path, houses().assign(age=age)), target="price", impute=True).notes
    assert any("2 in 'age' are not numbers, such as 'unknown' in row 17" in note for note in notes)


def test_a_word_among_the_numbers_of_a_pandas_table_is_refused():
    frame = houses().assign(age=pd.Series([30, 40] * (ROWS // 2), dtype=object))
    frame.loc[2, "age"] = "unknown"
    with pytest.raises(DataError, match="column 'age' must hold numbers, got 'unknown' in row 3"):
        checked(frame, "table", target="price")


@pytest.mark.parametrize("target", ["width", "price"])
@pytest.mark.parametrize(
    ("values", "row"),
    [
        (["12,5", "13,5", "14,5"], 1),
        (["12", "13,5", "14"], 2),  # most parse as they are
        (["unknown", "13", "14,5", "15,5", "16,5"], 3),
    ],
)
def test_decimal_commas_are_refused_with_column_value_and_row(tmp_path, target, values, row):
    path = tmp_path / "houses.csv"
    frame = houses().assign(width=values * (ROWS // len(values)))
    frame.to_csv(path, index=False, sep=";")
    with pytest.raises(DataError) as caught:
        load(path, target=target)
    assert str(caught.value) == (
        "column 'width' must hold numbers with decimal points, not decimal commas, got "
        f"{values[row - 1]!r} in row {row}: give --decimal ,"
    )


@pytest.mark.parametrize(
    "codes",
    [
        ["1", "2", "A", "B"],  # half of them numbers, not more
        ["1,2", "3,4", "A", "B"],
        ["007", "010", "020", "030"],
        ["1-2", "3-4", "5+", "none"],
        ["1,2,3", "2,3,4", "1,3,5", "2,4,6"],
        pd.Categorical(["1", "2", "3", "4+"]),
    ],
)
def test_categories_that_look_like_numbers_in_part_stay_categories(codes):
    table = checked(houses().assign(code=pd.Series(codes)[np.arange(ROWS) % 4].array), "table")
    assert split(table).task == Classification(tuple(sorted(codes)))
    assert kind_of(table.frame["code"]).fit(table.frame["code"]) == OneHot(
        "code", tuple(sorted(codes))
    )


# Which task


@pytest.mark.parametrize(
    ("target", "task"),
    [
        (np.linspace(0.0, 1.0, ROWS), Regression),
        (np.arange(ROWS) % 3 + 0.0, Regression),
        (np.arange(ROWS) % 21, Regression),
        (np.arange(ROWS) % 20, Classification),
        (np.arange(ROWS) % 2 == 0, Classification),
        (["yes", "no"] * (ROWS // 2), Classification),
        (pd.Categorical(["yes", "no"] * (ROWS // 2)), Classification),
        (pd.array(np.arange(ROWS) % 3, dtype="Int64"), Classification),
        ([decimal.Decimal(i) / 7 for i in range(ROWS)], Regression),
    ],
)
def test_the_task_follows_the_target(target, task):
    splits = from_frame(houses().assign(y=target), target="y")
    assert type(splits.task) is task
    assert splits.train.y.dtype is (torch.int64 if task is Classification else torch.float32)


def test_few_whole_numbers_are_classes_and_a_note_says_so():
    frame = houses().assign(quality=np.arange(ROWS) % 6)
    splits = from_frame(frame, target="quality")
    assert splits.task == Classification(("0", "1", "2", "3", "4", "5"))
    assert splits.notes == (
        "target 'quality' has 6 different whole numbers, taken as classes; if it is a quantity, "
        "say so with --task regression, or in Python with task=Regression",
    )


def test_few_whole_numbers_are_a_quantity_when_asked():
    frame = houses().assign(quality=np.arange(ROWS) % 6)
    splits = from_frame(frame, target="quality", task=Regression)
    assert isinstance(splits.task, Regression)
    assert splits.notes == ()


def test_floats_are_classes_when_asked():
    frame = houses().assign(grade=np.arange(ROWS) % 3 + 0.5)
    splits = from_frame(frame, target="grade", task=Classification)
    assert splits.task == Classification(("0.5", "1.5", "2.5"))


def test_whole_numbers_have_one_name_as_floats_and_as_integers():
    frame = houses().assign(grade=np.arange(ROWS) % 3 + 1.0)
    task = from_frame(frame, target="grade", task=Classification).task
    assert task == Classification(("1", "2", "3"))
    assert task.encode(pd.Series([3, 1])).tolist() == [2, 0]


@pytest.mark.parametrize("column", ["town", "garden"])
def test_a_regression_on_text_or_bools_is_refused(column):
    with pytest.raises(DataError, match="target of a regression must hold numbers"):
        checked(houses(), "table", target=column, task=Regression)


def test_classes_of_numbers_are_ordered_by_size():
    frame = houses().assign(y=np.where(np.arange(ROWS) % 2, 10, 9))
    assert from_frame(frame, target="y").task == Classification(("9", "10"))


def test_a_target_of_one_class_is_refused():
    with pytest.raises(DataError, match="'y' must have at least 2 classes, got 'yes' alone"):
        checked(houses().assign(y="yes"), "table")


def test_a_class_of_a_single_row_is_refused():
    frame = houses().assign(y=["rare", *["no", "yes"] * 29, "no"])
    with pytest.raises(DataError, match="must have at least 2 rows, got one of 'rare'"):
        checked(frame, "table")


def test_a_constant_quantity_is_refused():
    with pytest.raises(DataError, match=r"target 'y' must vary in the training rows, got 2\.5"):
        from_frame(houses().assign(y=2.5))


# The split


@pytest.mark.parametrize("target", ["price", "town"])
def test_parts_have_their_shares_and_every_row_is_in_one(target):
    frame = houses(100).assign(row=np.arange(100.0))
    splits = split(checked(frame, "table", target=target), test=0.25, validation=0.1)
    parts = (splits.train, splits.validation, splits.test)
    assert [len(part.x) for part in parts] == [65, 10, 25]
    at = splits.encoder.names.index("row")
    before = sum(column.width for column in splits.encoder.columns[:at])
    row = splits.encoder.columns[at]
    rows = torch.cat([part.x[:, before] for part in parts]) * row.scale + row.loc
    assert sorted(rows.round().int().tolist()) == list(range(100))


@pytest.mark.parametrize("target", ["price", "town"])
def test_a_seed_fixes_the_split_and_another_changes_it(tmp_path, target):
    path = csv(tmp_path, houses())
    first, again, other = (load(path, target=target, seed=seed) for seed in (3, 3, 4))
    for a, b in zip(all_parts(first), all_parts(again), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(first.train.x, other.train.x)


def test_the_order_of_a_table_does_not_show_in_its_parts():
    frame = houses(1000).assign(price=np.arange(1000.0))
    splits = from_frame(frame)
    assert abs(splits.test.y.mean()) < 0.25
    assert abs(splits.validation.y.mean()) < 0.25


@given(
    counts=st.lists(st.integers(2, 40), min_size=2, max_size=6).filter(lambda c: sum(c) >= 12),
    seed=st.integers(0, 100),
)
def test_every_class_has_its_share_in_each_part_and_a_training_row(counts, seed):
    y = np.repeat([f"class {i}" for i in range(len(counts))], counts)
    frame = pd.DataFrame({"x": np.arange(len(y)), "y": y})
    splits = split(checked(frame, "table"), seed=seed)
    of_class = [
        torch.bincount(part.y, minlength=len(counts))
        for part in (splits.train, splits.validation, splits.test)
    ]
    for share, found in zip((0.6, 0.2, 0.2), of_class, strict=True):
        # One row of rounding for each end of the stretch, and a shift by that of other classes.
        assert (found - share * torch.tensor(counts)).abs().max() < 2.5
    assert of_class[0].min() >= 1


@pytest.mark.parametrize("seed", range(5))
def test_a_small_training_part_has_a_row_of_each_class_too(seed):
    y = ["common"] * 50 + ["a", "b", "c", "d", "e"] * 2
    frame = pd.DataFrame({"x": range(60), "y": y})
    splits = split(checked(frame, "table"), seed=seed, test=0.4, validation=0.4)
    assert torch.bincount(splits.train.y, minlength=6).min() >= 1


@pytest.mark.parametrize(
    ("test", "validation"), [(0.0, 0.2), (0.2, -0.1), (-0.1, 0.2), (0.5, 0.5), (float("nan"), 0.2)]
)
def test_shares_that_leave_nothing_to_train_or_test_on_are_refused(tmp_path, test, validation):
    with pytest.raises(DataError, match="at least 0 and their sum below 1, got test="):
        parted(opened(csv(tmp_path, houses())), test=test, validation=validation)


@pytest.mark.parametrize("target", ["price", "town"])
def test_a_validation_share_of_zero_leaves_that_part_empty(target):
    splits = split(checked(houses(), "table", target=target), test=0.1, validation=0.0)
    assert (len(splits.train.x), len(splits.test.x)) == (54, 6)
    assert splits.validation.x.shape == (0, *splits.shape)
    assert splits.validation.y.shape == (0,)
    assert splits.validation.y.dtype == splits.test.y.dtype


def test_an_empty_validation_part_has_the_shape_of_images():
    assert parted(opened("digits"), validation=0.0, noise=0.1).validation.x.shape == (0, 1, 8, 8)


def test_rare_categories_join_the_training_part_without_validation_too():
    town = ["Oslo", "Bergen"] * (ROWS // 2 - 1) + ["Hamar", "Voss"]
    table = checked(houses().assign(town=town), "table", target="price")
    for seed in range(8):
        splits = split(table, seed=seed, test=0.2, validation=0.0)
        assert len(splits.train.x) + len(splits.test.x) == ROWS
        assert len(splits.validation.x) == 0


def test_a_training_part_with_fewer_rows_than_classes_is_refused():
    frame = houses().assign(y=np.arange(ROWS) % 15)
    with pytest.raises(DataError, match="at least 15 of 60 rows, got 12"):
        split(checked(frame, "table"), test=0.4, validation=0.4)


@pytest.mark.parametrize("seed", range(8))
def test_rows_that_alone_have_a_category_are_training_rows(seed):
    town = ["Oslo", "Bergen"] * (ROWS // 2 - 1) + ["Hamar", "Voss"]
    splits = split(checked(houses().assign(town=town), "table", target="price"), seed=seed)
    towns = next(column for column in splits.encoder.columns if column.name == "town")
    assert towns == OneHot("town", ("Bergen", "Hamar", "Oslo", "Voss"))
    moved = len(splits.train.x) - 36
    assert splits.notes == (
        (f"rows moved to the training part, as only they have some category: {moved}",)
        if moved
        else ()
    )


def test_categories_so_rare_that_no_test_row_is_left_are_refused():
    frame = pd.DataFrame({"y": np.arange(20.0)})
    for i in range(10):  # each row has one of its ten codes to itself
        frame[f"code {i}"] = ["other"] * (2 * i) + [f"a{i}", f"b{i}"] + ["other"] * (18 - 2 * i)
    with pytest.raises(DataError, match="drop columns with many rare values"):
        from_frame(frame, target="y")


# The encoding


def test_training_rows_alone_set_the_moments():
    splits = from_frame(houses(), target="price")
    x, y = splits.train
    numbers = x[:, :2].double()
    assert numbers.mean(0).abs().max() < 1e-6
    assert (numbers.std(0, correction=0) - 1).abs().max() < 1e-6
    assert abs(y.mean()) < 1e-6
    assert abs(y.std(correction=0) - 1) < 1e-6
    for part in (splits.validation, splits.test):
        assert part.x[:, :2].mean(0).abs().min() > 1e-3
        assert abs(part.y.mean()) > 1e-3


def test_an_outlier_among_the_test_rows_does_not_move_the_training_rows():
    plain = from_frame(houses(), target="price")
    area, price = plain.encoder.columns[0], plain.task
    tested = plain.test.x[0, 0].item() * area.scale + area.loc
    frame = houses()
    frame.loc[(frame["area"] - tested).abs().argmin(), ["area", "price"]] = [1e6, 1e6]
    spoilt = from_frame(frame, target="price")
    assert spoilt.task == price
    assert torch.equal(spoilt.train.x, plain.train.x)
    assert spoilt.test.x.max() > 1e3


def test_targets_go_back_to_their_units():
    frame = houses()
    splits = from_frame(frame, target="price")
    back = torch.cat(
        [splits.task.to_units(part.y) for part in (splits.train, splits.validation, splits.test)]
    )
    np.testing.assert_allclose(np.sort(back), np.sort(frame["price"]), rtol=1e-4)


def test_log_scale_turns_a_log_density_to_the_units_of_the_target():
    task = Regression(loc=150.0, scale=50.0)
    y, loc, scale = torch.tensor([1.5, 0.3, 0.7], dtype=torch.float64)
    standard = torch.distributions.Normal(loc, scale)
    in_units = torch.distributions.Normal(task.to_units(standard.loc), task.scale * standard.scale)
    expected = -in_units.log_prob(task.to_units(y))
    torch.testing.assert_close(-standard.log_prob(y) + task.log_scale, expected)


def test_the_encoding_is_that_of_scikit_learn():
    frame = houses().drop(columns="price")
    numbers = StandardScaler().fit_transform(frame[["area", "rooms"]].astype(float))
    texts = OneHotEncoder(sparse_output=False).fit_transform(frame[["town", "garden"]])
    expected = torch.tensor(np.hstack([numbers, texts]), dtype=torch.float32)
    encoder = Encoder.fit(frame)
    torch.testing.assert_close(encoder.encode(frame), expected)
    assert encoder.shape == (7,)


@given(
    st.lists(
        st.lists(st.floats(-1e6, 1e6, width=32), min_size=3, max_size=3), min_size=2, max_size=30
    ).filter(lambda rows: all(np.ptp(np.array(rows), axis=0) > 1e-3))
)
def test_encoded_training_rows_have_zero_mean_and_unit_scale(rows):
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    x = Encoder.fit(frame).encode(frame).double()
    # One float32 ulp of the largest entry, which √rows bounds.
    torch.testing.assert_close(x.mean(0), torch.zeros(3).double(), rtol=0, atol=2e-6)
    torch.testing.assert_close(x.std(0, correction=0), torch.ones(3).double(), rtol=0, atol=2e-6)


def test_an_encoder_survives_json_and_encodes_alike():
    splits = from_frame(houses(), target="price")
    again = Encoder.from_json(json.loads(json.dumps(splits.encoder.to_json())))
    assert again == splits.encoder
    new = houses(25)
    assert torch.equal(again.encode(new), splits.encoder.encode(new))


@pytest.mark.parametrize("saved", [{}, {"columns": [], "size": 3}, {"columns": 3, "shape": [1]}])
def test_json_that_is_no_encoder_is_refused(saved):
    with pytest.raises(DataError, match="must hold columns and a shape"):
        Encoder.from_json(saved)


def test_the_parts_are_what_the_encoder_makes_of_the_file(tmp_path):
    path = csv(tmp_path, houses())
    splits = load(path)
    x = splits.encoder.encode(read(path))
    found = torch.cat([splits.train.x, splits.validation.x, splits.test.x])
    assert sorted(x.tolist()) == sorted(found.tolist())


def test_sizes_of_splits_are_those_of_the_encoded_rows():
    splits = from_frame(houses(), target="price")
    assert splits.train.x.shape == (splits.num_data, *splits.shape)
    assert (splits.num_data, splits.num_features) == (36, 7)


# New rows


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder.fit(houses().drop(columns="price"))


def test_columns_of_new_rows_may_be_in_any_order_and_more(encoder):
    new = houses(5)
    shuffled = new[["price", "town", "rooms", "garden", "area"]].assign(more=1)
    assert torch.equal(encoder.encode(shuffled), encoder.encode(new))


def test_absent_columns_of_new_rows_are_named(encoder):
    with pytest.raises(DataError, match="got none named 'rooms', 'garden'"):
        encoder.encode(houses(5)[["area", "town"]])


def test_an_unseen_category_is_refused_with_column_value_and_row(encoder):
    new = houses(5)
    new.loc[2, "town"] = "Paris"
    with pytest.raises(DataError, match=r"column 'town' .* got 'Paris' in row 3"):
        encoder.encode(new)


def test_missing_values_in_new_rows_are_refused_with_row_and_column(encoder):
    new = houses(20)
    new.loc[[0, 3, 4, 5, 8, 9, 12], "area"] = np.nan
    with pytest.raises(DataError, match="column 'area' has no value in row 1"):
        encoder.encode(new)


def test_missing_values_in_unused_columns_of_new_rows_do_not_matter(encoder):
    assert encoder.encode(houses(5).assign(price=np.nan)).shape == (5, 7)


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e300])
def test_values_of_new_rows_that_no_float_holds_are_refused(encoder, value):
    new = houses(5)
    new.loc[1, "area"] = value
    with pytest.raises(DataError, match=r"column 'area' must hold finite numbers .* in row 2"):
        encoder.encode(new)


def test_text_in_a_column_of_numbers_is_refused(encoder):
    new = houses(5).assign(rooms=["1", "2", "many", "3", "4"])
    with pytest.raises(DataError, match="column 'rooms' must hold numbers, got 'many' in row 3"):
        encoder.encode(new)


def test_decimal_commas_in_new_rows_are_refused(encoder):
    new = houses(5).assign(area=["120,5", "90", "80", "75", "60"])
    rule = r"column 'area' .* not decimal commas.* '120,5' in row 1: give --decimal ,$"
    with pytest.raises(DataError, match=rule):
        encoder.encode(new)


def test_numbers_of_another_byte_order_are_numbers(encoder):
    new = houses(5)
    big = new.assign(rooms=new["rooms"].to_numpy().astype(">i4"))
    assert torch.equal(encoder.encode(big), encoder.encode(new))
    big.loc[3, "area"] = np.inf
    with pytest.raises(DataError, match=r"column 'area' must hold finite numbers .* in row 4"):
        encoder.encode(big)


def test_text_in_a_column_of_real_dates_is_refused_without_a_warning():
    days = pd.DataFrame({"day": pd.date_range("2024-01-01", periods=5)})
    encoder = Encoder.fit(days)
    with pytest.raises(DataError, match="column 'day' must hold dates, got 'soon' in row 1"):
        encoder.encode(days.assign(day=["soon", "later", "at noon", "never", "then"]))


def test_numbers_read_as_text_are_numbers(encoder):
    new = houses(5)
    assert torch.equal(
        encoder.encode(new.assign(rooms=new["rooms"].astype(str))), encoder.encode(new)
    )


def test_no_rows_encode_to_no_rows(encoder):
    assert encoder.encode(houses(5).head(0)).shape == (0, 7)


def test_codes_in_a_file_of_a_few_rows_stay_text(tmp_path):
    train = pd.DataFrame({"code": ["007", "010", "A1"] * 4, "on": [True, False] * 6})
    encoder = Encoder.fit(train)
    assert encoder.texts == ("code",)
    path = text(tmp_path, "code,on\n007,true\n")
    assert encoder.encode(read(path, encoder)).tolist() == [[1.0, 0.0, 0.0, 0.0, 1.0]]
    with pytest.raises(DataError, match="got '7' in row 1"):
        encoder.encode(read(path))


def test_new_targets_are_encoded_by_the_task():
    y = Regression(10.0, 2.0).encode(pd.Series([10, 14], name="y"))
    assert y.tolist() == [0.0, 2.0]
    with pytest.raises(DataError, match=r"column 'y' .* got 'perhaps' in row 1"):
        Classification(("no", "yes")).encode(pd.Series(["perhaps"], name="y"))


@pytest.mark.parametrize("problem", ["", "a\n1\n", "a,b\n"])
def test_every_complaint_is_one_line(tmp_path, problem):
    with pytest.raises(DataError) as caught:
        load(text(tmp_path, problem))
    assert "\n" not in str(caught.value)
