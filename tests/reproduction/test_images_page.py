"""The page on the image experiments: its tables are recomputed from the committed results."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks.pretrained.tables import TITLES
from reproduction.images.comparing import AREA, MISSED, ahead, everyone, reduction

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
BAYESIAN = ("kl", "js_g", "js_a", "lambda_kl")
FIVE = (*BAYESIAN, "deterministic")

pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="results/ is not beside the tests")


def read(experiment, name, noise=None, folds=range(1, 6)):
    ending = "" if noise is None else f"-noise{noise:g}"
    paths = [RESULTS / experiment / name / f"fold{fold}{ending}.json" for fold in folds]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def seeds(name):
    """The runs of the random split, or of unseen patients, with all their seeds."""
    return [run for tag in ("", "-seed2", "-seed3") for run in read("histopathology", name + tag)]


def by_fold(runs, *keys):
    """One value a fold, the mean over its seeds."""
    values, folds = scores(runs, *keys), np.array([run["fold"] for run in runs])
    return np.array([values[folds == fold].mean() for fold in np.unique(folds)])


def scores(runs, *keys):
    """One value a run: the entry of a result that these keys lead to."""
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
        runs = [read(experiment, name, noise) for name in BAYESIAN]
        if title == "histopathology":
            runs = [seeds(name) for name in BAYESIAN]
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


def recorded():
    """The mean pull on trained weights, of the folds and seeds where all losses recorded it."""
    told = {f"CIFAR-10, noise {noise:g}": ("cifar10", noise) for noise in (0.1, 0.5, 0.9)}
    for title, place in {**told, "histopathology": None}.items():
        runs = [
            seeds(name) if place is None else read(place[0], name, place[1]) for name in BAYESIAN
        ]
        kept = [{run["seed"]: run for run in each if "pull" in run["at_end"]} for each in runs]
        shared = sorted(set.intersection(*map(set, kept)))
        means = (
            scores([each[seed] for seed in shared], "at_end", "pull", "mean").mean()
            for each in kept
        )
        yield (title, str(len(shared)), *(f"{mean:.3f}" for mean in means))


def sweep():
    for noise in (0.1, 0.3, 0.5, 0.7, 0.9):
        runs = {name: read("cifar10", name, noise) for name in FIVE}
        ran = [{run["fold"] for run in each} for each in runs.values() if each]
        shared = set.intersection(*ran)
        cells = (
            spread(accuracy([run for run in each if run["fold"] in shared])) if each else "–"
            for each in runs.values()
        )
        yield (f"{noise:g}", str(len(shared)), *cells)


def on_patches(name):
    """Accuracy, area, NLL, ECE and the share of missed positives, fold by fold."""
    runs = seeds(name)
    mean = ("at_best", "test", "mean")
    told = [by_fold(runs, *mean, key) for key in ("accuracy", "auc", "nll", "ece")]
    return [100 * told[0], *told[1:], 100 * missed(runs)]


def patches(names):
    for name in names:
        accuracies, *told, share = on_patches(name)
        assert len(share) == 5
        key = name.removesuffix("-by-patient")
        yield (
            NAMES[key],
            str(len(seeds(name)) // 5),
            spread(accuracies),
            *(spread(values, 3) for values in told),
            spread(share, 1),
        )


def histopathology():
    return patches(NAMES)


def patients():
    return patches(f"{name}-by-patient" for name in FIVE)


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
    verbatim = {"kl": "authors_kl", "js_g": "authors_js_g", "js_a": "js_a"}
    for name, own in verbatim.items():
        (theirs,) = read("cifar10-paper", name, 0.9)
        formulas = accuracy(read("cifar10-authors", own, 0.9), "validation")
        ours = read("cifar10", name, 0.9)
        large = read("cifar10-224", name, 0.9)
        yield (
            NAMES[name],
            f"{accuracy([theirs], 'validation').item():.2f}",
            str(theirs["best_epoch"]),
            f"{accuracy([theirs], 'validation', 'at_end').item():.2f}",
            f"{formulas.mean():.2f}",
            f"{accuracy(ours, 'validation').mean():.2f}",
            f"{accuracy(large, 'validation').item():.2f}" if large else "–",
            published.get(name, "–"),
        )


def seconds():
    published = {"kl": 1140, "js_g": 1168, "js_a": 1856}
    (base,) = read("time-per-epoch", "kl")
    for name, theirs in published.items():
        (run,) = read("time-per-epoch", name)
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
    "The pull on trained weights": recorded,
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
    """The share of positive patches that are called negative, fold by fold."""
    shares = []
    for run in runs:
        (_, (wrong, right)) = run["at_best"]["test"]["mean"]["confusion"]
        shares.append({"fold": run["fold"], "share": wrong / (wrong + right)})
    return by_fold(shares, "share")


def test_figures_in_the_text_of_the_page_are_what_the_results_give():
    text = " ".join(PAGE.read_text().split())
    first, second, own = (lead(name, "kl", 0.9) for name in ("js_a", "js_g", "lambda_kl"))
    told = f"JS-A is {first[0]} points above KL {first[1]}, JS-G {' '.join(second)}; the paper"
    assert told in text
    assert f"λKL is {own[0]} points above KL {own[1]}, and no JS loss" in text
    kept = {len(folds_with_rows("cifar10", name, 0.9)) for name in BAYESIAN}
    assert kept == {2}
    assert "by the answers that two of the five folds kept" in text
    sizes = read("histopathology", "kl")[0]["sizes"]
    assert f"{sum(sizes.values()):,} of the 277,524 patches" in text
    assert f"trains on {sizes['train']:,}, validates on {sizes['validation']:,}" in text
    assert f"{len(list(RESULTS.rglob('*.json')))} runs" in text


def folds_with_rows(experiment, name, noise=None):
    runs = read(experiment, name, noise)
    return [run["fold"] for run in runs if "right" in run["at_best"]["test"]["mean"]]


def lead(name, other, noise, folds=range(1, 6)):
    """How far a loss is above another on test images, with the interval of the report."""
    mean, low, high, _ = ahead(*(read("cifar10", each, noise, folds) for each in (name, other)))
    return f"{100 * mean:.2f}", f"[{100 * low:.2f}, {100 * high:.2f}]"


def test_the_mean_of_a_lead_is_that_of_its_folds():
    one, other = (accuracy(read("cifar10", name, 0.9)) for name in ("js_a", "kl"))
    assert lead("js_a", "kl", 0.9)[0] == above(one, other)[0]


def test_leads_at_less_noise_are_what_the_results_give():
    text = " ".join(PAGE.read_text().split())
    first, last = lead("js_a", "kl", 0.1), lead("js_a", "kl", 0.9)
    assert f"from {first[0]} points at noise 0.1 to {last[0]} at 0.9" in text
    table_has = [fold for fold in range(1, 6) if read("cifar10", "js_a", 0.1, [fold])]
    first, last = lead("lambda_kl", "kl", 0.1, table_has), lead("lambda_kl", "kl", 0.9)
    assert f"that of λKL too, from {first[0]} to {last[0]}, on the folds of the table" in text
    kl, tuned = (float(next(sweep())[place].split(" ±")[0]) for place in (2, 5))
    assert f"{tuned - kl:.2f}" == first[0]
    assert f"report has {lead('lambda_kl', 'kl', 0.1)[0]} at noise 0.1, on all five folds" in text
    (low, low_ends), (half, half_ends) = (lead("js_a", "lambda_kl", noise) for noise in (0.1, 0.5))
    told = (
        f"{low} points above λKL at noise 0.1 {low_ends} and {half} at 0.5 {half_ends}: undecided"
    )
    assert told in text
    (low, low_ends), (half, half_ends) = (lead("lambda_kl", "js_g", noise) for noise in (0.1, 0.5))
    assert all(float(ends.strip("[]").split(", ")[0]) > 0 for ends in (low_ends, half_ends))
    assert f"behind λKL there, by {low} points {low_ends} and {half} {half_ends};" in text


def in_points(interval):
    """As the page shows an interval of the report, which counts the spread of test rows too."""
    mean, low, high = (f"{100 * end:.2f}" for end in (interval.mean, interval.low, interval.high))
    return f"{mean} points [{low}, {high}]"


def test_figures_on_histopathology_are_those_of_the_report():
    text = " ".join(PAGE.read_text().split())
    told = everyone(ROOT / "results", "histopathology", BAYESIAN)
    js_a, tuned = told["js_a"], told["lambda_kl"]

    def fewer(name):
        found = reduction(told[name], told["kl"], MISSED)
        mean, low, high = (f"{100 * end:.1f}" for end in (found.mean, found.low, found.high))
        return f"{mean} %", f"[{low}, {high}]"

    share, ends = fewer("js_g")
    assert f"JS-G misses {share} fewer positive patches than KL {ends}, JS-A" in text
    assert f"JS-A {' '.join(fewer('js_a'))}; published" in text
    share, ends = fewer("lambda_kl")
    assert f"λKL misses {share} fewer {ends}. KL's own" in text
    said = in_points(ahead(js_a, tuned)).replace("points", "points above λKL")
    assert f"In accuracy JS-A is {said}, which is undecided" in text
    said = in_points(ahead(js_a, tuned, AREA)).replace("points", "points above")
    below = in_points(ahead(tuned, told["js_g"], AREA)).replace("points", "below")
    assert f"it is {said}, and JS-G {below}." in text
    more = over_unmodified("js_g", 0.1).replace("points", "points more accurate than the latter")
    assert f"JS-G is {more}, and JS-A {over_unmodified('js_a', 0.1)}: undecided." in text
    more = over_unmodified("js_g", 0.3).replace("points", "points more accurate")
    less = over_unmodified("js_a", 0.3, -1).replace(" points", " less")
    assert f"At α = 0.3 both are undecided: JS-G is {more}, JS-A {less}." in text


def over_unmodified(name, alpha, sign=1):
    both = (
        everyone(ROOT / "results", "histopathology", (each,), None, f"alpha{alpha}")[each]
        for each in (name, f"unmodified_{name}")
    )
    return in_points(ahead(*list(both)[::sign]))


def test_figures_on_unseen_patients_are_what_the_results_give():
    text = " ".join(PAGE.read_text().split())
    told = {name: on_patches(f"{name}-by-patient") for name in BAYESIAN}
    right, area, share = (
        {name: values[place] for name, values in told.items()} for place in (0, 1, 4)
    )
    (mean, ends), *others = (
        above(right[name], right["kl"]) for name in ("js_a", "js_g", "lambda_kl")
    )
    assert f"JS-A is {mean} points more accurate than KL {ends}, " in text
    (first, first_ends), (second, second_ends) = others
    assert f"JS-G {first} {first_ends}, λKL {second} {second_ends};" in text
    mean, ends = above(right["js_a"], right["lambda_kl"])
    assert f"between JS-A and λKL it is undecided, {mean} {ends}." in text
    mean, ends = above(100 * area["js_a"], 100 * area["lambda_kl"])
    assert f"JS-A is {mean} points above λKL {ends}. Of the" in text
    less = {name: above(share["kl"], share[name]) for name in ("lambda_kl", "js_g", "js_a")}
    mean, ends = less["lambda_kl"]
    assert f"λKL misses {mean} points fewer than KL {ends};" in text
    assert f"JS-G {' '.join(less['js_g'])} and JS-A {' '.join(less['js_a'])} are undecided" in text


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
    falls = [(on_patches(name)[0] - on_patches(f"{name}-by-patient")[0]).mean() for name in FIVE]
    assert f"lose {min(falls):.1f} to {max(falls):.1f} points" in text
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
    for name, theirs, _, _, formulas, *_ in authors():
        assert abs(float(formulas) - float(theirs)) < 1  # "within a point"
        assert (float(formulas) < 11) is (name == "JS-G")  # "does not learn"


def test_the_page_says_where_a_figure_is_of_a_single_run():
    text = " ".join(PAGE.read_text().split())
    ones = {name: read("cifar100", name, 0.5) for name in ("kl", "js_g", "js_a")}
    assert {len(runs) for runs in ones.values()} == {1}
    kl, js_g, js_a = (accuracy(runs).item() for runs in ones.values())
    assert f"above KL, on the side that the paper reports, by {js_g - kl:.2f} and" in text
    assert f"and {js_a - kl:.2f} points. The deterministic" in text
    assert "One run per loss, on one fold (n = 1)" in text
    assert "for KL and JS-G alone (n = 1)" in text
    assert "as published" not in text
    assert "level" not in text.replace("noise level", "")


def test_the_extra_time_of_the_page_is_that_of_its_epochs():
    text = " ".join(PAGE.read_text().split())
    kl, js_g, js_a = (
        np.array([line["seconds"] for line in read("time-per-epoch", name)[0]["history"][1:]])
        for name in ("kl", "js_g", "js_a")
    )
    extra = [100 * (own / kl - 1) for own in (js_g, js_a)]
    (first, low, high), (second, *ends) = (
        (
            f"{x.mean():.1f}",
            *(f"{end:.1f}" for end in stats.t.interval(0.95, 4, x.mean(), stats.sem(x))),
        )
        for x in extra
    )
    assert first == second
    assert (
        f"JS-G takes {first} % longer than KL [{low}, {high}], and so does JS-A [{', '.join(ends)}]"
        in text
    )


def test_the_extra_time_by_samples_is_that_of_the_report():
    text = " ".join(PAGE.read_text().split())
    (extra,) = re.findall(r"a step takes ([0-9.]+) % longer than one of KL", text)
    report = (PAGE.parent / "report.md").read_text()  # which another test computes again
    assert f"extra time of JS-A by samples +{extra} [" in report


def test_the_gap_with_the_authors_formulas_is_that_of_the_report():
    text = " ".join(PAGE.read_text().split())
    told = everyone(ROOT / "results", "cifar10-authors", ("authors_kl", "js_a"), 0.9)
    below = in_points(ahead(told["authors_kl"], told["js_a"]))
    assert f"JS-A tests {below.replace('points', 'points below KL')}." in text


def test_every_plan_of_the_page_is_known():
    from reproduction.costs import costs
    from reproduction.images.plans import PLANS

    after = PAGE.read_text().split("## Running it again")[1].split("\n## ")[0]
    rows = [line for line in after.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in row.split("`")[1].split()}
    listed = {cost.plan for cost in costs(ROOT / "results")}
    assert named == {name for name in listed if name in PLANS}
