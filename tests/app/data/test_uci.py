"""Public tables: the real ones where they are at hand, and small made-up ones for all else.

The real files are looked for in the folder that BAYESDIV_DATA names and in ../shared/data.
"""

import csv
import functools
import hashlib
import http.server
import io
import os
import struct
import threading
import zipfile
from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest
import torch

from bayesdiv.app.data import uci
from bayesdiv.app.data.loading import load, opened, parted
from bayesdiv.app.data.splits import DataError
from bayesdiv.app.tasks.regression import Regression

SHAPES = {  # rows and features, as their publishers state them
    "airfoil": (1503, 5),
    "aquatic_toxicity": (546, 8),
    "boston_housing": (506, 13),
    "building": (372, 107),
    "building_cost": (372, 107),
    "concrete": (1030, 8),
    "energy": (768, 8),
    "kin8nm": (8192, 8),
    "power_plant": (9568, 4),
    "protein": (45730, 9),
    "real_estate": (414, 6),
    "wine_red": (1599, 11),
    "wine_white": (4898, 11),
    "yacht": (308, 6),
}
DOWNLOADED = tuple(name for name, known in uci.SETS.items() if known.source)


def _real() -> Path | None:
    places = (os.environ.get("BAYESDIV_DATA"), Path(__file__).parents[4] / "shared" / "data")
    found = (Path(place) for place in places if place)
    return next((place for place in found if (place / "uci" / "yacht.csv").is_file()), None)


REAL = _real()
real_data = pytest.mark.skipif(
    REAL is None, reason="no public tables at hand: set BAYESDIV_DATA to a folder with uci/*.csv"
)


@pytest.fixture(autouse=True)
def nothing_at_hand(tmp_path, monkeypatch):
    """No folder, an empty cache, and an archive that does not answer."""
    monkeypatch.delenv("BAYESDIV_DATA", raising=False)
    monkeypatch.setenv("BAYESDIV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(uci, "_ARCHIVE", "http://127.0.0.1:9")


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """A folder that a server of our own shows as the archive; `asked` holds what was fetched."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            asked.append(self.path)

    folder = tmp_path / "archive"
    folder.mkdir()
    handler = functools.partial(Handler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setattr(uci, "_ARCHIVE", f"http://127.0.0.1:{server.server_port}")
    yield folder, asked
    server.shutdown()
    thread.join()
    server.server_close()


def decimal(text: str) -> float:
    """A number with ten significant digits, by decimal arithmetic."""
    return float(Context(prec=10, rounding=ROUND_HALF_UP).plus(Decimal(text))) + 0.0


@functools.cache
def decimal_rows(path: Path) -> tuple[list[str], list[tuple[float, ...]]]:
    """Header and sorted rows of a CSV file, without pandas, numpy or the package."""
    with path.open(newline="") as lines:
        header, *rows = csv.reader(lines)
    return header, sorted(tuple(map(decimal, row)) for row in rows)


# Archives in the publisher's formats, of any numbers ------------------------------------------


def xlsx(rows: list[list[object]]) -> bytes:
    """A workbook with the rows on the first of two sheets."""
    book, content = openpyxl.Workbook(), io.BytesIO()
    for row in rows:
        book.active.append(row)
    book.create_sheet("More").append(["nothing", 1.0, 2.0])
    book.save(content)
    return content.getvalue()


def zipped(files: dict[str, str | bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    return content.getvalue()


def text(rows: np.ndarray, separator: str, header: str = "", end: str = "\n") -> str:
    lines = [separator.join(f"{value:.15g}" for value in row) for row in rows]
    return end.join([*([header] if header else []), *lines]) + end


def native(name: str, values: np.ndarray) -> bytes:
    """What the archive would have for a set, if its features and target were these."""
    features, target = values[:, :-1], values[:, -1:]
    extra = np.full_like(target, 77.0)  # a column that is not asked for
    counted = np.arange(1.0, len(values) + 1)[:, None]
    match name:
        case "airfoil":
            return zipped({"airfoil_self_noise.dat": text(values, "\t", end="\r\n")})
        case "aquatic_toxicity":
            return zipped({"qsar_aquatic_toxicity.csv": text(values, ";")})
        case "wine_red" | "wine_white":
            file = f"winequality-{name.removeprefix('wine_')}.csv"
            return zipped({file: text(values, ";", '"fixed acidity";"…"'), "winequality.names": ""})
        case "yacht":
            uneven = text(values, " ").replace("\n", " \n").replace(" 0.", "  0.") + "\n"
            return zipped({"yacht_hydrodynamics.data": uneven})
        case "concrete":
            return text(values, ",", "Cement,…,strength", end="\r\n").encode("utf-8-sig")
        case "protein":
            return zipped({"CASP.csv": text(np.hstack([target, features]), ",", "RMSD,F1,…")})
        case "building":
            rows, heads = np.hstack([values, extra]), 2
        case "building_cost":
            rows, heads = np.hstack([features, extra, target]), 2
        case "energy":
            rows, heads = np.hstack([values, extra]), 1
        case "real_estate":
            rows, heads = np.hstack([counted, values]), 1
        case "power_plant":
            rows, heads = values, 1
    cells: list[list[object]] = [["text"] * rows.shape[1]] * heads + rows.tolist()
    cells += [[None] * rows.shape[1]] * 3  # rows that were filled once
    return zipped({uci.SETS[name].source.member: xlsx(cells)})


def publish(folder: Path, name: str, content: bytes) -> None:
    path = folder / uci.SETS[name].source.place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def made_up(monkeypatch, name: str, rows: int = 12, seed: int = 0) -> np.ndarray:
    """Random numbers that are from now on the published table of that name."""
    width = len(uci.SETS[name].columns)
    values = np.random.default_rng(seed).normal(0, 100, (rows, width)).round(3)
    known = replace(uci.SETS[name], rows=rows, checksum=uci.checksum(values))
    monkeypatch.setitem(uci.SETS, name, known)
    return values


def csv_of(name: str, values: np.ndarray) -> str:
    return pd.DataFrame(values, columns=list(uci.SETS[name].columns)).to_csv(index=False)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder of the user's own, empty."""
    (tmp_path / "own" / "uci").mkdir(parents=True)
    monkeypatch.setenv("BAYESDIV_DATA", str(tmp_path / "own"))
    return tmp_path / "own"


# The sets --------------------------------------------------------------------------------------


def test_every_set_has_its_published_shape_and_columns_that_differ():
    shapes = {name: (known.rows, len(known.columns) - 1) for name, known in uci.SETS.items()}
    assert shapes == SHAPES
    assert all(len(set(known.columns)) == len(known.columns) for known in uci.SETS.values())
    assert all(name == known.name for name, known in uci.SETS.items())


@real_data
@pytest.mark.parametrize("name", uci.SETS)
def test_a_real_table_is_the_file_in_ascending_order(monkeypatch, name):
    monkeypatch.setenv("BAYESDIV_DATA", str(REAL))
    table = uci.read(name)
    header, rows = decimal_rows(REAL / "uci" / uci.SETS[name].csv)
    assert (table.name, table.task, table.notes) == (name, Regression, ())
    assert (list(table.frame.columns), table.target) == (header, header[-1])
    assert table.frame.shape == (SHAPES[name][0], SHAPES[name][1] + 1)
    np.testing.assert_array_equal(table.frame.to_numpy(), np.array(rows))


@real_data
@pytest.mark.parametrize("name", uci.SETS)
def test_the_checksum_of_a_real_table_is_the_sha256_of_its_decimal_numbers(name):
    _, rows = decimal_rows(REAL / "uci" / uci.SETS[name].csv)
    packed = struct.pack("<2q", len(rows), len(rows[0]))
    packed += b"".join(struct.pack(f"<{len(row)}d", *row) for row in rows)
    assert uci.SETS[name].checksum == hashlib.sha256(packed).hexdigest()


@real_data
@pytest.mark.parametrize("name", DOWNLOADED)
def test_a_real_table_from_the_archive_is_the_one_from_the_folder(archive, monkeypatch, name):
    _, rows = decimal_rows(REAL / "uci" / uci.SETS[name].csv)
    values = np.random.default_rng(0).permutation(np.array(rows))
    if name == "real_estate":  # its file has the months as 2012.9166666666667
        values[:, 0] = np.round(values[:, 0] * 12) / 12
    publish(archive[0], name, native(name, values))
    downloaded = uci.read(name).frame
    monkeypatch.setenv("BAYESDIV_DATA", str(REAL))
    pd.testing.assert_frame_equal(downloaded, uci.read(name).frame, check_exact=True)


@real_data
def test_the_archives_own_file_of_concrete_is_read(archive, monkeypatch):
    frame = pd.read_csv(REAL / "uci" / "concrete.csv")
    header = (
        "Cement,Blast Furnace Slag,Fly Ash,Water,Superplasticizer,Coarse Aggregate,"
        "Fine Aggregate,Age,Concrete compressive strength"
    )
    content = text(frame.to_numpy(), ",", header, end="\r\n").encode()
    # The sum that others publish for the archive's data.csv: this is that file, byte for byte.
    assert hashlib.sha256(content).hexdigest() == (
        "8d4b15b6fc68cd932d745cbd663d5ceae66dd54422e99c1e4865f2936ab7e2af"
    )
    publish(archive[0], "concrete", content)
    assert uci.read("concrete").frame.shape == (1030, 9)


@real_data
def test_a_set_is_loaded_by_its_name(monkeypatch):
    monkeypatch.setenv("BAYESDIV_DATA", str(REAL))
    splits = parted(opened("concrete"), test=0.1, validation=0.0)
    assert (splits.name, splits.target, splits.notes) == (
        "concrete",
        "compressive_strength_mpa",
        (),
    )
    assert (len(splits.train.x), len(splits.validation.x), len(splits.test.x)) == (927, 0, 103)
    assert splits.shape == (8,)
    assert isinstance(splits.task, Regression)


@real_data
def test_quality_of_wine_is_a_quantity_and_not_a_class(monkeypatch):
    monkeypatch.setenv("BAYESDIV_DATA", str(REAL))
    splits = load("wine_red")
    assert isinstance(splits.task, Regression)
    units = splits.task.to_units(splits.train.y)
    assert torch.allclose(units, units.round(), atol=1e-4)


# The checksum ----------------------------------------------------------------------------------


def test_the_checksum_knows_neither_row_order_nor_the_way_numbers_are_written():
    rows = np.array([[0.1 + 0.2, -1.0], [1e6 + 1e-7, 0.0], [1e6 + 1e-7, 0.0]])
    same = np.array([[1e6, -0.0], [0.3, -1.0], [1e6, 0.0]])
    assert uci.checksum(rows) == uci.checksum(same)


@pytest.mark.parametrize(
    ("full", "rounded"),
    [("1291446.5265", "1291446.527"), ("-1291446.5265", "-1291446.527"), ("2.00000000045", None)],
)
def test_halves_are_rounded_away_from_zero_as_the_archive_does(full, rounded):
    expected = decimal(full) if rounded is None else float(rounded)
    assert uci.checksum(np.array([[float(full)]])) == uci.checksum(np.array([[expected]]))


@pytest.mark.parametrize(
    "other",
    [
        [[1.0, 2.0], [3.0, 4.000001]],
        [[1.0, 2.0]],
        [[1.0, 2.0], [3.0, 4.0], [3.0, 4.0]],
        [[2.0, 1.0], [4.0, 3.0]],
        [[1.0], [2.0], [3.0], [4.0]],
        [[1.0, 4.0], [3.0, 2.0]],
    ],
)
def test_the_checksum_knows_numbers_columns_and_rows(other):
    assert uci.checksum(np.array(other)) != uci.checksum(np.array([[1.0, 2.0], [3.0, 4.0]]))


# From a folder ---------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["uci/yacht.csv", "yacht.csv"])
def test_a_table_is_found_in_both_places_of_the_folder(folder, monkeypatch, place):
    values = made_up(monkeypatch, "yacht")
    (folder / place).write_text(csv_of("yacht", values))
    found = uci.read("yacht").frame.to_numpy()
    np.testing.assert_array_equal(found, np.array(sorted(values.tolist())))


@pytest.mark.parametrize("file", ["energy_heating.csv", "energy.csv"])
def test_a_table_is_found_by_its_own_name_too(folder, monkeypatch, file):
    values = made_up(monkeypatch, "energy")
    (folder / "uci" / file).write_text(csv_of("energy", values))
    assert len(uci.read("energy").frame) == len(values)


def test_columns_are_found_by_name_and_others_ignored(folder, monkeypatch):
    values = made_up(monkeypatch, "yacht")
    frame = pd.DataFrame(values, columns=list(uci.SETS["yacht"].columns))
    shuffled = frame.iloc[::-1, ::-1].assign(note="text")
    shuffled.to_csv(folder / "yacht.csv", index=False, sep=";")
    assert tuple(uci.read("yacht").frame.columns) == uci.SETS["yacht"].columns


def test_a_table_in_the_folder_is_not_downloaded(folder, archive, monkeypatch):
    values = made_up(monkeypatch, "yacht")
    publish(archive[0], "yacht", native("yacht", values))
    (folder / "uci" / "yacht.csv").write_text(csv_of("yacht", values))
    uci.read("yacht")
    assert archive[1] == []


def test_a_table_that_the_folder_does_not_have_is_downloaded(folder, archive, monkeypatch):
    values = made_up(monkeypatch, "yacht")
    publish(archive[0], "yacht", native("yacht", values))
    assert len(uci.read("yacht").frame) == len(values)


def test_a_changed_number_is_told_with_the_file_before_any_training(folder, monkeypatch):
    values = made_up(monkeypatch, "yacht")
    values[3, 2] += 0.001
    path = folder / "uci" / "yacht.csv"
    path.write_text(csv_of("yacht", values))
    expected = uci.SETS["yacht"].checksum[:12]
    with pytest.raises(DataError) as caught:
        load("yacht")
    assert str(caught.value) == (
        f"{path} is not the published table: its checksum must be {expected}…, got "
        f"{uci.checksum(values)[:12]}…"
    )


def test_a_table_that_breaks_off_is_told_with_its_rows(folder, monkeypatch):
    values = made_up(monkeypatch, "yacht", rows=20)
    (folder / "yacht.csv").write_text(csv_of("yacht", values[:13]))
    with pytest.raises(DataError, match=r"is not the published table: .* 20 rows .*, got 13$"):
        uci.read("yacht")


@pytest.mark.parametrize(
    ("cell", "complaint"),
    [
        ("many", "must hold numbers, got 'many' in row 1$"),
        ("", "missing values: 1 in 'pris.*', the first in row 1$"),
    ],
)
def test_a_cell_without_a_number_is_told(folder, monkeypatch, cell, complaint):
    values = made_up(monkeypatch, "yacht")
    frame = pd.DataFrame(values, columns=list(uci.SETS["yacht"].columns)).astype(object)
    frame.iloc[0, 1] = cell
    frame.to_csv(folder / "yacht.csv", index=False)
    with pytest.raises(DataError, match=f"yacht.csv is not the published table: .*{complaint}"):
        uci.read("yacht")


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ("froude_number", "column 'froude_number' in its"),
        (None, "column 'long.*' and 6 more in its"),
    ],
)
def test_a_wrong_header_names_the_missing_column(folder, monkeypatch, header, complaint):
    content = csv_of("yacht", made_up(monkeypatch, "yacht"))
    lines = content.replace(header, "speed") if header else content.split("\n", 1)[1]
    (folder / "yacht.csv").write_text(lines)
    with pytest.raises(DataError, match=f"published table: it must have the {complaint} header"):
        uci.read("yacht")


def test_a_ready_made_table_is_refused_without_options_that_it_does_not_take(folder):
    (folder / "yacht.csv").write_bytes(b"caf\xe9,1\n")
    with pytest.raises(
        DataError, match=r"published table: .*UTF-8 text, got: the byte .* place 3$"
    ):
        uci.read("yacht")


def test_a_file_that_is_no_table_is_told(folder):
    (folder / "yacht.csv").write_bytes(b"\0\1\2")
    with pytest.raises(DataError, match=r"yacht.csv must be UTF-8 text, got a binary file"):
        uci.read("yacht")


# From the archive ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DOWNLOADED)
def test_the_archives_format_is_read(archive, monkeypatch, name):
    values = made_up(monkeypatch, name)
    publish(archive[0], name, native(name, values))
    table = uci.read(name)
    assert tuple(table.frame.columns) == uci.SETS[name].columns
    np.testing.assert_array_equal(table.frame.to_numpy(), np.array(sorted(values.tolist())))


def test_a_second_call_does_not_download(archive, monkeypatch):
    publish(archive[0], "airfoil", native("airfoil", made_up(monkeypatch, "airfoil")))
    first, second = uci.read("airfoil"), uci.read("airfoil")
    pd.testing.assert_frame_equal(first.frame, second.frame)
    assert len(archive[1]) == 1
    assert "/291/airfoil+self+noise.zip" in archive[1][0]


def test_two_targets_of_one_file_are_downloaded_once(archive, monkeypatch):
    values = made_up(monkeypatch, "building")
    monkeypatch.setitem(
        uci.SETS,
        "building_cost",
        replace(
            uci.SETS["building_cost"],
            rows=len(values),
            checksum=uci.checksum(np.hstack([values[:, :-1], np.full((len(values), 1), 77.0)])),
        ),
    )
    publish(archive[0], "building", native("building", values))
    assert uci.read("building").target == "sale_price_V9"
    assert set(uci.read("building_cost").frame["construction_cost_V10"]) == {77.0}
    assert len(archive[1]) == 1


def test_without_a_connection_the_file_that_would_help_is_named():
    with pytest.raises(DataError) as caught:
        uci.read("building")
    assert str(caught.value).endswith(
        "got no answer: check the connection, or set BAYESDIV_DATA to a folder that holds the "
        "files, here uci/residential_building_price.csv"
    )


@pytest.mark.parametrize("name", ["boston_housing", "kin8nm"])
def test_a_set_without_a_public_address_is_asked_for_in_a_folder(name):
    with pytest.raises(DataError, match="as no public address has it: set BAYESDIV_DATA to a fold"):
        uci.read(name)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("yacht", b"no zip file"),
        ("yacht", zipped({"other.data": "1 2 3"})),
        ("yacht", zipped({"yacht_hydrodynamics.data": "1 2 3\n4 5"})),
        ("yacht", zipped({"yacht_hydrodynamics.data": "1 2 3\n4 5 6"})),
        ("yacht", zipped({"yacht_hydrodynamics.data": b"\xff\xfe"})),
        ("energy", zipped({"ENB2012_data.xlsx": "no workbook"})),
        ("energy", zipped({"ENB2012_data.xlsx": zipped({"xl/workbook.xml": "<broken"})})),
        ("energy", zipped({"ENB2012_data.xlsx": xlsx([])})),
        ("concrete", b"<html>the archive moved</html>"),
    ],
)
def test_a_damaged_download_is_told_and_not_kept(archive, monkeypatch, name, content):
    values = made_up(monkeypatch, name)
    publish(archive[0], name, content)
    with pytest.raises(DataError, match="it was removed, and the next call downloads it again"):
        uci.read(name)
    publish(archive[0], name, native(name, values))
    assert len(uci.read(name).frame) == len(values)


def test_a_download_with_other_numbers_is_told_with_its_checksum(archive, monkeypatch):
    values = made_up(monkeypatch, "wine_red")
    publish(archive[0], "wine_red", native("wine_red", values + 1))
    with pytest.raises(DataError, match=r"wine\+quality.zip is not the published table: its check"):
        uci.read("wine_red")


def test_an_unknown_name_is_told_with_the_known_ones():
    with pytest.raises(DataError, match=r"one of airfoil, aquatic_toxicity, .*, got 'boston'"):
        uci.read("boston")
