"""Code in the pages is run, page by page, so that what a reader copies works."""

import pytest

from pages import PAGES, needs_clients, run


@pytest.mark.parametrize(
    "page", [page for page in PAGES if not needs_clients(page)], ids=lambda page: page.name
)
def test_code_of_a_page_runs(page):
    run(page)
