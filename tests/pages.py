"""The pages with code, and which of them need the packages of `make clients`."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CLIENTS = re.compile(
    r"^(?:from|import) (?:transformers|peft|lightning|skorch|botorch|mapie|shap"
    r"|bayesian_torch|blitz|laplace|pyro|torchbnn)\b",
    re.M,
)


def code_of(page: Path) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S))


def needs_clients(page: Path) -> bool:
    return CLIENTS.search(code_of(page)) is not None


PAGES = [
    page for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if code_of(page)
]


def run(page: Path) -> dict[str, Any]:
    """Run the code of a page and return the names it leaves."""
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code_of(page), str(page), "exec"), names)
    return names
