"""Files as people have them: separators, encodings, spreadsheets, headers, numbers."""

import numpy as np
import pandas as pd
import pytest

from bayesdiv.app.data.files import Written, read, read_text, table_of
from bayesdiv.app.data.loading import load
from bayesdiv.app.data.splits import DataError

FRAME = pd.DataFrame({"a": [1.5, 2.5, 3.5], "town": ["Köln", "Bern", "Köln"]})


@pytest.mark.parametrize(
    ("name", "separator"), [("t.csv", "|"), ("t.tsv", "\t"), ("t.txt", ";"), ("t.data", " ")]
)
def test_the_separator_is_found_in_any_text_file(tmp_path, name, separator):
    FRAME.assign(b=[1, 2, 3]).to_csv(tmp_path / name, sep=separator, index=False)
    assert list(read(tmp_path / name)) == ["a", "town", "b"]
    assert read_text(tmp_path / name)[1] == separator.replace(" ", ",")


def test_a_separator_inside_quotes_is_none(tmp_path):
    (tmp_path / "t.csv").write_text('"a, b, c";d\n1;2\n')
    assert list(read(tmp_path / "t.csv")) == ["a, b, c", "d"]


def test_a_separator_may_be_given(tmp_path):
    (tmp_path / "t.csv").write_text("a:b\n1:x\n")
    assert read(tmp_path / "t.csv", written=Written(separator=":")).to_dict("list") == {
        "a": [1],
        "b": ["x"],
    }


def test_a_separator_of_several_characters_is_refused():
    with pytest.raises(ValueError, match="separator must be one character or tab, got 'xx'"):
        Written(separator="xx")
    assert Written(separator="space").separator == Written(separator=r"\s+").separator


def test_the_line_of_a_spreadsheet_that_names_the_separator_is_none_of_the_table(tmp_path):
    (tmp_path / "t.csv").write_text("sep=;\na;b\n1;2\n")
    assert read(tmp_path / "t.csv").to_dict("list") == {"a": [1], "b": [2]}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_byte_order_mark_says_the_encoding(tmp_path, encoding):
    FRAME.to_csv(tmp_path / "t.csv", index=False, encoding=encoding)
    assert read(tmp_path / "t.csv")["town"].tolist() == ["Köln", "Bern", "Köln"]


def test_another_encoding_is_asked_for_and_taken(tmp_path):
    FRAME.to_csv(tmp_path / "t.csv", index=False, encoding="latin-1")
    with pytest.raises(DataError, match="give its encoding, such as --encoding latin-1"):
        read(tmp_path / "t.csv")
    with pytest.raises(DataError, match="encoding must be one that Python knows, got klingon"):
        read(tmp_path / "t.csv", written=Written(encoding="klingon"))
    found = read(tmp_path / "t.csv", written=Written(encoding="latin-1"))
    assert found["town"].tolist() == ["Köln", "Bern", "Köln"]


def test_a_sheet_is_read_and_the_others_are_named(tmp_path):
    with pd.ExcelWriter(tmp_path / "t.xlsx") as book:
        FRAME.to_excel(book, sheet_name="one", index=False)
        FRAME.assign(a=0.0).to_excel(book, sheet_name="two", index=False)
    found = table_of(tmp_path / "t.xlsx")
    pd.testing.assert_frame_equal(found.frame, FRAME)
    assert found.notes == ("sheet 'one' is read, not 'two'; choose one with --sheet",)
    assert (read(tmp_path / "t.xlsx", written=Written(sheet="two"))["a"] == 0).all()
    with pytest.raises(DataError, match="must have the sheet 'three', got 'one', 'two'"):
        read(tmp_path / "t.xlsx", written=Written(sheet="three"))


def test_a_spreadsheet_that_is_none_is_refused(tmp_path):
    (tmp_path / "t.xlsx").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"must be an Excel file \(\.xlsx\), got"):
        read(tmp_path / "t.xlsx")


def test_a_missing_header_is_noticed_and_its_row_kept(tmp_path):
    (tmp_path / "t.csv").write_text("5.1,3.5,setosa\n4.9,3.0,setosa\n6.1,2.9,other\n")
    found = table_of(tmp_path / "t.csv")
    assert list(found.frame) == ["column_1", "column_2", "column_3"]
    assert len(found.frame) == 3
    assert "if it is the header, give --header yes" in found.notes[0]
    assert list(read(tmp_path / "t.csv", written=Written(header=True))) == ["5.1", "3.5", "setosa"]


@pytest.mark.parametrize("head", ["2019,2020,2021", "a,2,3", "a,b,c"])
def test_years_and_names_are_a_header(tmp_path, head):
    (tmp_path / "t.csv").write_text(f"{head}\n1,2,3\n4,5,6\n")
    assert list(read(tmp_path / "t.csv")) == head.split(",")


def test_a_file_without_a_header_may_be_said_to_have_none(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\nz,y\n")
    assert len(read(tmp_path / "t.csv", written=Written(header=False))) == 2


@pytest.mark.parametrize(
    ("texts", "decimal", "values"),
    [
        (["1,234.5", "12", "1,000,000"], ".", [1234.5, 12, 1e6]),
        (["1.234,5", "12", "1.000.000"], ",", [1234.5, 12, 1e6]),
        (["1'234", "12", "(7)"], ".", [1234, 12, -7]),
        (["1 234", "12", "7"], ".", [1234, 12, 7]),
        (["12,5", "1,25", "7"], ",", [12.5, 1.25, 7]),
    ],
)
def test_thousands_and_decimal_signs_are_read(tmp_path, texts, decimal, values):
    pd.DataFrame({"a": texts, "b": "x"}).to_csv(tmp_path / "t.csv", index=False, sep=";")
    found = read(tmp_path / "t.csv", written=Written(decimal=decimal))
    assert found["a"].tolist() == values


@pytest.mark.parametrize(
    ("texts", "unit"),
    [
        (["$1,200", "$-5.50", "$3"], "$"),
        (["1200 €", "-5.5 €", "3 €"], "€"),
        (["1200%", "-5.5%", "3 %"], "%"),
        (["1,200 km/h", "-5.5 km/h", "3 km/h"], "km/h"),
    ],
)
def test_a_unit_beside_every_number_makes_a_column_of_numbers(tmp_path, texts, unit):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": texts * 10, "y": random.normal(size=30)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    (column,) = load(tmp_path / "t.csv").encoder.columns
    assert column.unit == unit
    new = pd.DataFrame({"a": [texts[0], "3", "3 lbs", "?"]})
    new.to_csv(tmp_path / "new.csv", index=False)
    encoder = load(tmp_path / "t.csv").encoder
    problems = encoder.problems(read(tmp_path / "new.csv", encoder))
    assert problems[:2] == ["", ""]
    assert problems[2] == f"column 'a' must hold numbers in {unit}, got '3 lbs'"
    assert problems[3] == "column 'a' has no value"
    values = column.values(read(tmp_path / "new.csv", encoder)["a"])
    assert values[:2].tolist() == [1200.0, 3.0]


@pytest.mark.parametrize("codes", [["1A", "2B", "3C"], ["1st", "2nd", "3rd"], ["A1", "A2", "A3"]])
def test_codes_stay_categories_with_their_names(tmp_path, codes):
    frame = pd.DataFrame({"a": codes * 10, "y": np.arange(30.0)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    (column,) = load(tmp_path / "t.csv").encoder.columns
    assert column.categories == tuple(codes)


def test_text_before_the_header_is_refused_with_what_helps(tmp_path):
    (tmp_path / "t.csv").write_text("measured on Monday\n\na,b,c\n1,2,3\n")
    with pytest.raises(DataError, match="remove lines above the header, or give the --separator"):
        read(tmp_path / "t.csv")


def test_a_comma_in_a_file_of_semicolons_is_read_only_when_it_is_said_what_it_is(tmp_path):
    frame = pd.DataFrame({"a": ["1,234", "2,345", "3,456"] * 10, "y": np.arange(30)})
    frame.to_csv(tmp_path / "t.csv", index=False, sep=";")
    with pytest.raises(
        DataError, match=r"--decimal , or, where commas group thousands, --decimal \."
    ):
        load(tmp_path / "t.csv")
    for decimal, value in ((".", 1234.0), (",", 1.234)):
        found = read(tmp_path / "t.csv", written=Written(decimal=decimal))
        assert found["a"][0] == value
    frame.to_csv(tmp_path / "quoted.csv", index=False)
    found = table_of(tmp_path / "quoted.csv")
    assert found.frame["a"][0] == 1234.0
    assert found.notes == ("column 'a' is read as numbers: '1,234' is 1234",)


def test_codes_may_be_said_to_be_categories(tmp_path):
    frame = pd.DataFrame({"shop": ["001", "002", "003"] * 10, "y": np.arange(30.0)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    (note,) = table_of(tmp_path / "t.csv").notes
    assert note.endswith("if it names something, give --categories shop")
    splits = load(tmp_path / "t.csv", written=Written(texts=("shop",)))
    assert splits.encoder.columns[0].categories == ("001", "002", "003")
    with pytest.raises(DataError, match="must have the column 'shp'"):
        load(tmp_path / "t.csv", written=Written(texts=("shp",)))
    frame.assign(shop=[1, 2, 3] * 10).to_excel(tmp_path / "t.xlsx", index=False)
    splits = load(tmp_path / "t.xlsx", written=Written(texts=("shop",)))
    assert splits.encoder.columns[0].categories == ("1", "2", "3")


def test_spaces_around_text_are_no_part_of_it(tmp_path):
    (tmp_path / "t.csv").write_text("town,y\nOslo ,1\n Oslo,2\nOslo,3\n")
    assert read(tmp_path / "t.csv")["town"].unique().tolist() == ["Oslo"]
