"""Code in the pages is run, page by page, so that what a reader copies works."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def code_of(page: Path) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S))


@pytest.mark.parametrize(
    "page", [page for page in PAGES if code_of(page)], ids=lambda page: page.name
)
def test_code_of_a_page_runs(page):
    exec(compile(code_of(page), str(page), "exec"), {"__name__": "page"})
