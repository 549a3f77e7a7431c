"""Every architecture, with one draw and four, in both precisions, saved and loaded."""

from pathlib import Path

import pytest

from clients.architectures import ARCHITECTURES
from clients.cases import CASES
from clients.table import cells_of

PAGE = Path(__file__).parents[2] / "docs/reference/architectures.md"
# What does not work, and why.
KNOWN: dict[tuple[str, str], str] = {}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda one: one.name)
def test_an_architecture_runs(architecture, case, tmp_path, record_property):
    reason = KNOWN.get((architecture.name, case))
    record_property("cell", [architecture.name, case, "yes" if reason is None else f"no: {reason}"])
    if reason is None:
        CASES[case](architecture, tmp_path)
    else:
        with pytest.raises((AssertionError, RuntimeError, ValueError)):
            CASES[case](architecture, tmp_path)


def test_the_page_says_what_was_run(request):
    if request.config.getoption("--table") is not None:
        pytest.skip("the page is being written")
    wanted = {
        (one.name, case): f"no: {KNOWN[one.name, case]}" if (one.name, case) in KNOWN else "yes"
        for one in ARCHITECTURES
        for case in CASES
    }
    assert cells_of(PAGE.read_text()) == wanted
