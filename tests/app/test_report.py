"""The page of `bayesdiv report`: its numbers, what it leaves out, what it refuses, its looks."""

import io
import itertools
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from rich.console import Console
from scipy.stats import norm
from sklearn.datasets import load_digits
from sklearn.metrics import confusion_matrix, roc_auc_score

import browser
from bayesdiv import JSA, KL
from bayesdiv.app import console, metric, runs
from bayesdiv.app import training as trainings
from bayesdiv.app.cli import report as command
from bayesdiv.app.data.loading import load
from bayesdiv.app.experiment import Training
from bayesdiv.app.report import charts, classes, examples, quantities, reading, sections
from bayesdiv.app.report import page as report
from command import call

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
    kept = {"data": str(data), "target": None, "noise": 0.0, "bias": None, "task": None}
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


def test_the_comparison_has_the_metrics_of_the_runs_and_marks_the_best(made, pages):
    ((head, *rows),) = tables(pages["numbers"], "Metrics, test data")
    assert [row[0] for row in rows] == list(LOSSES)
    values = {name: result(made / "numbers" / name)["test"] for name in LOSSES}
    best = {
        "RMSE": min(values, key=lambda name: values[name]["rmse"]),
        "NLL": min(values, key=lambda name: values[name]["nll"]),
        "coverage": min(values, key=lambda name: abs(values[name]["coverage"] - 0.9)),
    }
    for title, winner in best.items():
        place = next(k for k, text in enumerate(head) if text.startswith(title))
        key = title.lower()
        for row in rows:
            shown = float(row[place].removesuffix(" (best)"))
            assert shown == pytest.approx(values[row[0]][key], abs=5e-3)
        marked = {row[0] for row in rows if row[place].endswith("(best)")}
        texts = {row[0]: row[place].removesuffix(" (best)") for row in rows}
        alike = {name for name, text in texts.items() if text == texts[winner]}
        assert marked == (alike if len(alike) < len(rows) else set())


def test_what_was_trained_is_told(pages):
    rows = dict((row[0], row[1:]) for row in tables(pages["numbers"], "What was trained")[0])
    assert rows["divergence"] == ["KL", "JSA:0.5", "deterministic"]
    assert rows["epochs"] == ["3", "3", "3"]
    assert rows["weights"] == ["352", "352", "352"]  # (4 + 1) 50 + (50 + 1) 2
    settings = dict((row[0], row[1:]) for row in tables(pages["numbers"], "Settings in full")[0])
    assert settings["training.learning_rate"] == ["0.003"] * 3
    assert settings["divergence.alpha"] == ["–", "0.5", "–"]
    text = read(pages["numbers"]).text
    assert "48 for training, 16 for validation, 16 for testing" in text
    assert f"torch {torch.__version__}" in text


def test_posterior_scales_are_those_of_the_weights_file(made, pages):
    from safetensors.numpy import load_file

    (rows,) = tables(pages["numbers"], "Posterior against prior, by weight tensor")
    shown = {(row[0], row[1]): row for row in rows[1:]}
    assert {name for _, name in shown} == {"kl", "jsa"}  # the deterministic one has none
    for name in ("kl", "jsa"):
        kept = load_file(made / "numbers" / name / "weights.safetensors")
        rho, loc = (kept[f"model/network.posterior.{key}"].astype(float) for key in ("rho", "loc"))
        scale, start = np.log1p(np.exp(rho)), 0
        for tensor, size, fan_in in (
            *(("0.weight", 200, 4), ("0.bias", 50, 1)),
            *(("2.weight", 100, 50), ("2.bias", 2, 1)),
        ):
            prior, here = np.sqrt(2 / fan_in), slice(start, start + size)
            start += size
            wanted = [
                prior,
                *np.quantile(scale[here] / prior, (0.05, 0.5, 0.95)),
                *np.quantile(np.abs(loc[here]) / prior, (0.05, 0.5, 0.95)),
            ]
            found = [float(text) for text in shown[tensor, name][3:]]
            np.testing.assert_allclose(found, wanted, rtol=2e-3)


def test_the_share_of_targets_inside_is_that_of_the_mixtures_distribution_function(made, pages):
    text = read(pages["numbers"]).text
    told = [float(share) for share in re.findall(r"([\d.]+)% of all targets inside", text)]
    for share, name in zip(told, LOSSES, strict=True):
        mean, scale, y = outputs(made / "numbers" / name)
        below = norm.cdf(y, mean, scale).mean(0)
        inside = np.mean(np.abs(2 * below - 1) <= 0.9)
        assert share == pytest.approx(100 * inside, abs=0.06)


def test_the_calibration_of_intervals_is_drawn_where_it_is(made, pages):
    run = reading.tested(reading.read([made / "numbers" / "jsa"])[0])
    (look,) = charts.series([("jsa", "JSA")])
    drawing = quantities._coverages([(run, look)])
    dots = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawing)
    mean, scale, y = outputs(made / "numbers" / "jsa")
    within = np.abs(2 * norm.cdf(y, mean, scale).mean(0) - 1)
    frame = charts.Frame.of(charts.Axis("", 0.0, 1.0), charts.Axis("", 0.0, 1.0))
    wanted = [(frame.x(level), frame.y(np.mean(within <= level))) for level in quantities.LEVELS]
    np.testing.assert_allclose(np.array(dots, float), wanted, atol=0.06)


def test_confusion_and_auc_are_those_of_scikit_learn(made, pages):
    page = read(pages["classes"]).text
    shown = tables(pages["classes"], "Confusion")
    assert len(shown) == len(LOSSES)
    for (_, *rows), (name, divergence) in zip(shown, LOSSES.items(), strict=True):
        one = reading.tested(reading.read([made / "classes" / name])[0])
        probabilities = one.predictive.conditional.probs.double().mean(0).numpy()
        wanted = confusion_matrix(one.y.numpy(), probabilities.argmax(1))
        assert [[int(cell) for cell in row[1:]] for row in rows] == wanted.tolist()
        area = roc_auc_score(one.y.numpy(), probabilities[:, 1])
        label = "deterministic" if divergence is None else repr(divergence)
        ece = f"{result(made / 'classes' / name)['test']['ece']:.4g}"
        assert f"{name}: {label}, ECE {ece}, AUC {area:.4g}" in page


def test_examples_are_ordered_by_entropy_and_are_rows_of_the_file(made, pages):
    certain, uncertain = tables(pages["classes"], "Examples")[:2]
    one = reading.tested(reading.read([made / "classes" / "kl"])[0])
    mean = one.predictive.conditional.probs.double().mean(0).numpy()
    entropy = -(mean * np.log(mean)).sum(1)
    order = np.argsort(entropy)
    rows = pd.read_csv(made / "classes.csv")
    for table, places in ((certain, order[:6]), (uncertain, order[::-1][:6])):
        told = {row[0]: row[1:] for row in table}
        for k, place in enumerate(places):
            row = rows.iloc[int(told["row"][k]) - 1]  # as the page numbers them
            assert row["b"] == pytest.approx(float(told["b"][k]), rel=1e-3)
            assert row.iloc[0] == pytest.approx(float(told[f"a {EVIL}"][k]), rel=1e-3)
            assert row["colour"] == told["colour"][k]
            assert row["y"] == told["target"][k]
            assert float(told["entropy"][k]) == pytest.approx(entropy[place], abs=6e-4)
    assert "its row in classes.csv, counted from 1 below the header" in read(pages["classes"]).text


def test_the_two_parts_of_the_uncertainty_are_told_in_units_of_the_target(made, pages):
    (rows,) = tables(pages["numbers"], "The two parts of the uncertainty")
    for row, name in zip(rows[1:], LOSSES, strict=True):
        mean, scale, _ = outputs(made / "numbers" / name)
        wanted = [mean.std(0).mean(), np.sqrt((scale**2).mean(0)).mean()]
        np.testing.assert_allclose([float(text) for text in row[1:]], wanted, rtol=1e-3, atol=1e-3)


def test_examples_of_a_regression_have_the_spread_and_the_quantiles_of_the_mixture(made, pages):
    certain, uncertain = tables(pages["numbers"], "Examples")[:2]
    mean, scale, y = outputs(made / "numbers" / "kl")
    epistemic, aleatoric = mean.std(0), np.sqrt((scale**2).mean(0))
    order = np.argsort(epistemic**2 + aleatoric**2)
    for table, rows in ((certain, order[:6]), (uncertain, order[::-1][:6])):
        told = {row[0]: row[1:] for row in table}
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


@pytest.mark.parametrize(
    ("key", "values", "wanted"),
    [
        ("accuracy", [0.5, 0.7, 0.70001], {1, 2}),  # alike in the digits that are shown
        ("nll", [2.0, float("nan"), 1.0], {2}),
        ("coverage", [1.0, 0.5, 0.82], {2}),
        ("ece", [0.1, 0.1], set()),
        ("of_ones_own", [1.0, 2.0], set()),
    ],
)
def test_the_best_of_a_column(key, values, wanted):
    assert metric.best(key, values, sections._digits) == wanted


def test_images_are_shown_as_they_are(made):
    one = reading.tested(reading.read([made / "digits"])[0])
    grey = Image.open(io.BytesIO(examples.png(one.splits.test.x[3])))
    wanted = one.splits.test.x[3, 0].numpy() * 255
    np.testing.assert_allclose(np.asarray(grey), wanted, atol=0.51)
    colour = torch.rand(3, 4, 5) * 2 - 0.5  # as with noise: beyond what can be shown
    shown = np.asarray(Image.open(io.BytesIO(examples.png(colour))))
    wanted = np.moveaxis(colour.numpy(), 0, 2).clip(0, 1) * 255
    np.testing.assert_allclose(shown, wanted, atol=0.51)


def test_a_page_of_images_has_an_image_with_a_name_for_each_example(pages):
    page = pages["digits"].read_text()
    found = re.findall(r'<img src="data:image/png;base64,[^"]+" alt="image (\d+)">', page)
    assert len(found) == 12
    digits = load_digits()
    for number, target in zip(found, re.findall(r"target (\d)<", page), strict=True):
        assert digits.target[int(number) - 1] == int(target)
    assert "<h2>Confusion</h2>" in page
    assert "ROC" not in page


def test_every_setting_is_there(made, pages):
    settings = json.loads((made / "numbers" / "jsa" / "settings.json").read_text())
    page = pages["numbers"].read_text()
    names = {row[0] for row in tables(page, "Settings in full")[0]}
    for above, inside in settings.items():
        for key in inside if isinstance(inside, dict) else ():
            assert f"{above}.{key}" in names or f"{above}.{key}" == "encoder.columns"
    encoded = {row[0] for row in tables(page, "How the columns are encoded")[0]}
    assert encoded >= {f"a {EVIL}", "b", "colour"}


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


def test_many_runs_of_one_loss_look_different():
    looks = charts.series([(f"run {k}", "JSA") for k in range(6)])
    assert len({(one.light, one.dash) for one in looks}) == 6
    assert looks[0].light == "#D55E00"


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e12])
def test_an_axis_has_round_numbers_for_values_of_any_size(size):
    axis = charts.Axis.around("y", [-1.2 * size, 2.9 * size])
    texts = [charts._tick(tick) for tick in axis.ticks]
    assert len(set(texts)) == len(texts) >= 4
    assert "-0" not in texts
    np.testing.assert_allclose(axis.ticks, [float(text) for text in texts], rtol=1e-9)
    steps = np.diff(axis.ticks)
    np.testing.assert_allclose(steps, steps[0], rtol=1e-9)


def test_metrics_below_a_thousandth_keep_three_digits():
    assert sections._digits(1.2345e-30) == "1.23e-30"
    assert sections._digits(0.25) == "0.2500"
    assert metric.best("rmse", [1e-30, 2e-30], sections._digits) == {0}


@pytest.mark.parametrize("last", [1, 2, 3, 7])
def test_epochs_are_counted_in_whole_numbers(last):
    axis = charts.Axis("epoch", 1.0, max(last, 2.0), least=1.0)
    assert axis.ticks == [float(k) for k in range(1, max(last, 2) + 1)]


def test_a_dot_in_a_corner_is_drawn_whole():
    unit = charts.Axis("", 0.0, 1.0)
    frame = charts.Frame.of(unit, unit)
    (look,) = charts.series([("run", "KL")])
    drawn = frame.drawn([frame.dots([(0.0, 0.0), (1.0, 1.0)], look, [7.5, 7.5])], "")
    x, y, wide, tall = map(
        float,
        re.search(
            r'<svg x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', drawn
        ).groups(),
    )
    for cx, cy, r in re.findall(r'cx="([\d.]+)" cy="([\d.]+)" r="([\d.]+)"', drawn):
        assert x <= float(cx) - float(r) < float(cx) + float(r) <= x + wide
        assert y <= float(cy) - float(r) < float(cy) + float(r) <= y + tall


def test_a_line_has_a_gap_where_a_value_is_not_finite():
    frame = charts.Frame.of(charts.Axis("", 0.0, 4.0), charts.Axis("", 0.0, 1.0))
    (look,) = charts.series([("run", "KL")])
    points = [(0, 0.5), (1, 0.6), (2, float("nan")), (3, 0.2)]
    drawn = frame.line(points, look)
    assert "nan" not in drawn
    assert drawn.count("M") == 1
    assert drawn.count("L") == 1
    assert drawn.count("<circle") == 1  # the last point has no neighbour


def test_of_many_classes_the_most_frequent_mistakes_are_listed():
    random = np.random.default_rng(0)
    y, called = random.integers(0, 15, 400), random.integers(0, 15, 400)
    names = [f"class {k}" for k in range(15)]
    counts = confusion_matrix(y, called)
    (rows,) = tables(classes._mistakes(torch.tensor(counts), names), "The most frequent mistakes")
    found = [counts[names.index(true), names.index(name)] for true, name, _ in rows[1:]]
    assert [int(row[2]) for row in rows[1:]] == found
    np.fill_diagonal(counts, 0)
    assert found == sorted(counts.flatten(), reverse=True)[:20]
    right = classes._mistakes(torch.eye(15), names)
    assert "No test example was called by a wrong name" in right


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


def test_without_its_data_a_page_is_made_and_says_so_in_one_sentence(moved):
    runs = [moved / "runs" / name for name in LOSSES]
    assert "could not be loaded" not in report.page(runs)
    (moved / "own.csv").unlink()
    page = report.page(runs)
    (said,) = re.findall(r'<p class="problem">(.*?)</p>', page)
    assert said.startswith("The data could not be loaded again")
    assert "own.csv" in said
    assert tables(page, "Metrics, test data")
    assert tables(page, "Posterior against prior, by weight tensor")
    assert "Intervals" not in page
    assert not tables(page, "Examples")


def test_data_that_changed_are_not_used(moved):
    frame(90).to_csv(moved / "own.csv", index=False)
    page = report.page([moved / "runs" / "kl"])
    assert "has changed since kl was trained" in page
    assert "Intervals" not in page


def test_test_rows_that_changed_are_not_drawn_beside_the_metrics_of_before(moved):
    rows = pd.read_csv(moved / "own.csv")
    run = reading.tested(reading.read([moved / "runs" / "kl"])[0])
    rows.loc[[row - 1 for row in run.splits.test_rows], "y"] = 100.0
    rows.to_csv(moved / "own.csv", index=False)
    page = report.page([moved / "runs" / "kl"])
    (said,) = re.findall(r'<p class="problem">(.*?)</p>', page)
    assert "has changed since kl was trained: some of its rows differ; train again" in said
    assert "of all targets inside" not in page


def test_settings_without_a_fingerprint_are_damaged(moved):
    path = moved / "runs" / "kl" / "settings.json"
    told = json.loads(path.read_text())
    del told["fingerprint"]
    path.write_text(json.dumps(told))
    with pytest.raises(runs.RunError, match=r"settings\.json is damaged: 'fingerprint'"):
        report.page([moved / "runs" / "kl"])


def test_runs_whose_file_moved_are_reported_together(made, moved):
    both = [made / "numbers" / "kl", moved / "runs" / "jsa"]  # two places, the same rows
    assert "could not be loaded" not in report.page(both)
    (moved / "own.csv").rename(moved / "new.csv")
    assert "could not be loaded" in report.page(both)
    page = report.page(both, data=str(moved / "new.csv"))
    assert "could not be loaded" not in page
    assert page.count("of all targets inside") == 2


def test_a_run_that_does_not_say_where_its_data_came_from_has_a_page_too(tmp_path):
    trainings.train(load("diabetes"), KL(), Training(epochs=1, test_samples=4), folder=tmp_path)
    assert "does not say where its data came from" in report.page([tmp_path])


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
    (damaged, "damaged/metrics.json is damaged"),
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
    assert "posterior" in screen.file.getvalue()


# In a browser --------------------------------------------------------------------------------


def test_names_with_markup_are_text(pages):
    for page in pages.values():
        assert "<script" not in page.read_text(encoding="utf-8")
    for name in ("numbers", "classes"):
        assert EVIL in read(pages[name]).text


def test_a_page_holds_all_it_needs(pages):
    for page in pages.values():
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"https?://|@import|url\(|<script|<link[^>]+href=\"(?!data:)", text)
        assert "nan" not in " ".join(re.findall(r' (?:d|cx|cy)="([^"]*)"', text)).lower()


@pytest.mark.parametrize("name", ["numbers", "classes", "digits"])
def test_a_page_opens_without_errors_or_requests_and_nothing_scrolls_sideways(
    chromium, pages, name
):
    address = pages[name].as_uri()
    page = chromium.open(address, width=360)
    for width in (360, 700, 1200):
        page.look(width=width)
        assert page.run("document.scrollingElement.scrollWidth") <= width
    assert page.run("document.title").endswith(("compared", "digits"))
    assert page.problems == []
    assert [asked for asked in page.requests if not asked.startswith("data:")] == [address]
    unnamed = page.run(
        "[...document.querySelectorAll('svg.chart, img, table, .scroll')].filter("
        "(e) => !(e.ariaLabel || e.alt)).length"
    )
    assert unnamed == 0
    levels = page.run("[...document.querySelectorAll('h1, h2, h3, h4')].map((h) => +h.tagName[1])")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


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
    style = "getComputedStyle(document.querySelector('{}')).{}"
    back = page.run(style.format(".panel", "backgroundColor"))
    assert (luminance(back) < 0.1) == dark
    for part in ("h2", "td", ".note", "tbody th", "dt"):
        assert contrast(page.run(style.format(part, "color")), back) >= 4.5, part
    assert contrast(page.run(style.format(".chart text", "fill")), back) >= 4.5
    for look in charts.series([("a", loss) for loss in (*charts.ON_DARK, *"vwxyz")]):
        colour = (look.dark if dark else look.light).lstrip("#")
        rgb = "rgb({}, {}, {})".format(*(int(colour[k : k + 2], 16) for k in (0, 2, 4)))
        assert contrast(rgb, back) >= 3, look
    assert page.run("getComputedStyle(document.querySelector('.line.s0')).stroke") != "none"


def test_print_is_light_and_cuts_nothing_off(chromium, pages):
    page = chromium.open(pages["classes"].as_uri(), width=690)
    scheme = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.call("Emulation.setEmulatedMedia", media="print", features=scheme)
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.run("document.scrollingElement.scrollWidth") <= 690
