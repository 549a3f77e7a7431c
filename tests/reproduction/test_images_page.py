"""The page on the image experiments: its tables are recomputed from the committed results."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks.pretrained.tables import TITLES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "paper" / "images.md"
RESULTS = ROOT / "results" / "images"
PRETRAINED = ROOT / "benchmarks" / "pretrained" / "results"
NAMES = {
    "kl": "KL",
    "js_g": "JS-G",
    "js_a": "JS-A",
    "lambda_kl": "λKL",
    "deterministic": "deterministic",
    "unmodified_js_g": "unmodified JS-G",
    "unmodified_js_a": "unmodified JS-A",
}
FIVE = ("kl", "js_g", "js_a", "lambda_kl", "deterministic")

pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="results/ is not beside the tests")


def read(experiment, name, noise=None, folds=range(1, 6)):
    ending = "" if noise is None else f"-noise{noise:g}"
    paths = [RESULTS / experiment / name / f"fold{fold}{ending}.json" for fold in folds]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def scores(runs, *keys):
    """One value a fold: the entry of a result that these keys lead to."""
    values = []
    for run in runs:
        for key in keys:
            run = run[key]
        values.append(run)
    return np.array(values, dtype=float)


def spread(values, digits=2):
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1):.{digits}f}"


def accuracy(runs, part="test", at="at_best", way="mean"):
    return 100 * scores(runs, at, part, way, "accuracy")


def cifar10():
    for name in FIVE:
        runs = read("cifar10", name, 0.9)
        best = [100 * max(line["validation_accuracy"] for line in run["history"]) for run in runs]
        yield (
            NAMES[name],
            spread(np.array(best)),
            spread(accuracy(runs, "validation", "at_end")),
            spread(100 * scores(runs, "at_end", "gap"), 1),
            spread(accuracy(runs)),
            spread(accuracy(runs, way="averaged")),
        )


def mechanism():
    sets = {
        "CIFAR-10, noise 0.9": ("cifar10", 0.9),
        "histopathology": ("histopathology", None),
        "CIFAR-100, noise 0.5": ("cifar100", 0.5),
    }
    for title, (experiment, noise) in sets.items():
        runs = [read(experiment, name, noise) for name in ("kl", "js_g", "js_a", "lambda_kl")]
        gaps = [100 * scores(each, "at_end", "gap").mean() if each else None for each in runs]
        yield (title, *("–" if gap is None else f"{gap:.1f}" for gap in gaps))


def divergence(name, alpha, loc, scale):
    """KL(q, p), JS-G or JS-A of N(loc, scale) and N(0, 1), by dense integration."""
    x = np.linspace(-12, 12, 400_001)
    log_q, log_p = stats.norm.logpdf(x, loc, scale), stats.norm.logpdf(x)

    def kl(one, other):
        return np.trapezoid(np.exp(one) * (one - other), x)

    if name == "lambda_kl":
        return kl(log_q, log_p)
    if name == "js_a":
        mean = np.logaddexp(np.log(alpha) + log_q, np.log(1 - alpha) + log_p)
        return (1 - alpha) * kl(log_q, mean) + alpha * kl(log_p, mean)
    mean = alpha * log_q + (1 - alpha) * log_p
    mean -= np.log(np.trapezoid(np.exp(mean), x))
    return (1 - alpha) * kl(log_q, mean) + alpha * kl(log_p, mean)


def pulls():
    for title, (experiment, noise) in {
        "CIFAR-10, noise 0.9": ("cifar10", 0.9),
        "histopathology": ("histopathology", None),
    }.items():
        for name in ("js_g", "js_a", "lambda_kl"):
            setting = read(experiment, name, noise)[0]["setting"]
            found = []
            for scale in (setting["start"], 0.1, 1.0):
                ends = (
                    divergence(name, setting["alpha"], 1 + step, scale) for step in (-1e-3, 1e-3)
                )
                low, high = ends
                found.append(setting["strength"] * (high - low) / 2e-3)
            alpha = "–" if setting["alpha"] is None else f"{setting['alpha']:g}"
            shown = (f"{each:.3f}" for each in found)
            yield (title, NAMES[name], alpha, f"{setting['strength']:g}", *shown)


def sweep():
    for noise in (0.1, 0.3, 0.5, 0.7, 0.9):
        runs = [read("cifar10", name, noise) for name in ("kl", "js_g", "js_a")]
        (count,) = {len(each) for each in runs}
        yield (f"{noise:g}", str(count), *(spread(accuracy(each)) for each in runs))


def histopathology():
    for name in NAMES:
        runs = read("histopathology", name)
        assert len(runs) == 5
        told = {key: scores(runs, "at_best", "test", "mean", key) for key in ("auc", "nll", "ece")}
        missed = scores(runs, "at_best", "test", "mean", "false_negatives")
        yield (
            NAMES[name],
            spread(accuracy(runs)),
            *(spread(values, 3) for values in told.values()),
            spread(missed, 0),
        )


def patients():
    names = ("kl", "js_g", "js_a", "deterministic")
    found = {name: read("histopathology", f"{name}-by-patient") for name in names}
    shared = set.intersection(*({run["fold"] for run in runs} for runs in found.values()))
    for name, runs in found.items():
        kept = [run for run in runs if run["fold"] in shared]
        yield (NAMES[name], spread(accuracy(kept)), str(len(kept)), str(len(runs)))


def cifar100():
    published = {"kl": "22.81", "js_g": "24.51", "js_a": "24.02"}
    for name in ("kl", "js_g", "js_a", "deterministic"):
        (run,) = read("cifar100", name, 0.5)
        values = (
            accuracy([run], "validation"),
            accuracy([run]),
            accuracy([run], at="at_end"),
        )
        told = (f"{value.item():.2f}" for value in values)
        yield (NAMES[name], str(run["best_epoch"]), *told, published.get(name, "–"))


def authors():
    published = {"kl": "39.72", "js_a": "41.78"}
    for name in ("kl", "js_g", "js_a"):
        (theirs,) = read("cifar10-paper", name, 0.9)
        ours = read("cifar10", name, 0.9)
        large = read("cifar10-224", name, 0.9)
        yield (
            NAMES[name],
            f"{accuracy([theirs], 'validation').item():.2f}",
            str(theirs["best_epoch"]),
            f"{accuracy([theirs], 'validation', 'at_end').item():.2f}",
            f"{accuracy(ours, 'validation').mean():.2f}",
            f"{accuracy(large, 'validation').item():.2f}" if large else "–",
            published.get(name, "–"),
        )


def seconds():
    published = {"kl": 1140, "js_g": 1168, "js_a": 1856}
    (base,) = read("timing", "kl")
    for name, theirs in published.items():
        (run,) = read("timing", name)
        assert run["processes"] == 1
        own = run["seconds_per_epoch"]
        ratio = own / base["seconds_per_epoch"]
        yield (NAMES[name], f"{own:.2f}", f"{ratio:.2f}", f"{theirs:,}", f"{theirs / 1140:.2f}")


def settings():
    for data in ("cifar10", "histopathology"):
        for name in NAMES:
            paths = sorted((RESULTS / f"{data}-tuning").glob(f"{name}-[0-9n]*/*.json"))
            tried = [json.loads(path.read_text()) for path in paths]
            if not tried:
                continue
            tops = [max(line["validation_accuracy"] for line in run["history"]) for run in tried]
            best = tried[int(np.argmax(tops))]["setting"]
            point = name == "deterministic"
            yield (
                {"cifar10": "CIFAR-10", "histopathology": "histopathology"}[data],
                NAMES[name],
                "–" if best["alpha"] is None else f"{best['alpha']:g}",
                "–" if point else f"{best['strength']:g}",
                f"{best['learning_rate']:g}",
                "–" if point else f"{best['start']:g}",
                f"{100 * max(tops):.2f}",
                str(len(tried)),
            )


def fine_tuned(name, key="missed_equal"):
    paths = [PRETRAINED / f"final-patches-{name}-{fold}.json" for fold in range(5)]
    return scores([json.loads(path.read_text()) for path in paths], "scores", "test", key)


def pretrained():
    base = fine_tuned("all_kl")
    for name, title in TITLES.items():
        own = fine_tuned(name)
        low, high = 100 * np.array(stats.ttest_rel(base, own).confidence_interval(0.95))
        ends = (100 * (base - own).mean(), low, high)
        mean, low, high = (f"{end / base.mean():+.1f}" for end in ends)
        keys = ("missed", "auc", "nll", "ece")
        yield (
            title,
            spread(own, 3),
            "–" if name == "all_kl" else f"{mean} [{low}, {high}]",
            *(spread(fine_tuned(name, key), 3) for key in keys),
        )


TABLES = {
    "A pretrained start": pretrained,
    "CIFAR-10 with noise 0.9": cifar10,
    "What the losses do": mechanism,
    "How hard the losses pull": pulls,
    "Less noise": sweep,
    "Histopathology": histopathology,
    "Unseen patients": patients,
    "CIFAR-100 with noise 0.5": cifar100,
    "The authors' settings": authors,
    "Seconds per epoch": seconds,
    "The search": settings,
}


def table(heading):
    """The rows of the first table under a heading of the page, without its head."""
    after = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in after.splitlines() if line.startswith("|")]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines[2:]]


@pytest.mark.parametrize("heading", TABLES)
def test_a_table_of_the_page_is_what_the_results_give(heading):
    assert table(heading) == list(TABLES[heading]())


def test_every_table_of_the_page_is_checked():
    headed = [part for part in PAGE.read_text().split("\n## ")[1:] if "\n| ---" in part]
    assert {part.splitlines()[0] for part in headed} == set(TABLES)


def above(one, other, digits=2):
    """Mean and 95 % interval of the difference, fold by fold."""
    low, high = stats.ttest_rel(one, other).confidence_interval(0.95)
    return f"{(one - other).mean():.{digits}f}", f"[{low:.{digits}f}, {high:.{digits}f}]"


def missed(runs):
    return scores(runs, "at_best", "test", "mean", "false_negatives")


def test_figures_in_the_text_of_the_page_are_what_the_results_give():
    text = " ".join(PAGE.read_text().split())
    kl, js_g, js_a, tuned = (
        accuracy(read("cifar10", name, 0.9)) for name in ("kl", "js_g", "js_a", "lambda_kl")
    )
    first, second = above(js_a, kl), above(js_g, kl)
    told = f"JS-A is {first[0]} points above KL {first[1]}, JS-G {' '.join(second)}; the paper"
    assert told in text
    own = above(tuned, kl)
    assert f"λKL is {own[0]} points above KL {own[1]}, and no JS loss" in text
    patches = {name: read("histopathology", name) for name in ("kl", "js_g", "js_a", "lambda_kl")}
    behind = above(accuracy(patches["js_a"]), accuracy(patches["lambda_kl"]))
    assert f"{behind[0]} points of accuracy below JS-A {behind[1]}" in text
    base = missed(patches["kl"])
    fewer = {
        name: above(100 * base / base.mean(), 100 * missed(patches[name]) / base.mean(), 1)
        for name in ("js_g", "js_a", "lambda_kl")
    }
    assert (
        f"JS-G misses {fewer['js_g'][0]} % fewer positive patches than KL {fewer['js_g'][1]}, "
        in text
    )
    assert f"JS-A {fewer['js_a'][0]} % {fewer['js_a'][1]}; published" in text
    assert f"λKL misses {fewer['lambda_kl'][0]} % fewer {fewer['lambda_kl'][1]}:" in text
    sizes = patches["kl"][0]["sizes"]
    assert f"{sum(sizes.values()):,} of the 277,524 patches" in text
    assert f"trains on {sizes['train']:,}, validates on {sizes['validation']:,}" in text
    assert f"{len(list(RESULTS.rglob('*.json')))} runs" in text


def test_figures_of_the_pretrained_start_are_what_its_results_give():
    text = " ".join(PAGE.read_text().split())

    def fewer(name, other):
        base = fine_tuned(other)
        mean, ends = above(100 * base / base.mean(), 100 * fine_tuned(name) / base.mean(), 1)
        return f"{mean} %", ends

    share, ends = fewer("all_jsa", "all_kl")
    assert f"JS-A misses {share} fewer tumours than λKL {ends}, where the paper" in text
    share, ends = fewer("all_jsa", "plain")
    assert f"It misses {share} fewer than plain fine-tuning {ends}, which" in text
    share, ends = fewer("all_kl", "plain")
    assert f"{share} {ends}." in text
    told = json.loads((PRETRAINED / "final-patches-all_kl-0.json").read_text())
    assert f"fine-tuned for {told['epochs']} epochs" in text
    assert told["settings"]["strength"] < 1e-3


def test_round_figures_in_the_text_of_the_page_are_what_the_results_give():
    """Points, per cent and minutes that the text gives without an interval."""
    text = " ".join(PAGE.read_text().split())
    leads = [
        (accuracy(read("cifar10", "js_a", noise)) - accuracy(read("cifar10", "kl", noise))).mean()
        for noise in (0.1, 0.9)
    ]
    assert f"from {leads[0]:.0f} points at noise 0.1 to {leads[1]:.1f} at 0.9" in text
    falls = []
    for name, cell, *_ in patients():
        (own,) = (key for key, title in NAMES.items() if title == name)
        falls.append(accuracy(read("histopathology", own)).mean() - float(cell.split()[0]))
    assert 1.5 < min(falls) < 2.5 < 3.5 < max(falls) < 4.5  # "by two to four points"
    large = [accuracy(read("cifar10-224", name, 0.9), "validation") for name in ("kl", "js_g")]
    assert f"where KL is {(large[0] - large[1]).item():.1f} points" in text
    every = [json.loads(path.read_text()) for path in RESULTS.rglob("*.json")]
    minutes = sum(run["seconds"] / run["processes"] for run in every) / 60
    assert f"in about {round(minutes, -1):.0f} minutes" in text
    point = read("cifar10", "deterministic", 0.9)
    assert min(run["at_end"]["train_accuracy"] for run in point) > 0.995
    patches = read("histopathology", "kl")[0]
    positive = sum(patches["at_best"]["test"]["mean"]["confusion"][1])
    assert f"tested on {patches['sizes']['test']:,}, {positive} of them positive" in text
    assert f"{point[0]['weights'] / 1e6:.1f} million weights" in text
    lines = read("cifar10-paper", "kl", 0.9)[0]["history"]
    fitted = [line["validation_accuracy"] for line in lines]
    assert min(fitted[:-2]) > 0.3 > max(fitted[-2:])  # "collapses in its last two epochs"


def test_every_plan_of_the_page_is_known():
    from reproduction.costs import costs
    from reproduction.images.plans import PLANS

    after = PAGE.read_text().split("## Running it again")[1].split("\n## ")[0]
    rows = [line for line in after.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in row.split("`")[1].split()}
    listed = {cost.plan for cost in costs(ROOT / "results")}
    assert named == {name for name in listed if name in PLANS}
