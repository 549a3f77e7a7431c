"""The built site in a browser, from disk: `make docs` runs these after it has built it."""

from html.parser import HTMLParser
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pytest

import browser
from pages import ROOT

pytestmark = pytest.mark.site
SITE = ROOT / "site"
JUDGED = [
    "index.html",
    "why-bounded.html",
    "quickstart.html",
    "tutorials/index.html",
    "tutorials/01_uncertainty.html",
    "coming-from/blitz.html",
    "concepts/divergences.html",
    "reference/objective.html",
    "paper/report.html",
]


def files():
    """Every page; 404.html is for servers, with addresses of the server."""
    return sorted(p for p in SITE.rglob("*.html") if p.name != "404.html")


class Page(HTMLParser):
    """What a page links to, and the places in it that can be linked to."""

    def __init__(self, path):
        super().__init__()
        self.links, self.places = [], {"", "__top"}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.places |= {found[key] for key in ("id", "name") if found.get(key)}
        self.links += [found[key] for key in ("href", "src") if found.get(key)]


@pytest.fixture(scope="module")
def chromium():
    with browser.started() as started:
        yield started


def opened(chromium, name, dark):
    """A page in light or dark; the theme remembers what an earlier page had."""
    page = chromium.open((SITE / name).as_uri(), dark=dark)
    page.run("localStorage.clear()")
    page.goto((SITE / name).as_uri())
    if name != "why-bounded.html":
        scheme = "slate" if dark else "default"
        page.until(f"document.body.dataset.mdColorScheme === '{scheme}'")
    return page


class Seen(NamedTuple):
    requests: list
    problems: list
    width: int


@pytest.fixture(scope="module")
def on_a_phone(chromium):
    """Every page, opened once in a narrow window."""
    page = chromium.open((SITE / "index.html").as_uri(), width=390, height=844)
    seen = {}
    for path in files():
        page.requests.clear()
        page.problems.clear()
        page.goto(path.as_uri())
        width = page.run("document.scrollingElement.scrollWidth")
        seen[path] = Seen(list(page.requests), list(page.problems), width)
    return seen


def test_every_internal_link_works_from_disk():
    pages = {path: Page(path) for path in files()}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                broken.append((path.name, link))
            elif target in pages:
                place = unquote(parts.fragment)
                if place not in pages[target].places and not place.startswith("only-"):
                    broken.append((path.name, link))
    assert not broken


def test_no_page_reports_a_problem(on_a_phone):
    assert not {path.name: seen.problems for path, seen in on_a_phone.items() if seen.problems}


def test_no_page_asks_the_network(on_a_phone):
    asked = {url for seen in on_a_phone.values() for url in seen.requests}
    assert not {url for url in asked if not url.startswith(("file:", "data:", "about:"))}


def test_no_page_scrolls_sideways_on_a_phone(on_a_phone):
    assert not {path.name: seen.width for path, seen in on_a_phone.items() if seen.width > 390}


def test_search_finds_a_page_from_disk(chromium):
    page = chromium.open((SITE / "index.html").as_uri())
    page.run("document.querySelector('[data-md-component=search-query]').focus()")
    page.call("Input.insertText", text="temperature")
    page.until("document.querySelector('.md-search-result__link') !== null")
    assert "howto/calibration" in page.run(
        "[...document.querySelectorAll('.md-search-result__link')].map(a => a.href).join()"
    )
    assert page.problems == []


@pytest.mark.parametrize("name", ["index.html", "why-bounded.html", "concepts/divergences.html"])
def test_focus_of_the_keyboard_can_be_seen(chromium, name):
    page = chromium.open((SITE / name).as_uri())
    visible = 0
    for _ in range(8):
        page.press("Tab")
        visible += page.run(
            "(() => { const at = document.activeElement;"
            " const shown = at.matches('.md-option') ? at.nextElementSibling : at;"  # its label
            " const style = getComputedStyle(shown);"
            " return style.outlineStyle !== 'none' || style.boxShadow !== 'none'; })()"
        )
    assert visible == 8


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_figures_suit_the_colours_of_the_page(chromium, dark):
    page = opened(chromium, "concepts/divergences.html", dark)
    shown = page.run(
        "[...document.querySelectorAll('article img')]"
        ".filter(i => i.offsetParent !== null).map(i => i.getAttribute('src'))"
    )
    assert shown
    assert all(src.endswith("#only-dark" if dark else "#only-light") for src in shown)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", JUDGED)
def test_axe_finds_nothing_serious(chromium, axe, name, dark):
    page = opened(chromium, name, dark)
    assert page.serious(axe) == []
