"""What the tests of the paper's items share."""

from pathlib import Path

import pytest

from reproduction.item import Effort
from reproduction.verdict import Outcome


@pytest.fixture(scope="module")
def results(request, tmp_path_factory) -> Path:
    """A folder with the toy results of the module's `item`, which was open before."""
    item = request.module.item
    folder = tmp_path_factory.mktemp("results")
    assert item.missing(folder)
    assert item.verdict(folder).outcome is Outcome.OPEN
    item.compute(folder, Effort.QUICK, lambda line: None)
    return folder
