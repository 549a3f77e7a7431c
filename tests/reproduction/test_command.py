"""`python -m reproduction` and its page: what is drawn, what is computed, what stops nothing."""

import re
import shutil
from pathlib import Path

import pytest

import browser
from bayesdiv.app import console, runs
from command import reproduce as call
from reproduction import published
from reproduction.catalogue import CATALOGUE, chosen
from reproduction.item import Entry
from reproduction.markdown import markdown
from reproduction.page import Shown, page
from reproduction.verdict import Badge, Verdict

ROOT = Path(__file__).parents[2]
EVIL = "<script>document.title = 'broken'</script>"
CHEAP = "divergence_areas"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console.output, "width", 250)
    monkeypatch.setattr(console.errors, "width", 250)


@pytest.fixture(scope="module")
def chromium():
    with browser.started() as running:
        yield running


def section(html, name):
    """The part of a page on one item."""
    found = re.search(rf'<section class="panel" id="{name}">.*?</section>', html, re.S)
    return None if found is None else found[0]


def computing(monkeypatch, name, compute):
    (entry,) = chosen([name])
    module = entry.module()
    if hasattr(module, "NEEDS"):
        whole = type(module.NEEDS)
        monkeypatch.setattr(whole, "compute", lambda self, *given: compute(*given))
    else:
        monkeypatch.setattr(module, "compute", compute)


def refuse(results, effort, tell):
    raise AssertionError("nothing is to be trained")


def test_the_list_names_every_entry_its_place_in_the_paper_and_how_it_stands(capsys):
    assert call("--list") == 0
    out = capsys.readouterr().out
    for entry in CATALOGUE:
        row = next(line for line in out.splitlines() if line.split()[:1] == [entry.name])
        assert "not computed yet" in row
    joined = " ".join(out.split())
    assert all(entry.label.split(",")[0] in joined for entry in CATALOGUE)
    assert all(entry.group in joined.partition("Groups of items: ")[2] for entry in CATALOGUE)
    assert not list(Path().iterdir())


def test_a_folder_of_results_that_is_not_there_is_told_with_what_to_do(capsys):
    assert call("--list", "--results", "else[where]") == 0
    told = capsys.readouterr().err.strip()
    assert "there is no folder else[where]" in told
    assert told.endswith("run in the project's repository or give --results FOLDER")
    assert "\n" not in told
    Path("else[where]").mkdir()
    assert call("--list", "--results", "else[where]") == 0
    assert capsys.readouterr().err == ""


def test_a_quick_run_of_a_cheap_item_ends_with_the_page_apart_from_the_real_results(capsys):
    assert call(CHEAP, "--quick", "-o", "out") == 0
    index = Path("out/quick/index.html")
    assert f"wrote {index}" in capsys.readouterr().out
    html = index.read_text(encoding="utf-8")
    assert "Toy sizes" in html
    own = section(html, CHEAP)
    assert 'src="data:image/svg+xml;base64,' in own
    assert "not computed yet" not in own
    assert re.search(r"points \d+", own)  # the settings of its result file
    assert Path("out/quick/results/figures", f"{CHEAP}.json").exists()
    assert not Path("results").exists()
    for entry in CATALOGUE:  # the page tells of all, and draws what was asked for
        assert entry.label in html
        assert (section(html, entry.name) is not None) == (entry.name == CHEAP)


def test_what_takes_seconds_is_computed_where_it_is_missing(capsys):
    assert call(CHEAP, "-o", "out") == 0
    assert "a result is missing, computing" in capsys.readouterr().err
    before = Path("results/figures", f"{CHEAP}.json").stat().st_mtime_ns
    assert call(CHEAP, "-o", "out") == 0
    assert "computing" not in capsys.readouterr().err
    assert Path("results/figures", f"{CHEAP}.json").stat().st_mtime_ns == before


@pytest.mark.skipif(not (ROOT / "results").is_dir(), reason="results/ is not beside the tests")
def test_a_run_of_all_items_writes_the_report_too(monkeypatch):
    (cheap,) = (entry for entry in CATALOGUE if entry.name == CHEAP)
    assert call(CHEAP, "--results", ROOT / "results", "-o", "out") == 0
    assert not Path("out/report.md").exists()
    monkeypatch.setattr("reproduction.command.CATALOGUE", (cheap,))
    assert call(CHEAP, "--results", ROOT / "results", "-o", "out") == 0
    assert Path("out/report.md").read_text() == (ROOT / "docs/paper/report.md").read_text()


@pytest.mark.parametrize("name", ["regression_rmse", "confusion"])
def test_what_is_trained_is_not_computed_unless_asked(name, monkeypatch, capsys):
    computing(monkeypatch, name, refuse)
    assert call(name, CHEAP, "-o", "out") == 0
    assert "--compute trains them" in capsys.readouterr().err
    html = Path("out/index.html").read_text(encoding="utf-8")
    assert "not computed yet" in section(html, name)
    assert f"<code>python -m reproduction {name} --compute</code>" in section(html, name)
    assert "<img" in section(html, CHEAP)


def test_what_is_trained_is_computed_if_asked(monkeypatch):
    asked = []
    computing(monkeypatch, "confusion", lambda results, effort, tell: asked.append(effort.value))
    assert call("confusion", "--compute", "-o", "out") == 0
    assert asked == ["full"]


def test_an_item_that_fails_does_not_stop_the_others(monkeypatch, capsys):
    def fail(results, effort, tell):
        raise KeyError("no such thing")

    computing(monkeypatch, "boundedness", fail)
    assert call("boundedness", CHEAP, "-o", "out") == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert "1 of 2 could not be made, the rest is in out/index.html" in told
    assert "boundedness: KeyError: 'no such thing'" in told
    html = Path("out/index.html").read_text(encoding="utf-8")
    assert "KeyError" in section(html, "boundedness")
    assert "<img" in section(html, CHEAP)


def test_a_damaged_result_is_told_and_does_not_stop_the_others(capsys):
    place = Path("results/figures/boundedness.json")
    runs.write(place, b"{ not JSON")
    assert call("--list") == 0
    assert "its results cannot be read" in capsys.readouterr().out
    assert call("boundedness", CHEAP, "-o", "out") == 2
    assert f"{place} is damaged" in capsys.readouterr().err
    html = Path("out/index.html").read_text(encoding="utf-8")
    assert f"{place} is damaged" in section(html, "boundedness")
    assert "<img" in section(html, CHEAP)
    assert place.read_bytes() == b"{ not JSON"


def test_an_unknown_name_is_refused_in_one_sentence(capsys):
    assert call("everything") == 2
    told = capsys.readouterr().err.strip()
    assert "got 'everything'" in told
    assert "\n" not in told


def test_a_page_that_cannot_be_written_is_told_in_one_sentence(capsys):
    Path("file").write_text("in the way")
    assert call("confusion", "-o", "file/out") == 2
    assert "file/out/index.html could not be written" in capsys.readouterr().err


@pytest.mark.skipif(not (ROOT / "results").is_dir(), reason="results/ is not beside the tests")
def test_the_list_has_one_line_per_item_with_badges_count_interval_and_what_was_not_run(capsys):
    assert call("--list", "--results", ROOT / "results") == 0
    lines = capsys.readouterr().out.splitlines()
    by_name = {line.split()[0]: line for line in lines if line.strip()}
    for entry in CATALOGUE:
        verdict = entry.module().verdict(ROOT / "results")
        line = by_name[entry.name]
        assert all(word in line for word in (entry.label, verdict.direction.value))
        assert verdict.size.value in line
        assert all(part in line for part in verdict.missing)
        assert not verdict.evidence or verdict.evidence[0].figures in line
    assert len(lines) <= len(CATALOGUE) + 5


@pytest.mark.skipif(
    not (ROOT / "results" / "regression").is_dir(), reason="results/ is not beside the tests"
)
def test_the_committed_tables_stand_beside_the_published_figures():
    assert call("regression", "--results", ROOT / "results", "-o", "out") == 0
    html = Path("out/index.html").read_text(encoding="utf-8")
    for name, table in (("regression_rmse", published.RMSE), ("regression_nll", published.NLL)):
        own = section(html, name)
        for row in table.values():
            for column in ("kl", "js_g", "js_a"):
                assert f">paper {row[column].mean:.2f}±{row[column].spread:.2f}<" in own
        assert re.search(r'class="badge (reproduced|partly|not)"', own)
    assert "NVIDIA" in html  # what the results were computed on
    assert "epochs 500" in html


def test_a_table_of_markdown_becomes_one_of_html():
    text = (
        "A **bold** note of 2*3*4 and `code`.\n\n| data | KL |\n| --- | ---: |\n"
        "| a \\| b | **1.0±0.1** [2.0±0.2] |\n\n*End.*"
    )
    html = markdown(text, "title")
    assert "<b>bold</b> note of 2*3*4 and <code>code</code>." in html
    assert '<th scope="row">a | b</th>' in html
    assert '<td><b>1.0±0.1</b><span class="theirs">paper 2.0±0.2</span></td>' in html
    assert "<em>End.</em>" in html
    assert html.count("<tr>") == 2


@pytest.fixture
def hostile(tmp_path):
    """A page all of whose texts try to be markup."""
    runs.write(tmp_path / f"{CHEAP}.md", f"{EVIL}\n\n| {EVIL} |\n|---|\n| **{EVIL}** |\n".encode())
    runs.write(tmp_path / "other.csv", f"a,{EVIL}\n1,{EVIL}\n".encode())
    group = chosen([CHEAP])[0].group  # the folder of its module, which no text can be
    shown = [
        Shown(
            Entry(CHEAP, f"title {EVIL}", f"label {EVIL}", group),
            Verdict(badge, badge, f"sentence {EVIL}", missing=(f"plan {EVIL}",)),
            (f"missing {EVIL}",),
            files=(file,),
            drawn=True,
            problem=f"problem {EVIL}",
        )
        for badge in Badge
        for file in (tmp_path / f"{CHEAP}.md", tmp_path / "other.csv")
    ]
    return page(shown, tmp_path, f"aside {EVIL}")


def test_labels_with_markup_are_text(hostile, chromium, tmp_path):
    assert "<script" not in hostile
    (tmp_path / "hostile.html").write_text(hostile, encoding="utf-8")
    opened = chromium.open((tmp_path / "hostile.html").as_uri())
    assert opened.run("document.title") == "The paper, recomputed and judged"
    text = opened.run("document.body.innerText")
    for word in ("title", "label", "sentence", "missing", "problem", "aside", "plan"):
        assert f"{word} {EVIL}" in text


def test_the_page_opens_without_errors_or_requests_and_nothing_scrolls_sideways(chromium):
    if (ROOT / "results" / "regression").is_dir():  # wide tables
        shutil.copytree(ROOT / "results" / "regression", "results/regression")
    names = (CHEAP, "divergence_properties", "regression", "confusion")
    assert call(*names, "-o", "out") == 0
    index = Path("out/index.html").resolve()
    html = index.read_text(encoding="utf-8")
    assert not re.search(r"https?://|@import|url\(|<script", html)
    opened = chromium.open(index.as_uri(), width=360)
    for width, dark in ((360, True), (700, False), (1200, True)):
        opened.look(width=width, dark=dark)
        assert opened.run("document.scrollingElement.scrollWidth") <= width
    assert opened.problems == []
    assert [a for a in opened.requests if not a.startswith("data:")] == [index.as_uri()]
    unnamed = "[...document.querySelectorAll('img, table')].filter((e) => !(e.alt || e.ariaLabel))"
    assert opened.run(f"{unnamed}.length") == 0
    scheme = [{"name": "prefers-color-scheme", "value": "dark"}]
    opened.look(width=690)
    opened.call("Emulation.setEmulatedMedia", media="print", features=scheme)
    assert opened.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert opened.run("document.scrollingElement.scrollWidth") <= 690
