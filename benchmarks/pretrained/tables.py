"""Tables of the fine-tuned networks, computed from their result files and nothing else.

    python benchmarks/pretrained/tables.py [--results FOLDER] [--write]

Prints Markdown; with --write it becomes FOLDER/tables.md, which a test computes anew.
"""

import statistics
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.field.tables import Difference, Result, difference, show

HERE = Path(__file__).resolve().parent
FOLDS = 5
TITLES = {
    "plain": "plain fine-tuning",
    "last_kl": "last layer, λKL",
    "last_jsa": "last layer, JS-A",
    "all_kl": "all weights, λKL",
    "all_jsa": "all weights, JS-A",
    "all_jsg": "all weights, JS-G",
}
PAIRS = (
    *((name, "plain") for name in TITLES if name != "plain"),
    ("last_jsa", "last_kl"),
    ("all_jsa", "all_kl"),
    ("all_jsg", "all_kl"),
)
HEADINGS = {
    "patches": "Histopathology, unseen patients",
    "cifar": "CIFAR-10, 1,000 training images",
}


class Column(NamedTuple):
    """A score, how it is written, and which way is better."""

    title: str
    score: str
    form: str
    better: int  # +1 where larger is better


ACCURACY = Column("accuracy", "accuracy", ".4f", 1)
COMMON = (Column("NLL", "nll", ".4f", -1), Column("ECE", "ece", ".4f", -1))
COLUMNS = {
    "patches": (
        Column("tumours missed at 90 % specificity", "missed_equal", ".4f", -1),
        Column("missed at the cut of validation patients", "missed", ".4f", -1),
        Column("specificity at that cut", "specificity", ".4f", 1),
        Column("AUC", "auc", ".4f", 1),
        *COMMON,
        ACCURACY,
    ),
    "cifar": (ACCURACY, *COMMON, Column("AURC", "aurc", ".4f", -1)),
}


def table(results: list[Result], case: str) -> str:
    """One row per method: means over folds, ± the standard deviation between them."""
    own = {name: [r for r in results if r["method"] == name] for name in TITLES}
    rows = [
        [TITLES[name], str(len(found)), *(_cell(column, found) for column in COLUMNS[case])]
        for name, found in own.items()
        if found
    ]
    head = ["method", "folds", *(column.title for column in COLUMNS[case])]
    return markdown([head, *rows])


def _cell(column: Column, results: list[Result]) -> str:
    values = [result["scores"]["test"][column.score] for result in results]
    mean = format(statistics.mean(values), column.form)
    return f"{mean} ± {statistics.stdev(values):{column.form}}" if len(values) > 1 else mean


def verdict(found: Difference, better: int) -> str:
    """Ahead or behind where the interval excludes 0; `better` is +1 where larger is better."""
    if found.low <= 0 <= found.high:
        return "undecided"
    return "ahead" if found.mean * better > 0 else "behind"


def comparison(results: list[Result], case: str) -> str:
    """Paired differences over folds with Student's 95 % interval."""
    head = ["method", "against", "score", "difference", "95 % interval", "folds", "verdict"]
    rows = [
        [
            *(TITLES[name] for name in pair),
            column.title,
            f"{found.mean:+.4f}",
            f"{found.low:+.4f} … {found.high:+.4f}",
            str(found.seeds),
            verdict(found, column.better),
        ]
        for pair in PAIRS
        for column in COLUMNS[case]
        if column.score != "specificity"
        if (found := difference(results, *pair, column.score))
    ]
    return markdown([head, *rows]) if rows else ""


def missing(results: list[Result], case: str) -> str:
    """The runs of a case that are not there."""
    have = {(result["method"], result["seed"]) for result in results}
    wanted = [(name, number) for name in TITLES for number in range(FOLDS)]
    left = [f"{TITLES[name]}, fold {n}" for name, n in wanted if (name, n) not in have]
    return f"Not run: {'; '.join(left)}." if left else ""


def markdown(rows: list[list[str]]) -> str:
    """A table whose first row is its head."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def page(results: list[Result]) -> str:
    """Both cases."""
    parts = ["# A pretrained start, recomputed from the files beside this page"]
    for case, heading in HEADINGS.items():
        own = [result for result in results if result["case"] == case]
        if own:
            parts += [f"## {heading}, {own[0]['epochs']} epochs"]
            parts += [table(own, case), comparison(own, case), missing(own, case)]
    return "\n\n".join(part for part in parts if part) + "\n"


if __name__ == "__main__":
    show(__doc__, HERE, page)
