"""The page of `bayesdiv report`: its numbers, what it leaves out, what it refuses, its looks."""

import base64
import hashlib
import html
import io
import itertools
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from rich.console import Console
from scipy.stats import bootstrap, norm
from sklearn.datasets import load_digits
from sklearn.metrics import confusion_matrix
from torch.distributions import LogNormal, Normal

import browser
from bayesdiv import JSA, KL
from bayesdiv.app import console, runs
from bayesdiv.app import training as trainings
from bayesdiv.app.cli import report as command
from bayesdiv.app.cli import tune
from bayesdiv.app.data.loading import load
from bayesdiv.app.data.splits import DataError
from bayesdiv.app.experiment import Training
from bayesdiv.app.report import (
    classes,
    columns,
    comparison,
    markup,
    quantities,
    reading,
    scores,
)
from bayesdiv.app.report import page as report
from bayesdiv.app.tuning.search import Tried
from bayesdiv.predictive import Predictive
from command import call
from reproduction import plots

EVIL = "<script>document.title = 'broken'</script>"
QUICK = Training(
    epochs=3, test_samples=8, hidden=(50,), members=1, learning_rate=3e-3, prior_gain=2**0.5
)
LOSSES = {"kl": KL(), "jsa": JSA(0.5), "plain": None}


def frame(rows=80):
    random = np.random.default_rng(0)
    a, b = random.normal(size=rows), random.normal(size=rows)
    colour = np.where(random.random(rows) > 0.5, "red & blue", EVIL)
    y = 20 + 5 * (2 * a - b + (colour == EVIL) + 0.3 * random.normal(size=rows))
    return pd.DataFrame({f"a {EVIL}": a, "b": b, "colour": colour, "y": y})


def trained(data, folder, divergence, training=QUICK, **source):
    """A run as `bayesdiv train` writes it."""
    kept = {"data": str(data), "target": None, "noise": 0.0, "task": None}
    kept |= {"seed": training.seed, **source}
    splits = load(data, target=kept["target"], seed=kept["seed"], noise=kept["noise"])
    trainings.train(splits, divergence, training, folder=folder, source=kept)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs of a regression, of two classes and of images; no test may change them."""
    place = tmp_path_factory.mktemp("runs")
    frame().to_csv(place / "numbers.csv", index=False)
    two = frame()
    two["y"] = np.where(two["y"] > 20, EVIL, "quiet")
    two.to_csv(place / "classes.csv", index=False)
    for name, divergence in LOSSES.items():
        trained(place / "numbers.csv", place / "numbers" / name, divergence)
        trained(place / "classes.csv", place / "classes" / name, divergence)
    trained("digits", place / "digits", KL(), Training(epochs=1, test_samples=4))
    return place


@pytest.fixture(scope="module")
def pages(made):
    """The pages of all of them, as files."""
    whole = {
        "numbers": report.page([made / "numbers" / name for name in LOSSES]),
        "classes": report.page([made / "classes" / name for name in LOSSES]),
        "digits": report.page([made / "digits"]),
    }
    for name, page in whole.items():
        (made / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: made / f"{name}.html" for name in whole}


@pytest.fixture(scope="module")
def chromium():
    with browser.started() as running:
        yield running


class Reader(HTMLParser):
    """Tables by their labels, each a list of rows of texts; and all text."""

    def __init__(self):
        super().__init__()
        self.tables, self.text, self.cells, self.skip = [], "", None, False

    def handle_starttag(self, tag, attributes):
        self.skip = tag == "style"
        if tag == "table":
            self.tables.append((dict(attributes)["aria-label"], []))
        elif tag == "tr":
            self.tables[-1][1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][1][-1].append("")
            self.cells = self.tables[-1][1][-1]

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.cells = None

    def handle_data(self, data):
        self.text += "" if self.skip else data
        if self.cells is not None:
            self.cells[-1] += data


def read(page):
    reader = Reader()
    reader.feed(page.read_text(encoding="utf-8") if isinstance(page, Path) else page)
    return reader


def tables(page, label):
    return [rows for name, rows in read(page).tables if name == label]


def values(page, title):
    """The data of the charts with this title."""
    text = page.read_text(encoding="utf-8") if isinstance(page, Path) else page
    found = re.findall(
        r"<figcaption><b>([^<]*)</b>.*?<script type=\"application/json\">(.*?)</script>", text, re.S
    )
    return [json.loads(spec)["values"] for name, spec in found if name == title]


def result(folder):
    return json.loads((folder / "metrics.json").read_text())


def outputs(folder):
    """Means and scales of the draws, and targets, in the units of the target."""
    one = reading.tested(reading.read([folder])[0])
    task, each = one.splits.task, one.predictive.conditional
    return (
        task.to_units(each.mean).double().numpy(),
        (each.stddev * task.scale).double().numpy(),
        task.to_units(one.y).double().numpy(),
    )


# What it shows -------------------------------------------------------------------------------


def test_the_comparison_has_the_metrics_of_the_runs_with_intervals_and_calls_none_best(made, pages):
    ((head, *rows),) = tables(pages["numbers"], "Metrics, test data")
    simple = ["mean", "linear", "random forest", "boosting"]
    assert [row[0] for row in rows] == [*LOSSES, *simple]
    for row in rows[: len(LOSSES)]:
        kept = result(made / "numbers" / row[0])["test"]
        for title, key in (("RMSE", "rmse"), ("NLL", "nll"), ("coverage", "coverage")):
            cell = row[next(k for k, text in enumerate(head) if text.startswith(title))]
            value, low, high = map(float, re.findall(r"-?[\d.]+", cell))
            assert value == pytest.approx(kept[key], abs=5e-3)
            assert low <= value <= high
    assert "(best)" not in pages["numbers"].read_text()


@pytest.mark.parametrize("name", ["numbers", "classes"])
def test_intervals_are_those_of_scipys_bootstrap(made, name):
    one = reading.tested(reading.read([made / name / "kl"])[0])
    counts = scores.resamples(len(one.y))
    found = scores.scores(one.splits.task, one.predictive, one.y, counts)
    for key, value in result(made / name / "kl")["test"].items():
        assert found[key][0] == pytest.approx(value, abs=1e-5)
    key = "rmse" if name == "numbers" else "accuracy"
    if name == "numbers":
        mean, _, y = outputs(made / "numbers" / "kl")
        rows, statistic = (mean.mean(0) - y) ** 2, lambda x, axis: np.sqrt(x.mean(axis))
    else:
        called = one.predictive.conditional.probs.mean(0).argmax(-1)
        rows, statistic = (called == one.y).double().numpy(), np.mean
    how = {"n_resamples": 4000, "method": "percentile", "rng": np.random.default_rng(1)}
    wanted = bootstrap((rows,), statistic, **how).confidence_interval
    width = wanted.high - wanted.low
    np.testing.assert_allclose(scores.ends(found[key]), wanted, atol=0.12 * width)


def test_the_verdict_compares_with_simple_models_and_states_the_draws(made, pages):
    text = read(pages["numbers"]).text
    assert "averages 1 or 8 weight draws" in text
    assert "16 rows of numbers.csv" in text
    assert text.count("always answering the mean") == len(LOSSES)
    assert text.count("the best of 3 simple models on these rows") == len(LOSSES)
    assert text.count("Its 90 % intervals hold") == len(LOSSES)
    assert text.index("Verdict") < text.index("Metrics") < text.index("Settings")
    assert "Every figure, curve and table above the section Data is of " in text


def test_the_verdict_tells_by_what_and_on_which_rows_a_run_is_calibrated(made, tmp_path):
    run = shutil.copytree(made / "numbers" / "kl", tmp_path / "kl")
    assert "It is calibrated" not in read(report.page([run])).text
    assert call("calibrate", run) == 0
    said = read(report.page([run])).text
    assert "It is calibrated (conformal, fitted to these very 16 test rows)." in said
    assert "proves nothing" in said
    assert not re.search(r"Its 90 % intervals hold [^:]*\): (as|more|fewer)", said)
    other = tmp_path / "held.csv"
    frame(90)[80:].to_csv(other, index=False)
    assert call("calibrate", run, other) == 0
    said = read(report.page([run])).text
    assert "It is calibrated (conformal, fitted to the 10 rows of held.csv)." in said
    assert "proves nothing" not in said
    assert call("evaluate", run, other, "--out", tmp_path / "new.html") == 0
    assert "these very 10 rows of held.csv" in read(tmp_path / "new.html").text


def test_a_difference_whose_interval_holds_0_is_called_not_clear():
    counts = scores.resamples(200)
    noise = np.random.default_rng(0).normal(size=200)
    alike = counts @ np.stack([noise, np.roll(noise, 1)], 1) / 200
    assert scores.against("rmse", alike[:, 0], alike[:, 1], "it").startswith("not clearly")
    far = counts @ np.stack([noise + 5, noise], 1) / 200
    assert scores.against("rmse", far[:, 0], far[:, 1], "it") == "5 more than it (5 to 5)"


def test_what_was_trained_is_told(pages):
    settings = dict((row[0], row[1:]) for row in tables(pages["numbers"], "Settings in full")[0])
    assert settings["divergence"] == ["KL", "JSA:0.5", "deterministic"]
    assert settings["training.epochs"] == ["3", "3", "3"]
    assert settings["weights"] == ["352", "352", "352"]  # (4 + 1) 50 + (50 + 1) 2
    assert settings["training.learning_rate"] == ["0.003"] * 3
    text = read(pages["numbers"]).text
    assert "48 for training, 16 for validation, 16 for testing" in text
    assert f"torch {torch.__version__}" in text


def test_the_share_of_targets_inside_is_that_of_the_mixtures_distribution_function(made, pages):
    text = pages["numbers"].read_text()
    told = [float(share) for share in re.findall(r"</b>([\d.]+) % of all targets inside", text)]
    for share, name in zip(told, LOSSES, strict=True):
        mean, scale, y = outputs(made / "numbers" / name)
        below = norm.cdf(y, mean, scale).mean(0)
        inside = np.mean(np.abs(2 * below - 1) <= 0.9)
        assert share == pytest.approx(100 * inside, abs=0.06)


def test_the_calibration_of_intervals_is_drawn_where_it_is(made, pages):
    (drawn,) = values(pages["numbers"], "Interval coverage")
    mean, scale, y = outputs(made / "numbers" / "jsa")
    within = np.abs(2 * norm.cdf(y, mean, scale).mean(0) - 1)
    wanted = [(level, np.mean(within <= level)) for level in quantities.LEVELS]
    names = ("level of the interval", "share of targets inside")
    found = [[value[name] for name in names] for value in drawn if value["run"] == "jsa"]
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_predicted_and_actual_risk_and_pit_are_those_of_the_mixture(made, pages):
    mean, scale, y = outputs(made / "numbers" / "kl")
    (points,) = values(pages["numbers"], "Predicted against actual: kl: KL")
    rows = pd.read_csv(made / "numbers.csv")["y"]
    for point in points:
        assert rows[point["row"] - 1] == pytest.approx(point["actual"], rel=1e-5)
    found = [point["predicted"] for point in points]
    np.testing.assert_allclose(found, mean.mean(0)[np.argsort(y, kind="stable")], rtol=1e-5)
    (drawn,) = values(pages["numbers"], "PIT")
    counts, _ = np.histogram(norm.cdf(y, mean, scale).mean(0), 10, (0, 1))
    assert [value["rows"] for value in drawn if value["run"] == "kl"] == counts.tolist()
    (drawn,) = values(pages["numbers"], "Risk against coverage")
    order = np.argsort((scale**2).mean(0) + mean.var(0))
    errors = (mean.mean(0) - y)[order]
    wanted = [np.sqrt(np.mean(errors[: k + 1] ** 2)) for k in range(len(y))]
    found = {value["share answered"]: value["RMSE"] for value in drawn if value["run"] == "kl"}
    np.testing.assert_allclose([found[k] for k in sorted(found)], wanted, rtol=1e-4)


def test_a_column_that_does_not_matter_has_no_importance_and_a_level_curve(tmp_path):
    random = np.random.default_rng(1)
    a, b = random.normal(size=(2, 200))
    pd.DataFrame({"a": a, "b": b, "y": 10 * a}).to_csv(tmp_path / "t.csv", index=False)
    training = replace(QUICK, epochs=30)
    trained(tmp_path / "t.csv", tmp_path / "run", KL(), training)
    one = reading.tested(reading.read([tmp_path / "run"])[0])
    rises = columns.importance(one)
    assert rises["a"].min() > 10 * rises["b"].abs().max()
    steep, level = (
        [value["mean prediction"] for value in columns.curve(one, name)] for name in ("a", "b")
    )
    assert np.ptp(steep) > 5 * np.ptp(level)


def test_the_partial_dependence_on_dates_is_drawn_over_dates(chromium, tmp_path):
    days = pd.date_range("2021-01-01", periods=80).strftime("%Y-%m-%d")
    frame().assign(day=days)[["day", "b", "y"]].to_csv(tmp_path / "days.csv", index=False)
    run = trained(tmp_path / "days.csv", tmp_path / "run", KL())
    place = tmp_path / "page.html"
    place.write_text(report.page([run]), encoding="utf-8")
    (drawn,) = values(place, "Partial dependence on day")
    assert all(re.fullmatch(r"2021-0[1-3]-\d\d", value["date"]) for value in drawn)
    (numbers,) = values(place, "Partial dependence on b")
    assert "date" not in numbers[0]
    page = chromium.open(place.as_uri())
    page.until(DRAWN)
    labels = page.run("[...document.querySelectorAll('svg text')].map((t) => t.textContent)")
    assert any(re.fullmatch(r"2021-0[1-4]-\d\d", label) for label in labels)
    assert page.problems == []


def test_rows_whose_variance_overflows_are_the_most_unusual(made):
    one = reading.tested(reading.read([made / "numbers" / "kl"])[0])

    def predict(x):
        scale = torch.where(x[:, :2].abs().amax(1) > 3, 14.0, 1.0)
        return Predictive(LogNormal(torch.stack([x[:, 0], x[:, 1]]), scale.expand(2, -1)))

    fake = replace(one, run=replace(one.run, experiment=SimpleNamespace(predict=predict)))
    (_, *rows) = next(rows for _, rows in read(columns.unusual([fake])).tables)
    assert float(rows[-1][-1]) > 0.5
    assert "nan" not in {row[2] for row in rows}


def test_confusion_is_that_of_scikit_learn(made, pages):
    for name, label in zip(LOSSES, ("KL", "JSA:0.5", "deterministic"), strict=True):
        (shown,) = values(pages["classes"], f"Confusion: {name}: {label}")
        one = reading.tested(reading.read([made / "classes" / name])[0])
        probabilities = one.predictive.conditional.probs.double().mean(0).numpy()
        wanted = confusion_matrix(one.y.numpy(), probabilities.argmax(1))
        assert [value["rows"] for value in shown] == wanted.flatten().tolist()


def test_examples_are_ordered_by_entropy_and_are_rows_of_the_file_as_it_has_them(made, pages):
    head, *shown = tables(pages["classes"], "Most uncertain")[0]
    one = reading.tested(reading.read([made / "classes" / "kl"])[0])
    mean = one.predictive.conditional.probs.double().mean(0).numpy()
    entropy = -(mean * np.log(mean)).sum(1)
    rows = pd.read_csv(made / "classes.csv", dtype=str)
    for cells, place in zip(shown, np.argsort(entropy)[::-1], strict=False):
        told = dict(zip(head, cells, strict=True))
        row = rows.iloc[int(told["row"]) - 1]  # as the page numbers them
        for name in ("b", f"a {EVIL}", "colour"):
            assert row[name] == told[name]  # every digit, as in the file
        assert row["y"] == told["target"]
        assert float(told["entropy"]) == pytest.approx(entropy[place], abs=6e-4)
    assert (
        "its number in classes.csv, counted from 1 below the header" in read(pages["classes"]).text
    )


def test_the_most_wrong_rows_come_first(made, pages):
    head, *shown = tables(pages["numbers"], "Most wrong")[0]
    mean, _, y = outputs(made / "numbers" / "kl")
    errors = np.sort(np.abs(mean.mean(0) - y))[::-1]
    for cells, error in zip(shown, errors, strict=False):
        told = dict(zip(head, cells, strict=True))
        target = float(told["target"].removesuffix(" (outside)"))
        assert abs(float(told["predicted"]) - target) == pytest.approx(error, abs=0.02)


def test_a_0_of_the_file_is_a_0_on_the_page(tmp_path):
    random = np.random.default_rng(0)
    flag, size = random.integers(0, 2, 60), random.integers(0, 3, 60) * 1000
    table = pd.DataFrame({"flag": flag, "size": size, "y": flag + 0.1 * random.normal(size=60)})
    table.to_csv(tmp_path / "t.csv", index=False)
    run = trained(tmp_path / "t.csv", tmp_path / "run", KL())
    head, *shown = tables(report.page([run]), "Most uncertain")[0]
    for name in ("flag", "size"):
        assert {row[head.index(name)] for row in shown} <= set(map(str, table[name]))
    ((_, *rows),) = tables(report.page([run]), "Columns of the data")
    assert [row[2:5] for row in rows] == [
        ["0", str(np.median(flag)).removesuffix(".0"), "1"],
        ["0", "1000", "2000"],
    ]


def test_the_two_parts_of_the_uncertainty_are_told_in_units_of_the_target(made, pages):
    (rows,) = tables(pages["numbers"], "The two parts of the uncertainty")
    for row, name in zip(rows[1:], LOSSES, strict=True):
        mean, scale, _ = outputs(made / "numbers" / name)
        wanted = [mean.std(0).mean(), np.sqrt((scale**2).mean(0)).mean()]
        np.testing.assert_allclose([float(text) for text in row[1:]], wanted, rtol=1e-3, atol=1e-3)


def test_examples_of_a_regression_have_the_spread_and_the_quantiles_of_the_mixture(made, pages):
    head, *shown = tables(pages["numbers"], "Most uncertain")[0]
    mean, scale, y = outputs(made / "numbers" / "kl")
    epistemic, aleatoric = mean.std(0), np.sqrt((scale**2).mean(0))
    rows = np.argsort(epistemic**2 + aleatoric**2)[::-1][: len(shown)]
    told = {name: [cells[k] for cells in shown] for k, name in enumerate(head)}
    numbered = pd.read_csv(made / "numbers.csv")["y"][[int(text) - 1 for text in told["row"]]]
    np.testing.assert_allclose(numbered, y[rows], rtol=1e-5)
    for key, wanted in (
        ("predicted", mean.mean(0)),
        ("target", y),
        ("epistemic", epistemic),
        ("aleatoric", aleatoric),
    ):
        found = [float(text.removesuffix(" (outside)")) for text in told[key]]
        np.testing.assert_allclose(found, wanted[rows], rtol=1e-3)
    ends = np.array([text.split(" to ") for text in told["90 % interval"]], float)
    for end, level in zip(ends.T, (0.05, 0.95), strict=True):
        reached = norm.cdf(end, mean[:, rows], scale[:, rows]).mean(0)
        np.testing.assert_allclose(reached, level, atol=2e-3)
    outside = (y[rows] < ends[:, 0]) | (y[rows] > ends[:, 1])
    assert [text.endswith("(outside)") for text in told["target"]] == outside.tolist()


def test_images_are_shown_as_they_are(made):
    one = reading.tested(reading.read([made / "digits"])[0])
    grey = Image.open(io.BytesIO(report.png(one.splits.test.x[3])))
    wanted = one.splits.test.x[3, 0].numpy() * 255
    np.testing.assert_allclose(np.asarray(grey), wanted, atol=0.51)
    colour = torch.rand(3, 4, 5) * 2 - 0.5  # as with noise: beyond what can be shown
    shown = np.asarray(Image.open(io.BytesIO(report.png(colour))))
    wanted = np.moveaxis(colour.numpy(), 0, 2).clip(0, 1) * 255
    np.testing.assert_allclose(shown, wanted, atol=0.51)


def test_a_page_of_images_has_an_image_with_a_name_for_each_example(pages):
    page = pages["digits"].read_text()
    found = re.findall(r'<img src="data:image/png;base64,[^"]+" alt="image (\d+)">', page)
    assert len(found) == 2 * report.ROWS
    digits = load_digits()
    for number, target in zip(found, re.findall(r"target (\d)<", page), strict=True):
        assert digits.target[int(number) - 1] == int(target)
    assert "<b>Confusion: digits: " in page


def test_every_setting_is_there(made, pages):
    settings = json.loads((made / "numbers" / "jsa" / "settings.json").read_text())
    page = pages["numbers"].read_text()
    names = {row[0] for row in tables(page, "Settings in full")[0]}
    for above, inside in settings.items():
        for key in inside if isinstance(inside, dict) else ():
            assert f"{above}.{key}" in names
    (settings,) = tables(page, "Settings in full")
    (encoded,) = [row[1] for row in settings if row[0] == "encoder.columns"]
    assert [column["name"] for column in json.loads(encoded)] == [f"a {EVIL}", "b", "colour"]


def test_runs_of_several_seeds_are_said_to_be_tested_on_other_rows(made, tmp_path):
    other = trained(
        made / "numbers.csv", tmp_path / "other", KL(), Training(epochs=1, test_samples=4, seed=1)
    )
    said = "they are tested on different rows"
    assert said in report.page([made / "numbers" / "kl", other])
    assert said not in report.page([made / "numbers" / "kl", made / "numbers" / "jsa"])


def test_runs_whose_folders_have_one_name_are_told_apart(made, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(made / "numbers" / "kl", tmp_path / name / "kl")
    runs = reading.read([tmp_path / "one" / "kl", tmp_path / "two" / "kl", tmp_path / "one" / "kl"])
    assert [run.name for run in runs] == ["one/kl", "two/kl"]


def test_many_runs_of_one_loss_look_different(chromium, tmp_path):
    runs = [(f"run {k}", "", "JSA:0.3") for k in range(6)]
    values = [{"share answered": 1.0, "risk": 0.1, "run": name} for name, *_ in runs]
    drawn = markup.charts(markup.chart("six", "", values, "risk", y="risk"))
    (tmp_path / "six.html").write_text(markup.framed("six", runs, [drawn]), encoding="utf-8")
    page = chromium.open((tmp_path / "six.html").as_uri())
    page.until(DRAWN)
    looks = page.run(
        "[...document.querySelectorAll('.legend path')].map((path) => "
        "getComputedStyle(path).stroke + path.getAttribute('stroke-dasharray'))"
    )
    assert len(set(looks)) == 6
    assert looks[0].startswith(rgb(plots.COLOURS["JSA"]))
    assert page.problems == []


def test_metrics_below_a_thousandth_keep_three_digits():
    assert scores.digits(1.2345e-30) == "1.23e-30"
    assert scores.digits(0.25) == "0.2500"


def test_a_value_that_is_not_finite_is_a_gap():
    drawn = markup.chart(
        "gaps", "", [{"x": 1.0, "y": float("nan")}, {"x": float("inf"), "y": 2.0}], "risk"
    )
    assert values(drawn, "gaps") == [[{"x": 1.0, "y": None}, {"x": None, "y": 2.0}]]


def test_of_many_classes_the_most_frequent_mistakes_come_first():
    random = np.random.default_rng(0)
    y, called = random.integers(0, 15, 400), random.integers(0, 15, 400)
    names = [f"class {k}" for k in range(15)]
    counts = confusion_matrix(y, called)
    rows = classes.confused(torch.tensor(counts), names)
    found = [counts[names.index(row["class"]), names.index(row["called"])] for row in rows]
    assert [row["rows"] for row in rows] == found
    np.fill_diagonal(counts, 0)
    assert found == sorted(counts[counts > 0], reverse=True)
    assert classes.confused(torch.eye(15), names) == []


# Data that are gone --------------------------------------------------------------------------


@pytest.fixture
def moved(made, tmp_path):
    """A copy of the regression's runs whose data a test may change."""
    shutil.copytree(made / "numbers", tmp_path / "runs")
    frame().to_csv(tmp_path / "own.csv", index=False)
    for path in tmp_path.glob("runs/*/settings.json"):
        told = json.loads(path.read_text())
        told["data"]["data"] = str(tmp_path / "own.csv")
        path.write_text(json.dumps(told))
    return tmp_path


def test_a_report_without_its_data_is_refused_with_the_option_that_names_them(moved):
    (moved / "own.csv").unlink()
    with pytest.raises(DataError, match=r"own\.csv .*--data"):
        report.page([moved / "runs" / name for name in LOSSES])


def test_data_that_changed_are_not_used(moved):
    frame(90).to_csv(moved / "own.csv", index=False)
    with pytest.raises(DataError, match="does not hold the rows that kl was trained on"):
        report.page([moved / "runs" / "kl"])


def test_test_rows_that_changed_are_not_drawn_beside_the_metrics_of_before(moved):
    rows = pd.read_csv(moved / "own.csv")
    run = reading.tested(reading.read([moved / "runs" / "kl"])[0])
    rows.loc[[row - 1 for row in run.splits.test_rows], "y"] = 100.0
    rows.to_csv(moved / "own.csv", index=False)
    said = "does not hold the rows that kl was trained on"
    with pytest.raises(DataError, match=said):
        report.page([moved / "runs" / "kl"])


def test_settings_without_a_fingerprint_are_damaged(moved):
    path = moved / "runs" / "kl" / "settings.json"
    told = json.loads(path.read_text())
    del told["fingerprint"]
    path.write_text(json.dumps(told))
    told = r"settings\.json is damaged \('fingerprint' is missing\): train the run again"
    with pytest.raises(runs.RunError, match=told):
        report.page([moved / "runs" / "kl"])


def test_runs_whose_file_moved_are_reported_together(made, moved):
    both = [made / "numbers" / "kl", moved / "runs" / "jsa"]  # two places, the same rows
    assert " of all targets inside" in report.page(both)
    (moved / "own.csv").rename(moved / "new.csv")
    page = report.page(both, data=str(moved / "new.csv"))
    assert page.count(" of all targets inside, mean width") == 2 * 2  # to see, and to hear


def test_a_run_that_does_not_say_where_its_data_came_from_has_no_page(tmp_path):
    trainings.train(load("diabetes"), KL(), Training(epochs=1, test_samples=4), folder=tmp_path)
    with pytest.raises(DataError, match="does not say where its data came from"):
        report.page([tmp_path])


# What it refuses -----------------------------------------------------------------------------


@pytest.fixture
def _alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console.errors, "width", 200)


def unfinished(made):
    shutil.copytree(made / "numbers" / "kl", "unfinished")
    Path("unfinished/metrics.json").unlink()
    return ["unfinished"]


def damaged(made):
    shutil.copytree(made / "numbers" / "kl", "damaged")
    Path("damaged/metrics.json").write_text('{"test": {}}')
    return ["damaged"]


def other_noise(made):
    return [
        made / "numbers" / "kl",
        trained(made / "numbers.csv", Path("noisy"), KL(), Training(epochs=1), noise=0.5),
    ]


BAD = [
    (lambda made: ["nowhere"], "there is no run nowhere"),
    (damaged, "damaged/metrics.json is damaged ('validation' is missing): train the run again"),
    (unfinished, "unfinished holds a run that is not finished"),
    (
        lambda made: [made / "numbers" / "kl", made / "classes" / "kl"],
        "runs of one report must have the same data and task: data is",
    ),
    (other_noise, "noise is 0.0 in kl and 0.5 in noisy"),
]


@pytest.mark.usefixtures("_alone")
@pytest.mark.parametrize(("runs", "words"), BAD)
def test_runs_that_cannot_be_reported_get_one_sentence_and_exit_code_2(made, runs, words, capsys):
    Path("report.html").write_text("an older one")
    assert call("report", *runs(made)) == 2
    told = capsys.readouterr().err.strip()
    assert words in told
    assert "\n" not in told
    assert Path("report.html").read_text() == "an older one"


@pytest.mark.usefixtures("_alone")
@pytest.mark.parametrize("out", ["report.txt", "folder.html", "file/report.html"])
def test_a_place_that_cannot_be_written_is_refused_in_one_sentence(made, out, capsys):
    Path("folder.html").mkdir()
    Path("file").write_text("in the way")
    assert call("report", made / "numbers" / "kl", "-o", out) == 2
    told = capsys.readouterr().err.strip()
    assert out in told
    assert "\n" not in told


@pytest.mark.usefixtures("_alone")
def test_the_command_writes_the_page_and_says_where(made, capsys):
    assert call("report", made / "numbers" / "kl", "-o", "new/page.html") == 0
    assert "wrote new/page.html" in capsys.readouterr().out
    assert Path("new/page.html").read_text().startswith("<!doctype html>")
    assert [path.name for path in Path("new").iterdir()] == ["page.html"]


def test_a_terminal_shows_what_is_being_done(made, monkeypatch, tmp_path):
    screen = Console(file=io.StringIO(), force_terminal=True, width=80)
    monkeypatch.setattr(command, "errors", screen)
    assert call("report", made / "numbers" / "kl", "-o", tmp_path / "page.html") == 0
    assert "reading and predicting" in screen.file.getvalue()


# In a browser --------------------------------------------------------------------------------


def test_names_with_markup_are_text(pages):
    for page in pages.values():
        assert "<script>document" not in page.read_text(encoding="utf-8")
    for name in ("numbers", "classes"):
        assert EVIL in read(pages[name]).text


def test_a_name_that_ends_a_script_stays_inside_the_data_of_its_chart():
    hostile = "</script><script>document.title = 'broken'</script><!--\u2028"
    drawn = markup.chart("names", "", [{"column": hostile}], "risk")
    assert drawn.count("<script") == drawn.count("</script>") == 1
    assert "<!--" not in drawn
    assert "\u2028" not in drawn
    assert values(drawn, "names") == [[{"column": hostile}]]


def test_a_page_holds_all_it_needs(pages):
    for page in pages.values():
        text = page.read_text(encoding="utf-8")
        assert len(text) < 2_000_000
        assert not re.search(r"@import|<(?:script|img|link)[^>]+(?:src|href)=\"(?!data:)", text)
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
        assert "default-src" in policy
        assert "unsafe-eval" not in policy
        script = re.search(r"script-src (.*)$", html.unescape(policy))[1]
        assert set(script.split()) == {f"'sha256-{own}'" for own in hashes(text)}


def hashes(text):
    for script in re.findall(r"<script>(.*?)</script>", text, re.S):
        yield base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@pytest.mark.parametrize("name", ["numbers", "classes", "digits"])
def test_a_page_opens_without_errors_or_requests_and_nothing_scrolls_sideways(
    chromium, pages, name
):
    address = pages[name].as_uri()
    page = chromium.open(address, width=360)
    page.until(DRAWN)
    for width in (360, 700, 1200):
        page.look(width=width)
        assert page.run("document.scrollingElement.scrollWidth") <= width
    assert page.run("document.title").endswith(("compared", "digits"))
    assert page.problems == []
    assert [asked for asked in page.requests if not asked.startswith("data:")] == [address]
    unnamed = page.run(
        "[...document.querySelectorAll('.plot, img, table, .scroll')].filter("
        "(e) => !(e.ariaLabel || e.alt)).length"
    )
    assert unnamed == 0
    levels = page.run("[...document.querySelectorAll('h1, h2, h3, h4')].map((h) => +h.tagName[1])")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


DRAWN = "!document.querySelector('figure.chart:not(.drawn)')"


def test_a_table_is_behind_every_chart_and_opens_and_sorts_by_the_keyboard(chromium, pages):
    page = chromium.open(pages["numbers"].as_uri())
    page.until(DRAWN)
    assert page.run("document.querySelectorAll('figure.chart svg').length") >= 15
    page.run("document.querySelectorAll('figure.chart details').forEach((d) => (d.open = true))")
    page.until("[...document.querySelectorAll('figure.chart')].every((f) => f.querySelector('td'))")
    rows = page.run(
        "[...document.querySelectorAll('figure.chart')].map((f) => ["
        "f.querySelectorAll('tbody tr').length,"
        "JSON.parse(f.querySelector('script').textContent).values.length])"
    )
    assert all(there == wanted > 0 for there, wanted in rows)
    cells = (
        "[...document.querySelectorAll('table.sortable tbody')[0].rows]"
        ".map((r) => Number(r.cells[1].textContent))"
    )
    page.run("document.querySelectorAll('table.sortable th button')[1].focus()")
    page.press("Enter")
    assert page.run(cells) == sorted(page.run(cells))
    head = "document.querySelectorAll('table.sortable th')[1].ariaSort"
    assert page.run(head) == "ascending"
    page.press("Enter")
    assert page.run(cells) == sorted(page.run(cells), reverse=True)
    assert page.run(head) == "descending"
    assert page.problems == []


def test_hover_shows_the_fields_of_a_point_as_text(chromium, pages):
    page = chromium.open(pages["numbers"].as_uri())
    page.until(DRAWN)
    page.run("document.querySelector('.plot').scrollIntoView({block: 'center'})")
    x, y = page.run(
        "(() => { const r = document.querySelector('.plot .mark-symbol path')"
        ".getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
    )
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    page.until("!document.querySelector('.hover').hidden")
    shown = page.run("document.querySelector('.hover').innerText")
    assert "predicted" in shown
    assert "actual" in shown


def test_names_with_markup_stay_inert_in_a_browser(chromium, pages):
    for name in ("numbers", "classes"):
        page = chromium.open(pages[name].as_uri())
        page.until(DRAWN)
        page.run(
            "document.querySelectorAll('figure.chart details').forEach((d) => (d.open = true))"
        )
        assert "broken" not in page.run("document.title")
        assert (
            page.run("document.scripts.length")
            == page.run("document.querySelectorAll('figure.chart').length") + 5
        )
        assert page.problems == []


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """The pages of a comparison and of a search, of values made up."""
    place, splits = tmp_path_factory.mktemp("others"), load("diabetes")
    random = np.random.default_rng(0)
    every, histories, forecasts = {}, {}, {}
    for name in ("KL", EVIL):
        measures = [dict(zip(("rmse", "nll"), random.random(2), strict=True)) for _ in range(3)]
        every[name] = [{"test": found} for found in measures]
        lines = [{"epoch": k, "nll": 1 / k, "validation_nll": 2 / k} for k in range(1, 9)]
        histories[name] = [lines] * 3
        forecast = Normal(torch.zeros(1, len(splits.test.y)), torch.ones(1))
        forecasts[name] = [(Predictive(forecast), splits.test.y)] * 3
    compared = comparison.page("compared", every, histories, forecasts, splits, 8)
    states = ["complete", "pruned", "failed"]
    tried = [
        Tried(k, {"alpha": a, "strength": b}, a + b, states[k % 3], EVIL)
        for k, (a, b) in enumerate(random.random((30, 2)).tolist())
    ]
    matters = {"alpha": 0.75, "strength": 0.25}
    searched = tune.page("searched", "NLL", tried, frozenset({"strength"}), matters)
    for name, page in {"compared": compared, "searched": searched}.items():
        (place / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: place / f"{name}.html" for name in ("compared", "searched")}


def searched(*values):
    tried = [Tried(k, {"alpha": 0.5}, v, "complete", "") for k, v in enumerate(values)]
    return tune.page("searched", "NLL", tried, frozenset(), {})


def test_a_search_says_how_many_trials_come_close_and_has_no_empty_column():
    assert "Others within 1 % of it, which are as good: none." in searched(1.0, 2.0)
    assert "Others within 1 % of it, which are as good: 1." in searched(1.0, 1.001, 2.0)
    assert tables(searched(1.0, 2.0), "All trials")[0][0] == ["trial", "alpha", "NLL", "state"]


def compared(*measures):
    """The page of a comparison of KL over seeds with these metrics."""
    splits = load("diabetes")
    forecast = Predictive(Normal(torch.zeros(1, len(splits.test.y)), torch.ones(1)))
    lines = [{"epoch": k, "nll": 1.0, "validation_nll": 2.0} for k in (1, 2)]
    return comparison.page(
        "compared",
        {"KL": [{"test": found} for found in measures]},
        {"KL": [lines] * len(measures)},
        {"KL": [(forecast, splits.test.y)] * len(measures)},
        splits,
        8,
    )


def test_intervals_of_a_comparison_end_where_a_metric_does():
    page = compared({"rmse": 10.0, "coverage": 0.8}, {"rmse": 59990.0, "coverage": 1.0})
    ((_, row),) = tables(page, "Metrics, test data")
    assert re.fullmatch(r"30,000 0 to \d{3},\d{3}", row[1])
    assert row[2] == "0.9 0 to 1"
    assert "mean and 95 % interval" in page


def test_a_comparison_of_one_seed_has_no_intervals():
    page = compared({"rmse": 25160.4, "coverage": 0.8})
    assert tables(page, "Metrics, test data")[0][1] == ["KL", "25,160", "0.8"]
    assert "mean and 95 % interval" not in page
    assert "over seeds" not in page
    assert page.lower().count("one seed") == 1


@pytest.mark.parametrize("name", ["compared", "searched"])
def test_the_pages_of_comparisons_and_searches_open_without_errors_or_requests(
    chromium, others, name
):
    address = others[name].as_uri()
    page = chromium.open(address, width=360)
    page.until(DRAWN)
    assert page.run("document.scrollingElement.scrollWidth") <= 360
    assert page.run("document.title") == name
    assert page.problems == []
    assert [asked for asked in page.requests if not asked.startswith("data:")] == [address]
    assert page.run("document.querySelectorAll('figure.chart svg').length") >= 4


@pytest.mark.slow  # axe-core comes from npm
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["numbers", "classes", "digits", "compared", "searched"])
def test_axe_finds_nothing_serious(chromium, axe, pages, others, name, dark):
    page = chromium.open({**pages, **others}[name].as_uri(), dark=dark)
    page.until(DRAWN)
    page.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    assert page.serious(axe) == []


def luminance(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_and_lines_stand_out_in_light_and_dark(chromium, pages, dark):
    page = chromium.open(pages["classes"].as_uri(), dark=dark)
    page.until(DRAWN)
    style = "getComputedStyle(document.querySelector('{}')).{}"
    back = page.run(style.format(".panel", "backgroundColor"))
    assert (luminance(back) < 0.1) == dark
    for part in ("h2", "td", ".note", "tbody th", "summary"):
        assert contrast(page.run(style.format(part, "color")), back) >= 4.5, part
    assert contrast(page.run(style.format(".plot text", "fill")), back) >= 4.5
    named = "getComputedStyle(document.documentElement).getPropertyValue('--{}')"
    for loss in (*plots.COLOURS, *(f"other-{k}" for k in range(5))):
        assert contrast(rgb(page.run(named.format(loss))), back) >= 3, loss
    lines = page.run(
        "[...document.querySelectorAll('.plot .mark-line path')]"
        ".map((path) => getComputedStyle(path).stroke)"
    )
    assert rgb("#5ab1ec" if dark else plots.COLOURS["KL"]) in lines


def rgb(colour):
    colour = colour.strip().lstrip("#")
    return "rgb({}, {}, {})".format(*(int(colour[k : k + 2], 16) for k in (0, 2, 4)))


def test_print_is_light_and_cuts_nothing_off(chromium, pages):
    page = chromium.open(pages["classes"].as_uri(), width=690)
    scheme = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.call("Emulation.setEmulatedMedia", media="print", features=scheme)
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.run("document.scrollingElement.scrollWidth") <= 690
