"""Public regression tables, most of the UCI archive: from a folder or the web, and verified.

A table comes from `uci/FILE.csv` or `FILE.csv` in the folder that BAYESDIV_DATA names, else from
the archive. Either way it is the published one or is refused: its `checksum` must be right. Rows
come in ascending order and numbers with ten significant digits, so that a seed draws the same
parts, and a run has the same encoder, wherever the table came from.
"""

import hashlib
import io
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from xml.etree import ElementTree
from zipfile import BadZipFile, ZipFile
from zlib import error as ZlibError

import numpy as np
from numpy.typing import NDArray

from bayesdiv.app.data import DataError, Regression
from bayesdiv.app.data.downloads import DATA, Unreachable, data_folder, fetch
from bayesdiv.app.data.encoder import check_columns, numbers_of
from bayesdiv.app.data.table import Table
from bayesdiv.app.data.table import read as read_table

Numbers = NDArray[np.float64]
_ARCHIVE = "https://archive.ics.uci.edu/static/public"
_DAMAGED = (  # what reading a broken file may raise
    *(BadZipFile, ElementTree.ParseError, EOFError, LookupError, RuntimeError, ValueError),
    ZlibError,
)


@dataclass(frozen=True)
class Source:
    """Where the archive has a table, and in which form.

    Args:
        place: of a zip file, or of the file itself, below the archive's address.
        parse: the numbers of the file, NaN where a cell has none.
        columns: which columns of the file are the features, in order, and then the target.
        member: the file in the zip file; None where there is no zip file.
    """

    place: str
    parse: Callable[[bytes], Numbers]
    columns: tuple[int, ...]
    member: str | None = None

    def fetched(self) -> Path:
        """The file, from the archive or the cache."""
        return fetch(f"{_ARCHIVE}/{self.place}", None, f"uci/{self.place}")

    def numbers(self, path: Path) -> Numbers:
        """Features and target of the rows that have all of them, from the downloaded file."""
        content = path.read_bytes()
        if self.member is not None:
            with ZipFile(io.BytesIO(content)) as archive:
                content = archive.read(self.member)
        found = self.parse(content)[:, list(self.columns)]
        return found[~np.isnan(found).any(axis=1)]


@dataclass(frozen=True)
class Dataset:
    """A table by name: what it holds, how to know it and where to get it.

    Args:
        name: what `read` and `load` know it by.
        title: what its publisher calls it.
        rows: how many it has.
        columns: features, then the target.
        checksum: see `checksum`.
        source: in the archive; None where no public address has it.
        file: its name in a folder of one's own, without .csv, if that is not `name`.

    Examples:
        >>> SETS["yacht"].shape, SETS["yacht"].target
        ((308, 6), 'residuary_resistance')
    """

    name: str
    title: str
    rows: int
    columns: tuple[str, ...]
    checksum: str
    source: Source | None
    file: str = ""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self.rows, len(self.columns) - 1

    @property
    def target(self) -> str:
        """The column to predict."""
        return self.columns[-1]

    @property
    def csv(self) -> str:
        """The file to look for in a folder of one's own."""
        return f"{self.file or self.name}.csv"


def read(name: str) -> Table:
    """A public table by its name, verified.

    Raises:
        DataError: no set has that name, or the table cannot be had or is not the published one.

    Examples:
        >>> read("concret")
        Traceback (most recent call last):
        bayesdiv.app.data.DataError: a public table must be one of airfoil, ..., got 'concret'
    """
    import pandas as pd

    if name not in SETS:
        raise DataError(f"a public table must be one of {', '.join(SETS)}, got {name!r}")
    known = SETS[name]
    path = _in_folder(known)
    values = _downloaded(known) if path is None else _verified(known, _from_csv(known, path), path)
    frame = pd.DataFrame(values, columns=list(known.columns))
    return Table(known.name, frame, known.target, Regression)


def checksum(values: Numbers) -> str:
    """What a table is known by, whatever the order of its rows and the way its numbers are written.

    Numbers are rounded to ten significant digits, halves away from zero, and rows are sorted. The
    sum is the sha256 of the two sizes, as 64-bit integers, and the numbers, row by row, as 64-bit
    floats, all little endian.

    Examples:
        >>> rows = np.array([[2.0, 1 / 3], [1.0, 5.0]])
        >>> checksum(rows) == checksum(np.array([[1.0, 5.0], [2.0, 0.3333333333]]))
        True
    """
    return _digest(_canonical(values))


def _digest(ordered: Numbers) -> str:
    sizes = struct.pack("<2q", *ordered.shape)
    return hashlib.sha256(sizes + ordered.astype("<f8").tobytes()).hexdigest()


def _canonical(values: Numbers) -> Numbers:
    """The rows in ascending order, their numbers with ten significant digits."""
    # The nudge settles ties, which a binary fraction would leave to chance: the archive's copy of
    # the proteins has 1291446.527 where the full number is 1291446.5265. Adding 0 unsigns a zero.
    nudged = (values * (1 + 1e-13) + 0.0).ravel().tolist()
    rounded = np.array([float(f"{value:.9e}") for value in nudged]).reshape(values.shape)
    return rounded[np.lexsort(rounded.T[::-1])]


def _in_folder(known: Dataset) -> Path | None:
    """The CSV file in the user's own folder, if it is there."""
    folder = data_folder()
    if folder is None:
        return None
    names = dict.fromkeys((known.csv, f"{known.name}.csv"))
    paths = [folder / place / name for place in ("uci", ".") for name in names]
    return next((path for path in paths if path.is_file()), None)


def _from_csv(known: Dataset, path: Path) -> Numbers:
    """Features and target of a CSV file, by the names in its header."""
    frame = read_table(path)
    absent = [column for column in known.columns if column not in frame.columns]
    if absent:
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        raise DataError(
            f"{path} must have the column {absent[0]!r}{more} in its header, got none named so"
        )
    used = frame[list(known.columns)]
    try:
        check_columns(used)
        return np.stack([numbers_of(used[column]) for column in known.columns], axis=1)
    except DataError as problem:
        raise DataError(f"{path} is not the published table: {problem}") from problem


def _downloaded(known: Dataset) -> Numbers:
    """Features and target from the archive, or from what an earlier call left in the cache."""
    wanted = f"uci/{known.csv}"
    if known.source is None:
        raise DataError(
            f"{known.name} must come from a folder, as no public address has it: set {DATA} to a "
            f"folder that holds {wanted}"
        )
    try:
        path = known.source.fetched()
    except Unreachable as problem:
        raise Unreachable(f"{problem}, here {wanted}") from problem
    try:
        return _verified(known, known.source.numbers(path), path)
    except _DAMAGED as problem:
        path.unlink(missing_ok=True)  # else every later call would find it in the cache
        told = str(problem) if isinstance(problem, DataError) else f"{path} cannot be read"
        raise DataError(
            f"{told}; it was removed, and the next call downloads it anew, or set {DATA} to a "
            f"folder that holds {wanted}"
        ) from problem


def _verified(known: Dataset, values: Numbers, path: Path) -> Numbers:
    """The numbers as they are verified, if they are the published ones."""
    if len(values) != known.rows:
        raise DataError(
            f"{path} is not the published table: it must have {known.rows} rows of numbers, got "
            f"{len(values)}"
        )
    ordered = _canonical(values)
    found = _digest(ordered)
    if found != known.checksum:
        raise DataError(
            f"{path} is not the published table: its checksum must be {known.checksum[:12]}…, got "
            f"{found[:12]}…"
        )
    return ordered


# The archive's formats -----------------------------------------------------------------------


def _text(content: bytes, *, separator: str | None = None, header: int = 0) -> Numbers:
    """Rows of a text file; None separates by any number of spaces and tabs."""
    lines = content.decode("utf-8-sig").splitlines()[header:]
    return np.array([line.split(separator) for line in lines if line.strip()], dtype=np.float64)


def _sheet(content: bytes) -> Numbers:
    """The first sheet of an .xlsx file, NaN where a cell holds text or nothing.

    Such a file is a zip file of XML, so that this needs no package: a row lists its filled cells,
    each with its place, such as AB12, and its number, or a type that says that it is none.
    """
    with ZipFile(io.BytesIO(content)) as book:
        root = ElementTree.fromstring(book.read(_first_sheet(book)))
    rows = [
        {
            _index(cell.attrib["r"]): float(cell.findtext("{*}v") or "nan")
            for cell in row.iterfind("{*}c")
            if cell.get("t", "n") == "n"
        }
        for row in root.iterfind("{*}sheetData/{*}row")
    ]
    numbers = np.full((len(rows), 1 + max(max(row, default=0) for row in rows)), np.nan)
    for place, row in enumerate(rows):
        numbers[place, list(row)] = list(row.values())
    return numbers


def _first_sheet(book: ZipFile) -> str:
    """The path of the sheet that the workbook lists first."""
    sheets = ElementTree.fromstring(book.read("xl/workbook.xml")).findall("{*}sheets/{*}sheet")
    (link,) = (value for key, value in sheets[0].attrib.items() if key.endswith("}id"))
    links = ElementTree.fromstring(book.read("xl/_rels/workbook.xml.rels"))
    target = {entry.get("Id"): entry.attrib["Target"] for entry in links}[link]
    return target.lstrip("/") if target.startswith("/") else f"xl/{target}"


def _index(place: str) -> int:
    """The column of a cell: A1 is 0, AA1 is 26."""
    index = 0
    for letter in re.sub(r"\d", "", place):
        index = 26 * index + ord(letter) - ord("A") + 1
    return index - 1


# The tables ----------------------------------------------------------------------------------

_WINE = (
    "fixed_acidity",
    "volatile_acidity",
    "citric_acid",
    "residual_sugar",
    "chlorides",
    "free_sulfur_dioxide",
    "total_sulfur_dioxide",
    "density",
    "pH",
    "sulphates",
    "alcohol",
    "quality",
)
_BUILDING = (
    *("start_year", "start_quarter", "completion_year", "completion_quarter"),
    *(f"V{number}" for number in range(1, 9)),
    *(f"V{number}_lag{lag}" for lag in range(1, 6) for number in range(11, 30)),
)


def _wine(colour: str) -> Source:
    return Source(
        "186/wine+quality.zip",
        partial(_text, separator=";", header=1),
        tuple(range(12)),
        f"winequality-{colour}.csv",
    )


def _building(target: int) -> Source:
    return Source(
        "437/residential+building+data+set.zip",
        _sheet,
        (*range(107), target),
        "Residential-Building-Data-Set.xlsx",
    )


SETS: dict[str, Dataset] = {
    known.name: known
    for known in (
        Dataset(
            "airfoil",
            "Airfoil Self-Noise",
            1503,
            (
                "frequency_hz",
                "angle_of_attack_deg",
                "chord_length_m",
                "free_stream_velocity_m_s",
                "suction_side_displacement_thickness_m",
                "scaled_sound_pressure_db",
            ),
            "06ea0f8992f9a5199aaa921fe83623bafc4bc11766df2a4d08b3cb14860e05cb",
            Source(
                "291/airfoil+self+noise.zip",
                _text,
                tuple(range(6)),
                "airfoil_self_noise.dat",
            ),
        ),
        Dataset(
            "aquatic_toxicity",
            "QSAR Aquatic Toxicity",
            546,
            (
                *("TPSA", "SAacc", "H_050", "MLOGP", "RDCHI", "GATS1p", "nN", "C_040"),
                "LC50_neg_log_mol_l",
            ),
            "858785e49ad80f0a55a6ef3ac15fc40aa020e45b18e671998433d785a9f17087",
            Source(
                "505/qsar+aquatic+toxicity.zip",
                partial(_text, separator=";"),
                tuple(range(9)),
                "qsar_aquatic_toxicity.csv",
            ),
        ),
        Dataset(
            "boston_housing",
            "Boston Housing",
            506,
            (
                *("CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX"),
                *("PTRATIO", "B", "LSTAT", "MEDV"),
            ),
            "26dc24367ee59c154d6a50aff9838752fa76f7a6e0d0d9f0c4c74020c30102c0",
            None,
        ),
        Dataset(
            "building",
            "Residential Building, sale price",
            372,
            (*_BUILDING, "sale_price_V9"),
            "492b6215df3ca5721b7d65ad941b75b3b0e031fdb6ba56315cb08a7115d2af5f",
            _building(107),
            "residential_building_price",
        ),
        Dataset(
            "building_cost",
            "Residential Building, construction cost",
            372,
            (*_BUILDING, "construction_cost_V10"),
            "16c497048f25a03d1b82fd788e18e45d02469972ef18b2d87e4672d3495fc1d0",
            _building(108),
            "residential_building_cost",
        ),
        Dataset(
            "concrete",
            "Concrete Compressive Strength",
            1030,
            (
                "cement",
                "blast_furnace_slag",
                "fly_ash",
                "water",
                "superplasticizer",
                "coarse_aggregate",
                "fine_aggregate",
                "age_days",
                "compressive_strength_mpa",
            ),
            "5b1075dae7ca1b3de48f3f90ddffa8e318584a05c6d2edc8f6ec2d0303f254ba",
            # The zip file has an .xls with more decimals than the table that everybody uses.
            Source(
                "165/data.csv",
                partial(_text, separator=",", header=1),
                tuple(range(9)),
            ),
        ),
        Dataset(
            "energy",
            "Energy Efficiency, heating load",
            768,
            (
                "relative_compactness",
                "surface_area",
                "wall_area",
                "roof_area",
                "overall_height",
                "orientation",
                "glazing_area",
                "glazing_area_distribution",
                "heating_load",
            ),
            "09d94ec056ea446c1bb0610e352b982e790c4477df27b8780585bba4b7051851",
            Source(
                "242/energy+efficiency.zip",
                _sheet,
                tuple(range(9)),
                "ENB2012_data.xlsx",
            ),
            "energy_heating",
        ),
        Dataset(
            "kin8nm",
            "Kinematics of an 8 link robot arm",
            8192,
            (*(f"theta{number}" for number in range(1, 9)), "y"),
            "79ed35c0802b48dc350cf6e142d6fe39c77474c7d93d53fc3cd5d3f47eee9a1a",
            None,
        ),
        Dataset(
            "power_plant",
            "Combined Cycle Power Plant",
            9568,
            (
                "ambient_temperature",
                "exhaust_vacuum",
                "ambient_pressure",
                "relative_humidity",
                "electrical_output_mw",
            ),
            "e2065c44a17b6ed6097ae458f8a59b0044d109af34f428fa3e9e773089fe0a83",
            # Its five sheets are the same rows, shuffled.
            Source(
                "294/combined+cycle+power+plant.zip",
                _sheet,
                tuple(range(5)),
                "CCPP/Folds5x2_pp.xlsx",
            ),
        ),
        Dataset(
            "protein",
            "Physicochemical Properties of Protein Tertiary Structure",
            45730,
            (*(f"F{number}" for number in range(1, 10)), "RMSD"),
            "b8ffc0cb603a1c5a450b9b747a980b7464fd49ce9c8673236850f4c3feece384",
            Source(
                "265/physicochemical+properties+of+protein+tertiary+structure.zip",
                partial(_text, separator=",", header=1),
                (*range(1, 10), 0),
                "CASP.csv",
            ),
        ),
        Dataset(
            "real_estate",
            "Real Estate Valuation",
            414,
            (
                "transaction_date",
                "house_age_years",
                "distance_to_mrt_m",
                "convenience_stores",
                "latitude",
                "longitude",
                "price_per_unit_area",
            ),
            "28543cf1548a3bd90f3bb38da96e2b81df072dc92e11d2dc4f489875942158f5",
            # The first column counts the rows.
            Source(
                "477/real+estate+valuation+data+set.zip",
                _sheet,
                tuple(range(1, 8)),
                "Real estate valuation data set.xlsx",
            ),
        ),
        Dataset(
            "wine_red",
            "Wine Quality, red",
            1599,
            _WINE,
            "94fbed7fc5538f115386473f58560f120606c1053c33fee5daca0934611a7e29",
            _wine("red"),
        ),
        Dataset(
            "wine_white",
            "Wine Quality, white",
            4898,
            _WINE,
            "f42fa29baffe7e376f9e132ebbe456ecaea48a2ba00db7e670c1699ecf1de3d2",
            _wine("white"),
        ),
        Dataset(
            "yacht",
            "Yacht Hydrodynamics",
            308,
            (
                "longitudinal_position_of_buoyancy",
                "prismatic_coefficient",
                "length_displacement_ratio",
                "beam_draught_ratio",
                "length_beam_ratio",
                "froude_number",
                "residuary_resistance",
            ),
            "b600e49a38e2dcf1ce04d345d755f926534feb60b5c1d23cca0440ea018be8f6",
            Source(
                "243/yacht+hydrodynamics.zip",
                _text,
                tuple(range(7)),
                "yacht_hydrodynamics.data",
            ),
        ),
    )
}

PAPER = (
    "airfoil",
    "aquatic_toxicity",
    "boston_housing",
    "building",
    "concrete",
    "real_estate",
    "wine_red",
    "yacht",
)  # the sets that the paper's text and its tables list
