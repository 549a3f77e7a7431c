"""The page "What a Bayesian network buys you", computed from committed results.

    python -m benchmarks.field.page      # writes docs/concepts/what-it-buys.md and both tables.md

Its figures are drawn by tools/field.py when the documentation is built. A test computes the page
anew.
"""

import statistics
from pathlib import Path

from benchmarks.field import tables
from benchmarks.field.tables import COLUMNS, TITLES, Column, Result, difference
from benchmarks.pretrained import tables as pretrained
from benchmarks.pretrained.tables import verdict

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
SEEDS = {"clean": 3, "images1000": 5, "noise40": 5}  # wanted; the other cases are extra
SHOWN = [name for name in TITLES if not name.endswith("_mean")]
OURS = [name for name in SHOWN if name.startswith(("kl", "jsg", "jsa"))]
RIVALS = ("sgd", "swag", "ivon", "kl_natural")
WANTED = [name for name in SHOWN if not name.startswith("ensemble")]
# What is compared, and which way is better.
BETTER = {
    "accuracy, %": 1,
    "NLL": -1,
    "ECE": -1,
    "AURC": -1,
    "AUROC CIFAR-100": 1,
    "shift: NLL": -1,
}
# What a difference is called in a sentence, with its unit, where the column's title does not fit.
SAID = {
    "accuracy, %": ("accuracy", " points"),
    "AUROC CIFAR-100": ("AUROC for CIFAR-100", ""),
    "shift: NLL": ("NLL under shift", ""),
}
INTRO = """# What a Bayesian network buys you

This page compares one Bayesian network with other ways to get uncertainty, wins and losses alike.
ResNet-18 learns CIFAR-10 for the same number of epochs with every method; for each method the best
of six settings was chosen on validation images. Every number here is computed from the committed
results in `benchmarks/field` and `benchmarks/pretrained`, and a test computes them again. ± is the
standard deviation between seeds; a difference counts as a win or a loss only if its paired 95 %
interval excludes 0. Negative differences are better for NLL, ECE and AURC, positive ones for
accuracy and AUROC.

The settings of JS-G are those of `bayesdiv train cifar10 --net resnet18 --out runs/first`;
[Train a Bayesian ResNet](../howto/resnet.md) explains them."""


def of_case(results: list[Result], case: str) -> list[Result]:
    """Results of ResNet-18 on one case."""
    return [r for r in results if (r["case"], r["net"]) == (case, "resnet18")]


def section(results: list[Result], case: str) -> str:
    """Figures, table, differences and what is missing, of one case."""
    own = of_case(results, case)
    shown = [result for result in own if result["method"] in SHOWN]
    parts = [f"## {HEADINGS[case]}", f"{own[0]['epochs']} epochs.", figures(case)]
    parts += [tables.table(shown), verdicts(own), missing(own, case)]
    return "\n\n".join(part for part in parts if part)


def figures(case: str) -> str:
    """Four drawings, two beside each other where there is room."""
    places = [f"![{title}, by method](../figures/field-{case}-{name}.svg)" for name, title in DRAWN]
    inside = "\n\n".join(f'<div markdown="1">\n\n{place}\n\n</div>' for place in places)
    return f'<div class="side" markdown="1">\n\n{inside}\n\n</div>'


DRAWN = (
    ("nll", "NLL"),
    ("ece", "ECE"),
    ("far", "AUROC for telling CIFAR-100 images apart"),
    ("shift", "NLL under corruptions"),
)
_COLUMNS = {"nll": "NLL", "ece": "ECE", "far": "AUROC CIFAR-100", "shift": "shift: NLL"}


def column(name: str) -> Column:
    """The column of a table that a drawing shows."""
    return next(own for own in COLUMNS if own.title == _COLUMNS[name])


def points(results: list[Result], case: str, name: str) -> dict[str, list[float]]:
    """The values of every method, by its title."""
    found: dict[str, list[float]] = {}
    for result in of_case(results, case):
        value = column(name).value(result)
        if result["method"] in SHOWN and value is not None:
            found.setdefault(TITLES[result["method"]], []).append(value)
    order = [TITLES[method] for method in SHOWN]
    return {title: found[title] for title in order if title in found}


def verdicts(results: list[Result]) -> str:
    """What is decided, in three lists."""
    lists: dict[str, list[str]] = {"ahead": [], "behind": [], "undecided": []}
    for method in OURS:
        for other in RIVALS:
            for own in COLUMNS if other != method else ():
                found = difference(results, method, other, own) if own.title in BETTER else None
                if found:
                    said, unit = SAID.get(own.title, (own.title, ""))
                    mean, low, high = (
                        f"{value:+{own.form}}".replace("-", "−")
                        for value in (found.mean, found.low, found.high)
                    )
                    line = f"{TITLES[method]} against {TITLES[other]}: {said} {mean}{unit} "
                    line += f"({low} to {high}, {found.seeds} seeds)"
                    lists[verdict(found, BETTER[own.title])].append(line)
    titles = {"ahead": "Wins", "behind": "Losses", "undecided": "Undecided"}
    parts = [
        "\n".join([f"**{titles[key]}**", "", *(f"- {line}" for line in own)])
        for key, own in lists.items()
        if own
    ]
    parts += [beside_ensembles(results)]
    return "\n\n".join(part for part in parts if part)


def beside_ensembles(results: list[Result]) -> str:
    """Where one network of ours stands beside several of SGD, which cost as many times more."""
    mean = {
        method: statistics.mean(own)
        for method in [*OURS, "ensemble3", "ensemble5"]
        if (own := [r["scores"]["test"]["nll"] for r in results if r["method"] == method])
    }
    ours = {method: value for method, value in mean.items() if method in OURS}
    if not ours:
        return ""
    best = min(ours, key=ours.__getitem__)
    said = [
        f"{TITLES[name]} has {mean[name]:.4f}, {'above' if mean[name] > ours[best] else 'below'} it"
        for name in ("ensemble3", "ensemble5")
        if name in mean
    ]
    start = f"Our smallest NLL is {ours[best]:.4f} ({TITLES[best]})"
    return f"{start}; {'; '.join(said)}." if said else f"{start}."


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
    inside = pretrained.page(results).split("\n", 2)[2].replace("## ", "### ")
    return f"## {START}\n\nEfficientNet-lite0 with ImageNet weights.\n\n{inside.strip()}"


def page(field: list[Result], tuned: list[Result]) -> str:
    """The whole page."""
    run = [case for case in HEADINGS if of_case(field, case)]
    order = [*(case for case in SEEDS if case in run), *(case for case in run if case not in SEEDS)]
    parts = [INTRO, *(section(field, case) for case in order)]
    left = [HEADINGS[case] for case in SEEDS if case not in run]
    if tuned:
        parts.append(fine_tuned(tuned))
    else:
        left.append(START)
    if left:
        parts.append("\n".join(["## Not run yet", "", *(f"- {title}" for title in left)]))
    return "\n\n".join(parts) + "\n"


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
