"""The page on other libraries is what their run committed, and ours still does all of it."""

import importlib.util
import json

import pytest

from pages import ROOT

spec = importlib.util.spec_from_file_location("peers", ROOT / "benchmarks/transformer_peers.py")
peers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(peers)
FOUND = json.loads((ROOT / "results/benchmarks/transformer_peers.json").read_text())


def test_the_page_shows_what_was_measured():
    page = (ROOT / "docs/reference/other-libraries.md").read_text()
    assert peers.table(FOUND) in page
    assert all(
        f"{name} {number}" in page.replace("\n", " ") for name, number in FOUND["beside"].items()
    )
    assert f"{peers.ROWS} rows, {peers.STEPS} updates" in page


@pytest.mark.parametrize("case", peers.CASES)
def test_ours_does_what_the_page_says(case):
    assert peers.outcome("bayesdiv", case) == FOUND["outcomes"]["bayesdiv"][case]
