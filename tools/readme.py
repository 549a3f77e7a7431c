"""The picture, the table and the counts of the README; `python -m tools.readme` makes them again.

The table compares `BayesianRegressor()`, with nothing set, to other models on the standard splits,
from the committed results in benchmarks/tables/uci. Its intervals are those of the reproduction.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.field.tables import Difference, difference, read
from reproduction.catalogue import CATALOGUE
from reproduction.intervals import Interval, student
from reproduction.page import counted, standing
from tools.figures import plain_and_bayesian

ROOT = Path(__file__).resolve().parents[1]
FIELD = ROOT / "benchmarks" / "field" / "results"
UCI = ROOT / "benchmarks" / "tables" / "uci"
PICTURE = ROOT / "docs" / "images" / "plain-and-bayesian.svg"
OTHERS = {"MC dropout": "dropout", "random forest": "forest", "gradient boosting": "boosting"}
TITLES = {"boston_housing": "Boston housing", "energy_heating": "energy", "wine_red": "wine"}


def compared(name: str, key: str) -> tuple[float, dict[str, Interval]]:
    """Our mean on a table, and by how much we are better than each of the others.

    Args:
        name: of the table.
        key: nll, or rmse, whose differences are shares of the other's in per cent.
    """
    rows = json.loads((UCI / f"{name}.json").read_text())
    dropout = json.loads((UCI / "mc_dropout.json").read_text())["sets"][name]
    found = {m: {r["split"]: r[key] for r in rows if r["method"] == m} for m in _METHODS}
    found["dropout"] = dict(enumerate(dropout[key]))
    ours = found["bayesdiv"]
    overlap = dropout["test_rows"] / (dropout["rows"] - dropout["test_rows"])
    leads = {title: _lead(ours, found[other], key, overlap) for title, other in OTHERS.items()}
    return sum(ours.values()) / len(ours), leads


_METHODS = ("bayesdiv", "forest", "boosting")


def _lead(ours: dict[int, float], theirs: dict[int, float], key: str, overlap: float) -> Interval:
    """By how much they are above us, over the splits that both have."""
    splits = [split for split in ours if split in theirs]
    lead = student([theirs[k] - ours[k] for k in splits], overlap=overlap)
    mean = sum(theirs[k] for k in splits) / len(splits)
    return lead.times(100 / mean) if key == "rmse" else lead


def names() -> list[str]:
    """The tables."""
    return list(json.loads((UCI / "mc_dropout.json").read_text())["sets"])


def table() -> str:
    """NLL on every table, with the leads over others and their intervals."""
    lines = ["| data set | splits | NLL | " + " | ".join(f"vs {one}" for one in OTHERS) + " |"]
    lines.append("|---" * (len(OTHERS) + 3) + "|")
    for name in names():
        ours, leads = compared(name, "nll")
        title = TITLES.get(name, name.replace("_", " "))
        cells = [f"{ours:.2f}".replace("-", "−"), *map(_cell, leads.values())]
        (count,) = {lead.n for lead in leads.values()}
        lines.append("| " + " | ".join([title, str(count), *cells]) + " |")
    return "\n".join(lines)


def _cell(lead: Interval) -> str:
    text = lead.text(2).replace("-", "−")
    return f"**{text}**" if lead.low > 0 else text


def decided(key: str, other: str) -> tuple[int, int]:
    """On how many tables we are ahead of the other beyond the interval, and behind."""
    leads = [compared(name, key)[1][other] for name in names()]
    return sum(lead.low > 0 for lead in leads), sum(lead.high < 0 for lead in leads)


def images() -> str:
    """What one network with JS-G gives on clean CIFAR-10, and what others give."""
    results = [r for r in read(FIELD) if (r["case"], r["net"]) == ("clean", "resnet18")]
    # JS-G is the best of our divergences on these same images, which the wider interval allows for.
    lead, wider = (
        difference(results, "jsg_natural", "sgd", "nll", picked_from=count) for count in (1, 3)
    )
    if lead is None or wider is None:
        raise ValueError("the README needs two seeds of SGD and of JS-G in common, there are fewer")

    def mean(method: str, value: Callable[[dict[str, Any]], float]) -> float:
        return fmean(value(result) for result in results if result["method"] == method)

    def score(method: str, key: str) -> float:
        return mean(method, lambda result: result["scores"]["test"][key])

    def scores(method: str) -> str:
        of = {key: score(method, key) for key in ("accuracy", "nll", "ece")}
        return f"NLL {of['nll']:.3f}, ECE {of['ece']:.3f}, accuracy {100 * of['accuracy']:.1f} %"

    cost = mean("jsg_natural", _epoch) / mean("sgd", _epoch)
    runs = sum(result["method"] == "ensemble3" for result in results)
    ensembles = "one run" if runs == 1 else f"{runs} runs"
    shifted = {name: mean(name, _shifted) for name in ("jsg_natural", "sgd", "swag")}
    return (
        f"Bayesian with JS-G: {scores('jsg_natural')}. Plain SGD: {scores('sgd')}. The lead in NLL "
        f"is {-lead.mean:.3f} over {lead.seeds} seeds (95 % interval {_ends(lead)}; {_ends(wider)} "
        f"if it allows for JS-G being the best of three divergences here). An epoch took "
        f"{cost:.2f} times as long, measured once. Three SGD networks together do better at three "
        f"times the cost (NLL {score('ensemble3', 'nll'):.3f}, {ensembles}), and on corrupted "
        f"images SWAG is ahead (NLL {shifted['swag']:.2f}; JS-G {shifted['jsg_natural']:.2f}, SGD "
        f"{shifted['sgd']:.2f})."
    )


def _ends(lead: Difference) -> str:
    """The interval of how far the first lies below the second."""
    return f"[{-lead.high:.3f}, {-lead.low:.3f}]".replace("-", "−")


def _epoch(result: dict[str, Any]) -> float:
    return float(result["seconds_per_epoch"])


def _shifted(result: dict[str, Any]) -> float:
    kinds = result["scores"]["shift"].values()
    return fmean(severity["nll"] for kind in kinds for severity in kind)


def verdicts(results: Path) -> str:
    """How many items of the paper are reproduced."""
    return counted([standing(entry, results) for entry in CATALOGUE])


def parts() -> dict[str, str]:
    """What is between the marks of the README."""
    uci = f"\n\n{table()}\n\n"
    return {"uci": uci, "images": images(), "verdicts": verdicts(ROOT / "results")}


def filled(text: str, parts: dict[str, str]) -> str:
    """A page with these parts between their marks.

    Examples:
        >>> filled("<!-- a -->old<!-- /a -->", {"a": "new"})
        '<!-- a -->new<!-- /a -->'
    """
    for mark, new in parts.items():
        around = re.compile(rf"(<!-- {mark} -->).*?(<!-- /{mark} -->)", re.S)
        text = around.sub(lambda found, new=new: f"{found[1]}{new}{found[2]}", text)
    return text


def main() -> None:
    """Make the picture and fill the README."""
    PICTURE.write_text(plain_and_bayesian(), encoding="utf-8")
    page = ROOT / "README.md"
    page.write_text(filled(page.read_text(encoding="utf-8"), parts()), encoding="utf-8")


if __name__ == "__main__":
    main()
