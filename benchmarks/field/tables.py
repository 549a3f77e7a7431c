"""Tables of the harness, computed from its result files and nothing else.

    python benchmarks/field/tables.py [--results FOLDER] [--write]

Prints Markdown; with --write it becomes FOLDER/tables.md, which a test computes anew.
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
TITLES = {
    "sgd": "SGD",
    "dropout": "MC dropout",
    "ensemble3": "ensemble of 3 SGD",
    "ensemble5": "ensemble of 5 SGD",
    "swag": "SWAG",
    "laplace": "last-layer Laplace",
    "ivon": "IVON",
    "kl": "λKL, SGD and Adam",
    "kl_natural": "λKL, Natural",
    "jsg_natural": "JS-G, Natural",
    "jsa_natural": "JS-A, Natural",
}
for _name in [name for name in TITLES if name.startswith(("kl", "jsg", "jsa"))]:
    TITLES[f"{_name}_mean"] = f"{TITLES[_name]}, mean network"
Result = dict[str, Any]


class Column(NamedTuple):
    """A number of a result, and how it is written."""

    title: str
    value: Callable[[Result], float | None]
    form: str


def _test(name: str) -> Callable[[Result], float | None]:
    return lambda result: result["scores"]["test"][name]


def _shift(name: str) -> Callable[[Result], float | None]:
    def mean(result: Result) -> float | None:
        kinds = result["scores"]["shift"].values()
        values = [severity[name] for kind in kinds for severity in kind]
        return statistics.mean(values) if values else None

    return mean


def _far(name: str) -> Callable[[Result], float | None]:
    return lambda result: result["scores"]["far"].get(name)


COLUMNS = (
    Column("accuracy, %", lambda result: 100 * result["scores"]["test"]["accuracy"], ".2f"),
    Column("NLL", _test("nll"), ".4f"),
    Column("ECE", _test("ece"), ".4f"),
    Column("Brier", _test("brier"), ".4f"),
    Column("AURC", _test("aurc"), ".4f"),
    Column("AUROC CIFAR-100", _far("cifar100"), ".4f"),
    Column("AUROC MNIST", _far("mnist"), ".4f"),
    Column("AUROC Fashion", _far("fashion"), ".4f"),
    Column("shift: accuracy, %", lambda r: _percent(_shift("accuracy")(r)), ".2f"),
    Column("shift: NLL", _shift("nll"), ".4f"),
    Column("s per epoch", lambda result: result["seconds_per_epoch"], ".2f"),
    Column("MiB", lambda result: result["memory_mib"], ".0f"),
)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def read(folder: Path) -> list[Result]:
    """Every result of a final run, with the time that was measured alone where there is one."""
    final, timed = (
        [json.loads(file.read_text()) for file in sorted(folder.glob(f"{stage}-*.json"))]
        for stage in ("final", "time")
    )
    alone = {_which(own): own["seconds_per_epoch"] for own in timed}
    alone |= {
        (case, net, f"ensemble{size}"): size * seconds
        for (case, net, method), seconds in alone.items()
        for size in (3, 5)
        if method == "sgd"
    }
    return [
        result | {"seconds_per_epoch": alone.get(_which(result), result["seconds_per_epoch"])}
        for result in final
    ]


def _which(result: Result) -> tuple[str, str, str]:
    """What a time belongs to: the mean network is trained as the whole posterior is."""
    return result["case"], result.get("net", ""), result["method"].removesuffix("_mean")


def table(results: Iterable[Result], columns: Sequence[Column] = COLUMNS) -> str:
    """One row per method, means over seeds, ± the standard deviation between them."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result["method"], []).append(result)
    head = ["method", "seeds", *(column.title for column in columns)]
    rows = [
        [TITLES[name], str(len(groups[name])), *(_cell(column, groups[name]) for column in columns)]
        for name in TITLES
        if name in groups
    ]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(column: Column, results: list[Result]) -> str:
    values = [value for result in results if (value := column.value(result)) is not None]
    if not values:
        return "–"
    mean = format(statistics.mean(values), column.form)
    spread = len(set(values)) > 1  # a time that was measured once has none
    return f"{mean} ± {statistics.stdev(values):{column.form}}" if spread else mean


class Difference(NamedTuple):
    """Of two methods over the seeds that both have: its mean, an interval, what it says."""

    mean: float
    low: float
    high: float
    seeds: int

    @property
    def verdict(self) -> str:
        """Ahead or behind where the interval excludes 0, in a metric that is better when small."""
        if self.high < 0:
            return "ahead"
        return "behind" if self.low > 0 else "undecided"


def difference(
    results: list[Result], method: str, other: str, metric: str | Column, *, picked_from: int = 1
) -> Difference | None:
    """Paired over seeds, with Student's interval; None with fewer than two seeds in common.

    The interval is of 95 %. If one of them was picked as the best of several on these same scores,
    it is wider, so that it holds whichever is picked (Bonferroni).
    """
    from scipy.stats import t

    read = metric.value if isinstance(metric, Column) else _test(metric)
    value = {
        (result["method"], result["seed"]): own
        for result in results
        if result["method"] in (method, other) and (own := read(result)) is not None
    }
    seeds = [seed for name, seed in value if name == method and (other, seed) in value]
    if len(seeds) < 2:
        return None
    gaps = [value[method, seed] - value[other, seed] for seed in seeds]
    mean = statistics.mean(gaps)
    half = (
        t.ppf(1 - 0.025 / picked_from, len(gaps) - 1)
        * statistics.stdev(gaps)
        / math.sqrt(len(gaps))
    )
    return Difference(mean, mean - half, mean + half, len(gaps))


def comparison(results: list[Result]) -> str:
    """Every method of ours against SGD, IVON, SWAG and λKL in NLL, ECE and AURC."""
    lines = ["| method | against | metric | difference | 95 % interval | seeds | verdict |"]
    lines.append("|" + "---|" * 7)
    ours = [name for name in TITLES if name.startswith(("kl", "jsg", "jsa"))]
    ours = [name for name in ours if not name.endswith("_mean")]
    for method in ours:
        for other in ("sgd", "ivon", "swag", "kl_natural"):
            for metric in ("nll", "ece", "aurc") if other != method else ():
                found = difference(results, method, other, metric)
                if found:
                    interval = f"{found.low:+.4f} … {found.high:+.4f}"
                    cells = [TITLES[method], TITLES[other], metric, f"{found.mean:+.4f}"]
                    cells += [interval, str(found.seeds), found.verdict]
                    lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) if len(lines) > 2 else ""


def page(results: list[Result]) -> str:
    """All cases and networks."""
    parts = ["# Results of the field, recomputed from the files beside this page"]
    for case, net in dict.fromkeys((result["case"], result["net"]) for result in results):
        own = [result for result in results if (result["case"], result["net"]) == (case, net)]
        parts += [f"## {case}, {net}, {own[0]['epochs']} epochs", table(own), comparison(own)]
    return "\n\n".join(part for part in parts if part) + "\n"


def show(about: str, home: Path, page: Callable[[list[Result]], str]) -> None:
    """Print the page of the results in a folder, and write it beside them if asked to."""
    parser = argparse.ArgumentParser(description=about.split("\n")[0])
    parser.add_argument("--results", type=Path, default=home / "results")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    text = page(read(arguments.results))
    if arguments.write:
        (arguments.results / "tables.md").write_text(text)
    print(text)


if __name__ == "__main__":
    show(__doc__, HERE, page)
