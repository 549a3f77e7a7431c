"""The figures that the README gives, compared with the committed results of the benchmarks."""

import json
import re
from pathlib import Path

import pytest

from bayesdiv.app import cli
from benchmarks import uci
from reproduction.images import lambda_kl_baseline as lambda_kl
from reproduction.images import training_curves
from reproduction.images.comparing import ahead, everyone
from reproduction.intervals import Standing, standing
from tools import readme

ROOT = Path(__file__).parent.parent
README = " ".join((ROOT / "README.md").read_text().split())
RESULTS = ROOT / "results" / "benchmarks"


def figures(sentence):
    """The numbers of a sentence of the README, each the one group of its pattern."""
    found = re.search(sentence, README)
    assert found, f"the README no longer says {sentence!r}"
    return [float(number) for number in found.groups()]


def rows(page, table=0):
    """The rows of a table of a page, as dictionaries."""
    text = (RESULTS / page).read_text()
    tables = re.findall(r"(?:^\|.*\n)+", text, re.M)
    header, _, *body = (
        [cell.strip() for cell in line.strip()[1:-1].split("|")]
        for line in tables[table].strip().splitlines()
    )
    return [dict(zip(header, row, strict=False)) for row in body]


def one(found, **wanted):
    """The row with these entries, `draws="1"` and the like."""
    fitting = [row for row in found if all(row[k].startswith(v) for k, v in wanted.items())]
    assert fitting, wanted
    return fitting[0]


def test_the_cost_of_js_a_on_a_gpu_is_the_measured_one():
    (said,) = figures(r"A training step with JS-A costs ([\d.]+) times one with KL on an H200")
    row = one(rows("step_gpu.md"), network="ResNet-18, 224", way="recorded", loss="JS-A")
    assert said == pytest.approx(float(row["over KL"]), abs=0.0051)


def test_the_cost_of_a_bayesian_step_on_a_gpu_is_the_measured_one():
    (said,) = figures(r"a Bayesian step costs ([\d.]+) times a deterministic one on the H200")
    row = one(rows("step_gpu.md"), network="ResNet-18, 224", way="recorded", loss="KL")
    assert said == pytest.approx(float(row["over deterministic"]), abs=0.0051)


def test_the_cost_of_js_a_on_a_cpu_is_the_measured_one():
    said = figures(r"and ([\d.]+) times on a CPU with a C compiler \(([\d.]+) times without one\)")
    for number, table in zip(said, (0, 1), strict=True):
        row = one(rows("step_cpu.md", table), draws="1", step="bayesdiv, JS-A")
        assert number == pytest.approx(float(row["over our KL"]), abs=0.0051)


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("step_cpu.md", r"takes ([\d.]+) to ([\d.]+) times as long for an MLP"),
        ("step_conv_cpu.md", r"and ([\d.]+) to ([\d.]+) times for small convolutions"),
    ],
)
def test_the_fastest_right_peer_takes_as_long_as_the_readme_says(page, sentence):
    """Of the libraries that compute the same loss, the fastest with 1 and with 10 draws."""
    found = rows(page)
    fastest = []
    for draws in ("1", "10"):
        peers = [
            float(row["over our KL"])
            for row in found
            if row["draws"] == draws
            and row["computes the right loss?"].startswith("yes:")
            and not row["step"].startswith("bayesdiv")
        ]
        fastest.append(min(peers))
    assert figures(sentence) == [pytest.approx(number, abs=0.051) for number in sorted(fastest)]


def test_the_table_and_the_counts_are_those_of_the_committed_results():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    parts = readme.parts()
    assert all(f"<!-- {mark} -->" in text for mark in parts)
    assert readme.filled(text, parts) == text


def test_the_means_of_the_table_are_those_of_the_summary():
    """Two programs read the same results: the benchmark's own, and the one that fills the page."""
    summary = rows(ROOT / "benchmarks" / "tables" / "uci" / "summary.md")
    for row in summary:
        for key, column in (("nll", "NLL"), ("rmse", "RMSE")):
            ours, leads = readme.compared(row["table"], key)
            assert ours == pytest.approx(float(row[column].split()[0].strip("*")), abs=6e-4)
        ahead = float(row["forest"])
        assert (ahead > ours) == (leads["random forest"].mean > 0)  # both of the RMSE, the last one


def test_the_readme_names_what_the_forest_wins():
    said = r"RMSE is clearly lower on (\d) of 8 tables and clearly higher on (\d)"
    behind, ahead = map(int, figures(said))
    assert readme.decided("rmse", "random forest") == (ahead, behind)
    (ngboost,) = figures(r"NGBoost has a lower NLL on energy \(([\d.]+)\)")
    assert ngboost == uci.PUBLISHED["energy_heating"]["NGBoost"][1]
    assert all(
        lead.high < 0 for lead in list(readme.compared("power_plant", "nll")[1].values())[1:]
    )


def test_the_losses_compare_with_kl_as_the_readme_says():
    """JS is ahead of KL at strength 1; against the tuned KL the interval holds 0."""
    said = "CIFAR-10 with noise 0.9, a KL whose strength is tuned with the same budget cannot be"
    assert f"{said} distinguished from them; with less noise it is ahead of JS-G, and" in README
    at_one = training_curves.verdict(ROOT / "results").evidence
    assert {one.name.split(" on ")[0] for one in at_one} == {"JS-G over KL", "JS-A over KL"}
    assert all(one.interval.low > 0 for one in at_one)
    (tuned,) = (e for e in lambda_kl.verdict(ROOT / "results").evidence if "over λKL" in e.name)
    assert tuned.interval.low < 0 < tuned.interval.high
    counts = set()
    for noise in (0.1, 0.5, 0.9):  # where λKL was run
        told = everyone(ROOT / "results", "cifar10", ("js_g", "js_a", "lambda_kl"), noise)
        js_g, js_a = (ahead(told[name], told["lambda_kl"]) for name in ("js_g", "js_a"))
        assert standing(js_g) is (Standing.UNDECIDED if noise == 0.9 else Standing.BEHIND)
        assert standing(js_a) is Standing.UNDECIDED
        counts |= {js_g.n, js_a.n}
    low, high = figures(r"undecided \(95 % intervals over (\d) or (\d) folds\)")
    assert counts == {low, high}
    assert not any(
        "lambda_kl" in everyone(ROOT / "results", "cifar10", ("lambda_kl",), noise)
        for noise in (0.2, 0.3, 0.4, 0.6, 0.7, 0.8)
    )


def test_the_time_of_a_fit_is_the_measured_one():
    found = [float(row["seconds"]) for row in rows(ROOT / "benchmarks/tables/uci/summary.md")]
    assert figures(r"A fit took (\d+) to (\d+) seconds") == [min(found), max(found)]


def test_the_picture_is_small_and_a_drawing():
    assert readme.PICTURE.stat().st_size < 100_000
    assert "<svg" in readme.PICTURE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_table_of_digits_is_what_make_run_prints(tmp_path, monkeypatch):
    """The command of the Makefile, whose last digits rounding may move from machine to machine."""
    monkeypatch.chdir(tmp_path)
    makefile = (ROOT / "Makefile").read_text()
    command = re.search(r"^run: .*\n\t\S+/bayesdiv (.*)$", makefile, re.M)
    assert command
    cli.main([*command[1].split(), "--out", "digits"])
    saved = json.loads((tmp_path / "digits" / "comparison.json").read_text())
    found = {**saved["results"], **saved["baselines"]}
    names = {"JS-G, alpha 0.1": "JSG:0.1", "JS-A, alpha 0.5": "JSA:0.5"}
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    table = re.search(r"\| loss \|.*?(?=\n\n)", page, re.S)
    assert table
    rows = [[c.strip(" *") for c in line[1:-1].split("|")] for line in table[0].split("\n")[2:]]
    assert {names.get(name, name) for name, *_ in rows} == set(found)
    for name, *cells in rows:
        for key, cell in zip(("accuracy", "nll", "ece"), cells, strict=True):
            values = [run["test"][key] for run in found[names.get(name, name)]]
            mean = float(cell.partition("±")[0])
            assert mean == pytest.approx(sum(values) / len(values), abs=0.015)
