"""The reproducibility report is what the committed results give."""

from pathlib import Path

import pytest

from reproduction import report
from reproduction.catalogue import CATALOGUE

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "paper" / "report.md"

pytestmark = pytest.mark.skipif(
    not (ROOT / "results").is_dir(), reason="results/ is not beside the tests"
)


def test_the_page_is_what_the_results_give():
    assert PAGE.read_text(encoding="utf-8") == report.report(ROOT / "results")


def test_every_item_has_a_claim_and_a_row():
    names = {entry.name for entry in CATALOGUE}
    assert set(report.CLAIMS) == names
    assert set(report.WHY) <= names
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(CATALOGUE)
    assert [row.split(" | ")[0].strip("| ") for row in rows] == [e.label for e in CATALOGUE]


def test_the_command_writes_the_page(tmp_path, monkeypatch):
    page = tmp_path / "report.md"
    results = str(ROOT / "results")
    monkeypatch.setattr("sys.argv", ["report", str(page), "--results", results])
    report.main()
    assert page.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")
