"""The page "What a Bayesian network buys you", computed from committed results.

    python -m benchmarks.field.page      # writes docs/concepts/what-it-buys.md and both tables.md

Its figures are drawn by tools/field.py when the documentation is built. A test computes the page
anew.
"""

import math
import statistics
from collections.abc import Callable
from pathlib import Path

from benchmarks.field import tables
from benchmarks.field.tables import COLUMNS, TITLES, Column, Difference, Result, difference
from benchmarks.pretrained import tables as pretrained
from benchmarks.pretrained.tables import markdown, verdict

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "concepts" / "what-it-buys.md"
FIELD, PRETRAINED = (ROOT / "benchmarks" / name / "results" for name in ("field", "pretrained"))
HEADINGS = {
    "clean": "Clean images",
    "images1000": "1,000 training images",
    "noise40": "40 % wrong labels",
    "images5000": "5,000 training images",
    "noise20": "20 % wrong labels",
}
START = "A pretrained start"
SEEDS = {"clean": 3, "images1000": 5, "noise40": 5}  # wanted; 3 of the other cases
SHOWN = [name for name in TITLES if not name.endswith("_mean")]
OURS = [name for name in SHOWN if name.startswith(("kl", "jsg", "jsa"))]
RIVALS = ("sgd", "dropout", "swag", "laplace", "ivon", "kl_natural")
WANTED = [name for name in SHOWN if not name.startswith("ensemble") and name != "kl"]
# What is compared, what it is called there, and which way is better.
BETTER = {
    "accuracy, %": ("accuracy, points", 1),
    "NLL": ("NLL", -1),
    "ECE": ("ECE", -1),
    "AURC": ("AURC", -1),
    "AUROC CIFAR-100": ("AUROC CIFAR-100", 1),
    "shift: NLL": ("NLL under shift", -1),
}
WORDS = {"ahead": "better", "behind": "worse", "undecided": ""}
COMPARED = [column for column in COLUMNS if column.title in BETTER]
IN_TABLE = [*COMPARED, next(column for column in COLUMNS if column.title == "s per epoch")]
INTRO = """# What a Bayesian network buys you

This page compares one Bayesian network with other ways to get uncertainty, wins and losses alike.
ResNet-18 learns CIFAR-10 for the same number of epochs with every method, each with the best of
six settings on validation images. In the tables ± is the standard deviation between seeds; where
methods are compared, a difference is followed by the half width of its paired 95 % interval, and
the word *better* or *worse* is there only if the interval excludes 0. That happens by chance in one
of twenty comparisons, and there are many here. The best of several is picked on the same test
scores, so under "In short" its intervals are wider (Bonferroni): 98.3 % for the best of our three
divergences, 99.2 % for the best of six ways of fine-tuning. The column "seeds" or "folds" of each
table says how many differences an interval rests on.

Every number is computed from committed results, and a test computes them again. More columns are in
`benchmarks/field/results/tables.md` and `benchmarks/pretrained/results/tables.md`. The settings of
JS-G are those of `bayesdiv train cifar10 --net resnet18 --out runs/first`;
[Train a Bayesian ResNet](../howto/resnet.md) explains them."""
NOTES = {
    "clean": """JS-A is bounded: far from the prior it hardly pulls at all, so it cannot do what a
weight decay does for such a network. KL and JS-G pull harder the farther away a weight is.""",
    "noise40": """Test labels are right where 40 % of those learned are wrong. So every method is
too cautious on test images, and whatever makes a network surer lowers NLL and ECE here. Accuracy,
AURC and AUROC do not depend on that.""",
}
COLUMNS_EXPLAINED = """NLL, ECE and AURC measure how far to trust a probability, and are better when
small: the negative log-likelihood of test labels, the calibration error, and the error that is left
when unsure images are set aside, averaged over how many are. AUROC CIFAR-100 is the chance that the
network is less sure of an image from CIFAR-100 than of one from CIFAR-10. NLL under shift is over
14 corruptions at five severities. Seconds per epoch are measured alone on one NVIDIA H200."""


def of_case(results: list[Result], case: str) -> list[Result]:
    """Results of ResNet-18 on one case."""
    return [r for r in results if (r["case"], r["net"]) == (case, "resnet18")]


def signed(value: float, form: str) -> str:
    """With its sign, and a minus as long as a plus."""
    return format(value, f"+{form}").replace("-", "−")


def compared(found: Difference | None, form: str, better: int) -> str:
    """A difference, the half width of its interval, and what it says."""
    if found is None:
        return "–"
    half = format((found.high - found.low) / 2, form)
    return f"{signed(found.mean, form)} ± {half} {WORDS[verdict(found, better)]}".strip()


def section(results: list[Result], case: str) -> str:
    """Figures, tables and what is missing, of one case."""
    own = of_case(results, case)
    shown = [result for result in own if result["method"] in SHOWN]
    parts = [f"## {HEADINGS[case]}", f"{own[0]['epochs']} epochs. {_chosen_on(case, own)}".strip()]
    parts += [figures([f"field-{case}-{name}" for name in DRAWN])]
    parts += [tables.table(shown, IN_TABLE), comparison(own), NOTES.get(case, "")]
    parts += [without_draws(own)] if case.startswith("noise") else []
    parts += [missing(own, case)]
    return "\n\n".join(part for part in parts if part)


def _chosen_on(case: str, results: list[Result]) -> str:
    """Which of the methods that were run had no search of their own in this case."""
    tuned = {file.name.split("-")[3] for file in FIELD.glob(f"tune-{case}-resnet18-*.json")}
    run = {result["method"] for result in results}
    left = [TITLES[name] for name in WANTED if name in run and name not in tuned]
    return "" if not left else f"Settings chosen on clean images: {', '.join(left)}."


def figures(names: list[str]) -> str:
    """Drawings, two beside each other where there is room."""
    places = [f"![{TITLES_DRAWN[name]}, by method](../figures/{name}.svg)" for name in names]
    inside = "\n\n".join(f'<div markdown="1">\n\n{place}\n\n</div>' for place in places)
    return f'<div class="side" markdown="1">\n\n{inside}\n\n</div>'


DRAWN = {
    "nll": ("NLL", "NLL"),
    "ece": ("ECE", "ECE"),
    "far": ("AUROC CIFAR-100", "AUROC for telling CIFAR-100 images apart"),
    "shift": ("shift: NLL", "NLL under corruptions"),
}
PATCHES = {
    "missed": ("missed_equal", "Tumours missed at 90 % specificity"),
    "nll": ("nll", "NLL on unseen patients"),
}
TITLES_DRAWN = {
    **{f"field-{case}-{name}": title for case in HEADINGS for name, (_, title) in DRAWN.items()},
    **{f"pretrained-{name}": title for name, (_, title) in PATCHES.items()},
}


def drawings() -> dict[str, dict[str, list[float]]]:
    """The values of every method by its title, for every drawing by its name."""
    field, tuned = tables.read(FIELD), tables.read(PRETRAINED)
    found = {
        f"field-{case}-{name}": points(of_case(field, case), column(name).value, SHOWN, TITLES)
        for case in HEADINGS
        for name in DRAWN
    }
    patches = [result for result in tuned if result["case"] == "patches"]
    for name, (score, _) in PATCHES.items():
        found[f"pretrained-{name}"] = points(
            patches,
            lambda result, score=score: result["scores"]["test"][score],
            list(pretrained.TITLES),
            pretrained.TITLES,
        )
    return {name: values for name, values in found.items() if values}


def column(name: str) -> Column:
    """The column of a table that a drawing shows."""
    return next(own for own in COLUMNS if own.title == DRAWN[name][0])


def points(
    results: list[Result],
    value: Callable[[Result], float | None],
    methods: list[str],
    titles: dict[str, str],
) -> dict[str, list[float]]:
    """The values of every method that has some, by its title."""
    found = {
        titles[name]: [v for r in results if r["method"] == name if (v := value(r)) is not None]
        for name in methods
    }
    return {title: values for title, values in found.items() if values}


def comparison(results: list[Result]) -> str:
    """Every method of ours against every rival: paired differences in all that is compared."""
    rows = [["ours", "against", "seeds", *(BETTER[own.title][0] for own in COMPARED)]]
    for method in OURS:
        for other in (rival for rival in RIVALS if rival != method):
            found = [difference(results, method, other, own) for own in COMPARED]
            if found[0]:
                cells = [
                    compared(one, own.form, BETTER[own.title][1])
                    for one, own in zip(found, COMPARED, strict=True)
                ]
                rows.append([TITLES[method], TITLES[other], str(found[0].seeds), *cells])
    return markdown(rows) if len(rows) > 1 else ""


def without_draws(results: list[Result]) -> str:
    """What the mean networks score, which are surer, and how hard the weights were held."""
    mean, decay = _means(results), {r["method"]: r["settings"].get("decay") for r in results}
    ours = [name for name in OURS if f"{name}_mean" in mean]
    scores = [f"{mean[f'{name}_mean']:.3f} ({_short(name)})" for name in ours]
    held = [f"{decay[name]:g} ({_short(name)})" for name in ("sgd", *ours) if decay.get(name)]
    return (
        f"The mean networks, without weight draws, are surer: NLL {_listed(scores)}. The search "
        f"chose a weight decay, or a prior that equals one, of {_listed(held)}: the strongest in "
        "the grid of each, so stronger ones may serve better."
    )


def _short(method: str) -> str:
    return TITLES[method].removesuffix(", Natural")


def in_short(results: list[Result], case: str) -> str:
    """The best of ours against SGD, then what is decided against the others, in a few lines."""
    mean = _means(results)
    ours = {name: mean[name] for name in OURS if name in mean}
    if not ours or "sgd" not in mean:
        return ""
    best = min(ours, key=ours.__getitem__)
    title = _short(best)
    against = {
        name: difference(results, best, "sgd", name, picked_from=len(ours))
        for name in ("nll", "ece")
    }
    if against["nll"] is None or against["ece"] is None:
        return ""
    lines = [
        f"- **{HEADINGS[case]}**, {against['nll'].seeds} seeds. Our best divergence is "
        f"{title}: NLL {ours[best]:.3f} where SGD "
        f"has {mean['sgd']:.3f} ({compared(against['nll'], '.3f', -1)}), ECE "
        f"{_mean(results, best, 'ece'):.3f} where SGD has {_mean(results, 'sgd', 'ece'):.3f} "
        f"({compared(against['ece'], '.3f', -1)}), accuracy "
        f"{100 * _mean(results, best, 'accuracy'):.1f} % where SGD has "
        f"{100 * _mean(results, 'sgd', 'accuracy'):.1f} %{_cost(results, best)}."
    ]
    pairs = [(best, rival) for rival in RIVALS if rival not in (best, "sgd")]
    others = [name for name in ours if name != best]
    pairs += [(name, "sgd") for name in others]
    # What a JS divergence is worth beyond a factor in front of KL is said wherever KL wins too.
    pairs += [(name, best) for name in others if best == "kl_natural"]
    for name, other in pairs:
        count = len(ours) if best in (name, other) else 1
        said = {
            own.title: difference(results, name, other, own, picked_from=count) for own in COMPARED
        }
        for key, word in (("ahead", "better than"), ("behind", "worse than")):
            names = [
                BETTER[title][0].removesuffix(", points")
                for title, found in said.items()
                if found and verdict(found, BETTER[title][1]) == key
            ]
            one, rival = _short(name), _short(other)
            lines += [f"- {one} is {word} {rival} in {_listed(names)}."] if names else []
    for size in ("3", "5"):
        if (nll := mean.get(f"ensemble{size}", math.inf)) < ours[best]:
            runs = sum(result["method"] == f"ensemble{size}" for result in results)
            said = "one run" if runs == 1 else f"{runs} runs"
            lines += [f"- {size} SGD networks together have a lower NLL still: {nll:.3f} ({said})."]
    return "\n".join(lines)


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _mean(results: list[Result], method: str, score: str) -> float:
    return statistics.mean(r["scores"]["test"][score] for r in results if r["method"] == method)


def _means(results: list[Result]) -> dict[str, float]:
    """The mean NLL of every method."""
    methods = dict.fromkeys(result["method"] for result in results)
    return {method: _mean(results, method, "nll") for method in methods}


def _cost(results: list[Result], best: str) -> str:
    """How long an epoch takes, where it was measured."""
    took = {
        method: [own for r in results if r["method"] == method and (own := r["seconds_per_epoch"])]
        for method in (best, "sgd")
    }
    if not all(took.values()):
        return ""
    ratio = statistics.mean(took[best]) / statistics.mean(took["sgd"])
    once = all(len(set(times)) == 1 for times in took.values())
    return f"; an epoch takes {ratio:.2f} times as long{' (measured once)' if once else ''}"


def missing(results: list[Result], case: str) -> str:
    """The runs that are wanted and not there."""
    seeds = SEEDS.get(case, 3)
    have = {(result["method"], result["seed"]) for result in results}
    lacks = {
        TITLES[method]: [str(seed) for seed in range(seeds) if (method, seed) not in have]
        for method in WANTED
    }
    left = [f"{title} (seeds {', '.join(own)})" for title, own in lacks.items() if own]
    return f"**Not run.** {'; '.join(left)}." if left else ""


def fine_tuned(results: list[Result]) -> str:
    """The section on a pretrained start."""
    parts = [f"## {START}", "EfficientNet-lite0 with ImageNet weights, fine-tuned in six ways."]
    for case, heading in pretrained.HEADINGS.items():
        own = [result for result in results if result["case"] == case]
        if own:
            columns = pretrained.COLUMNS[case]
            parts += [f"### {heading}", f"{own[0]['epochs']} epochs."]
            parts += [figures([f"pretrained-{name}" for name in PATCHES])] * (case == "patches")
            parts += [pretrained.table(own, case)]
            rows = [["method", "against", *(c.title for c in columns if c.score != "specificity")]]
            rows += [
                [
                    *(pretrained.TITLES[name] for name in pair),
                    *(
                        compared(difference(own, *pair, c.score), ".3f", c.better)
                        for c in columns
                        if c.score != "specificity"
                    ),
                ]
                for pair in pretrained.PAIRS
            ]
            parts += [markdown(rows), pretrained.missing(own, case)]
    return "\n\n".join(part for part in parts if part)


def tuned_in_short(results: list[Result]) -> str:
    """Which way of fine-tuning misses the fewest tumours, against plain tuning and against KL."""
    own = [result for result in results if result["case"] == "patches"]
    missed = {name: _mean(own, name, "missed_equal") for name in {r["method"] for r in own}}
    if len(missed) < len(pretrained.TITLES):
        return ""
    best = min(missed, key=missed.__getitem__)
    plain, kl = (
        compared(difference(own, best, other, "missed_equal", picked_from=len(missed)), ".3f", -1)
        for other in ("plain", "all_kl")
    )
    folds = sum(result["method"] == best for result in own)
    return (
        f"- **{START}**, {folds} folds. On patches of unseen patients the fewest tumours are "
        f"missed at 90 % "
        f"specificity by {pretrained.TITLES[best]}: {missed[best]:.3f}, where plain fine-tuning "
        f"misses {missed['plain']:.3f} ({plain}) and λKL on all weights {missed['all_kl']:.3f} "
        f"({kl})."
    )


def page(field: list[Result], tuned: list[Result]) -> str:
    """The whole page."""
    run = [case for case in HEADINGS if of_case(field, case)]
    order = [*(case for case in SEEDS if case in run), *(case for case in run if case not in SEEDS)]
    short = [in_short(of_case(field, case), case) for case in order]
    short += [tuned_in_short(tuned)] if tuned else []
    parts = [INTRO, "## In short", "\n".join(line for line in short if line), COLUMNS_EXPLAINED]
    parts += [section(field, case) for case in order]
    left = [HEADINGS[case] for case in HEADINGS if case not in run]
    parts += [fine_tuned(tuned)] if tuned else []
    started = {result["case"] for result in tuned}
    left += [
        f"{START}: {title}" for case, title in pretrained.HEADINGS.items() if case not in started
    ]
    if left:
        parts.append("\n".join(["## Not run yet", "", *(f"- {title}" for title in left)]))
    return "\n\n".join(part for part in parts if part) + "\n"


def main() -> None:
    field, tuned = tables.read(FIELD), tables.read(PRETRAINED)
    for folder, results, text in (
        (FIELD, field, tables.page),
        (PRETRAINED, tuned, pretrained.page),
    ):
        if results:
            (folder / "tables.md").write_text(text(results))
    PAGE.write_text(page(field, tuned))


if __name__ == "__main__":
    main()
