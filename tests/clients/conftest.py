"""Nothing here is collected without the packages of `make clients`; `--table FILE` writes one."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

collect_ignore_glob = [] if find_spec("peft") else ["*.py"]
# What each architecture did in each case, from all processes of pytest-xdist.
CELLS: dict[tuple[str, str], str] = {}


def pytest_addoption(parser):
    parser.addoption("--table", type=Path, help="write the table of architectures to this file")


def pytest_configure(config):
    # Other people's warnings are theirs; those of ours are errors in the tests of `make test`.
    config.addinivalue_line("filterwarnings", "default")


def pytest_runtest_logreport(report):
    for key, value in report.user_properties:
        if key == "cell":
            name, case, did = value
            CELLS[name, case] = did


def pytest_sessionfinish(session):
    path = session.config.getoption("--table", None)
    if path and not hasattr(session.config, "workerinput"):
        from clients.table import page

        path.write_text(page(CELLS))


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
