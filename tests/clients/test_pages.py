"""Code in the pages on other people's tools is run here, where they are installed."""

import pytest

from pages import PAGES, needs_clients, run


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if needs_clients(page) and page.parent.name != "coming-from"],
    ids=lambda page: page.name,
)
def test_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(page)
