"""The page on messy files says what happens."""

import pytest

from benchmarks import messy

PAGE = messy.PAGE.read_text(encoding="utf-8").splitlines()
QUICK = ("commas.csv", "names.csv", "unknown.csv", "colons.csv", "codes.csv", "date-target.csv")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_there_are_forty_files_and_a_row_for_each():
    assert len(messy.CASES) >= 40
    assert len({case.name for case in messy.CASES}) == len(messy.CASES)
    assert [line.split(" | ")[0] for line in PAGE if line.startswith("| ")][1:] == [
        f"| {case.what}" for case in messy.CASES
    ]


@pytest.mark.parametrize("case", [c for c in messy.CASES if c.name in QUICK], ids=lambda c: c.name)
def test_what_happens_to_a_file_is_what_the_page_says(case):
    assert messy.row(case) in PAGE


@pytest.mark.slow
def test_what_happens_to_every_file_is_what_the_page_says():
    assert messy.page().splitlines() == PAGE


def test_no_file_is_refused_without_what_helps():
    """A sentence names an option, or what to do with the file."""
    ways = (
        "--",
        "rename",
        "remove",
        "must be a",
        "must have at least",
        "must have a header",
        "did you mean",
        "must be UTF-8",
        "check its name",
        "leave it out",
    )
    refused = [
        line.split(" | ")[1] for line in PAGE[9:] if "rows predicted" not in line.split(" | ")[1]
    ]
    assert refused
    assert [said for said in refused if not any(way in said for way in ways)] == []
