"""Files as people have them, and what the command line makes of each: python benchmarks/messy.py.

Every file is written into a folder, trained on and predicted by the command line, once as it is and
once with the options that help. What happens is docs/howto/messy-files.md; tests compare both.
"""

import contextlib
import io
import itertools
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bayesdiv.app.cli import main as command_line
from bayesdiv.app.data.files import Written, read

PAGE = Path(__file__).parents[1] / "docs" / "howto" / "messy-files.md"
QUICK = ["--epochs", "2", "--test_samples", "5", "--members", "1", "--samples", "1"]
ROWS = 60


class Case(NamedTuple):
    """A file and what a user would type."""

    what: str
    name: str
    write: Callable[[Path], object]
    options: tuple[str, ...] = ("--target", "y")
    helps: tuple[str, ...] = ()


def rows(count: int = ROWS, **columns: Any) -> pd.DataFrame:
    """A small table: two numbers, a town and a target; further columns come before the target."""
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, count)).round(3)
    town = random.choice(["Bern", "Oslo"], count)
    y = (2 * a - b + (town == "Oslo") + 0.1 * random.normal(size=count)).round(3)
    return pd.DataFrame({"a": a, "b": b, "town": town, **{"y": y, **columns}})


def csv(frame: pd.DataFrame, **how: Any) -> Callable[[Path], object]:
    """Writes a table as text."""
    return lambda path: frame.to_csv(path, **{"index": False, **how})


def text(content: str, encoding: str = "utf-8") -> Callable[[Path], object]:
    """Writes a text."""
    return lambda path: path.write_bytes(content.encode(encoding))


def gaps(column: str, value: object = None) -> pd.DataFrame:
    """The table with four values of a column replaced."""
    frame = rows().astype({column: object})
    frame.loc[[3, 11, 12, 40], column] = value
    return frame


def each(pattern: str, last: int = ROWS) -> list[str]:
    """A text per row, with its number k."""
    return [pattern.format(k=k, day=1 + k % 28, month=1 + k % 12) for k in range(last)]


def sheets(path: Path) -> None:
    """An Excel file with two sheets."""
    with pd.ExcelWriter(path) as book:
        rows().to_excel(book, sheet_name="data", index=False)
        rows(5).to_excel(book, sheet_name="notes", index=False)


def tested(path: Path) -> None:
    """A file to train on and one to test on."""
    rows().to_csv(path, index=False)
    rows(90).tail(30).to_csv(path.with_name("later.csv"), index=False)


PLAIN = rows().to_csv(index=False)
CASES = (
    Case("nothing odd", "plain.csv", csv(rows())),
    Case("semicolons between fields", "semicolons.csv", csv(rows(), sep=";")),
    Case(
        "semicolons and decimal commas",
        "commas.csv",
        csv(rows(), sep=";", decimal=","),
        helps=("--decimal", ","),
    ),
    Case("tabs between fields", "tabs.tsv", csv(rows(), sep="\t")),
    Case("bars between fields, named .txt", "bars.txt", csv(rows(), sep="|")),
    Case("spaces between fields, named .data", "spaces.data", csv(rows(), sep=" ")),
    Case(
        "colons between fields",
        "colons.csv",
        csv(rows(), sep=":"),
        helps=("--separator", ":"),
    ),
    Case(
        "Latin-1 text",
        "latin.csv",
        text(PLAIN.replace("Bern", "Zürich"), "latin-1"),
        helps=("--encoding", "latin-1"),
    ),
    Case('UTF-16, a spreadsheet\'s "Unicode text"', "utf16.txt", text(PLAIN, "utf-16")),
    Case("UTF-8 with a byte-order mark", "marked.csv", text(PLAIN, "utf-8-sig")),
    Case("a first line sep=;", "sep.csv", text("sep=;\n" + rows().to_csv(index=False, sep=";"))),
    Case(
        "Windows line ends, blank lines below",
        "windows.csv",
        text(PLAIN.replace("\n", "\r\n") + "\r\n\r\n"),
    ),
    Case("every line ends with a comma", "trailing.csv", text(PLAIN.replace("\n", ",\n"))),
    Case(
        "quoted fields with commas",
        "quoted.csv",
        csv(rows(town=["Bern, CH", "Oslo"] * 30), quoting=1),
    ),
    Case("an Excel file", "sheet.xlsx", lambda path: rows().to_excel(path, index=False)),
    Case("an Excel file with two sheets", "sheets.xlsx", sheets),
    Case("a Parquet file", "table.parquet", lambda path: rows().to_parquet(path)),
    Case("no header", "headless.csv", csv(rows(), header=False), ()),
    Case("two lines above the header", "titled.csv", text("Results of May\n\n" + PLAIN)),
    Case("two columns of one name", "twice.csv", text(PLAIN.replace("a,b,", "a,a,", 1))),
    Case("row names without a header", "index.csv", csv(rows(), index=True)),
    Case(
        "a column that numbers the rows",
        "id.csv",
        csv(rows(id=range(ROWS))),
        helps=("--drop", "id"),
    ),
    Case(
        "a name and a street per row",
        "names.csv",
        csv(rows(owner=each("Ms {k}"), street=each("Street {k}"))),
        helps=("--drop", "owner,street"),
    ),
    Case(
        "spaces around names in the header",
        "spaced.csv",
        text(PLAIN.replace("a,b,town,y", " a , b ,town , y ")),
    ),
    Case(
        "a target that is misspelt",
        "target.csv",
        csv(rows().rename(columns={"y": "Strength"})),
        ("--target", "strenght"),
        ("--target", "Strength"),
    ),
    Case("empty fields among numbers", "gaps.csv", csv(gaps("a")), helps=("--impute",)),
    Case(
        "question marks among categories", "marks.csv", csv(gaps("town", "?")), helps=("--impute",)
    ),
    Case("unknown among numbers", "unknown.csv", csv(gaps("b", "unknown")), helps=("--impute",)),
    Case("a dash for no number", "dash.csv", csv(gaps("b", "-")), helps=("--impute",)),
    Case("rows without a target", "unlabelled.csv", csv(gaps("y"))),
    Case("an empty column", "empty-column.csv", csv(rows(nothing=None)), helps=("--impute",)),
    Case("a column that is constant", "constant.csv", csv(rows(country="CH"))),
    Case("an infinite number", "infinite.csv", csv(gaps("a", "inf")), helps=("--drop", "a")),
    Case(
        "thousands grouped by commas",
        "thousands.csv",
        csv(rows(price=[f"{1000 + 37 * k:,}" for k in range(ROWS)])),
    ),
    Case(
        "thousands grouped by points, decimal commas",
        "points.csv",
        csv(rows(price=[f"{1 + k}.250,5" for k in range(ROWS)]), sep=";", decimal=","),
        helps=("--decimal", ","),
    ),
    Case(
        "prices in dollars",
        "dollars.csv",
        csv(rows(price=[f"${1000 + 37 * k:,}.50" for k in range(ROWS)])),
    ),
    Case("shares in percent", "percent.csv", csv(rows(share=each("{k}.5%")))),
    Case("weights with their unit", "unit.csv", csv(rows(weight=each("{k}.5 kg")))),
    Case(
        "losses in brackets",
        "brackets.csv",
        csv(rows(gain=[f"({k})" if k % 3 else f"{k}" for k in range(ROWS)])),
    ),
    Case("dates, year first", "dates.csv", csv(rows(sold=each("2024-{month:02}-{day:02}")))),
    Case("dates, day first", "days.csv", csv(rows(sold=each("{day:02}/{month:02}/2024")))),
    Case(
        "dates that are read either way",
        "either.csv",
        csv(rows(sold=each("{month:02}/{month:02}/2024"))),
    ),
    Case(
        "points in time with a zone", "zone.csv", csv(rows(sold=each("2024-01-{day:02}T10:30:00Z")))
    ),
    Case(
        "dates as the target",
        "date-target.csv",
        csv(rows(sold=each("2024-{month:02}-{day:02}"))),
        ("--target", "sold"),
    ),
    Case(
        "codes with leading zeros",
        "codes.csv",
        csv(rows(shop=[f"{k % 4:03}" for k in range(ROWS)])),
        helps=("--categories", "shop"),
    ),
    Case("rows that are repeated", "repeated.csv", csv(pd.concat([rows(), rows().head(10)]))),
    Case(
        "a target that counts",
        "counts.csv",
        csv(rows(y=np.random.default_rng(1).poisson(2, ROWS))),
        helps=("--task", "counts"),
    ),
    Case(
        "a target of 0 and 1",
        "binary.csv",
        csv(rows(y=np.arange(ROWS) % 2)),
        helps=("--task", "regression"),
    ),
    Case("a target of yes and no", "yes.csv", csv(rows(y=["yes", "no", "no"] * 20))),
    Case(
        "a class with a single row", "single.csv", csv(rows(y=["x"] + ["yes", "no"] * 29 + ["no"]))
    ),
    Case(
        "rows in the order of time",
        "time.csv",
        csv(rows(day=each("2024-{k}").copy(), when=range(ROWS))),
        ("--target", "y", "--drop", "day"),
        ("--split", "time:when"),
    ),
    Case(
        "several rows per patient",
        "patients.csv",
        csv(rows(patient=[f"p{k % 12}" for k in range(ROWS)])),
        helps=("--split", "group:patient"),
    ),
    Case("a separate file to test on", "earlier.csv", tested, helps=("--test", "later.csv")),
    Case("a row with more fields than the header", "ragged.csv", text(PLAIN + "1,2,Bern,3,4\n")),
    Case("eight rows", "few.csv", csv(rows(8))),
    Case("an empty file", "empty.csv", text("")),
    Case(
        "a picture named .csv",
        "picture.csv",
        lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0"),
    ),
    Case("a JSON file", "table.json", lambda path: rows().to_json(path)),
    Case("a folder", "folder", lambda path: path.mkdir()),
    Case("a file that is not there", "nowhere.csv", lambda path: None),
)


def said(*arguments: str) -> tuple[int, str]:
    """The exit code of the command line and what it says on stderr."""
    heard = io.StringIO()
    with contextlib.redirect_stderr(heard), contextlib.redirect_stdout(io.StringIO()):
        try:
            command_line(list(arguments))
        except SystemExit as stop:
            return int(stop.code or 0), heard.getvalue()
    return 0, heard.getvalue()


def happens(case: Case, options: tuple[str, ...]) -> str:
    """What the command line makes of a file, in the present folder: a sentence, or predictions."""
    path = Path(case.name)
    if not path.exists():
        case.write(path)
    run = next(f"run{k}" for k in itertools.count() if not Path(f"run{k}").exists())
    code, heard = said("train", case.name, "--out", run, *case.options, *options, *QUICK)
    if code:
        return " ".join(heard.removeprefix("bayesdiv: ").split())
    notes = re.findall("^note: (.*)$", heard, re.M)
    out = f"{run}.csv"
    code, heard = said("predict", run, case.name, "-o", out)
    assert code == 0, heard
    told = read(out, written=Written(separator=":" if ":" in options else None))
    kind = "class" if "predicted_class" in told else "mean"
    count = int(told[f"predicted_{kind}"].notna().sum())
    predicted = f"{count} of {len(told)} rows predicted"
    return "; ".join(
        [predicted, *(f"note: {note}" for note in notes if "target is the" not in note)]
    )


def row(case: Case) -> str:
    """A row of the page."""
    first = happens(case, ())
    after = f"`{' '.join(case.helps)}`: {happens(case, case.helps)}" if case.helps else ""
    cells = (case.what, first, after)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


HEAD = """# Messy files

How the command line handles the files people really have. This page is written by `python
benchmarks/messy.py`, which makes each file, trains on it (`bayesdiv train FILE --target y --out
RUN`) and predicts the same rows; a test compares this page with what happens. Where a file is
refused, one sentence says why and which option helps.

| the file has | what happens | and with the option |
|---|---|---|
"""


def page() -> str:
    """The whole page."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.environ.setdefault("COLUMNS", "200")
        return HEAD + "\n".join(map(row, CASES)) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
