"""The parts of the page on regression that are computed: `python -m reproduction.regression.page`.

The rest of the page is written by hand. Each computed part is a section, replaced as a whole.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from bayesdiv.app import runs
from reproduction.contenders import CONTENDERS, title
from reproduction.intervals import CONFIDENCE, Interval, Standing, standing
from reproduction.regression import nll, rmse
from reproduction.regression import results as regression_results
from reproduction.regression.halving import LOSSES
from reproduction.regression.judging import SCALES, Found, lead

SEARCHES = "Equal searches"
TABLES = {"Root mean squared error": rmse, "Negative log-likelihood": nll}
PAIRS = (
    ("js_g", "kl"),
    ("js_a", "kl"),
    ("lambda_kl", "kl"),
    ("js_g", "lambda_kl"),
    ("js_a", "lambda_kl"),
)
INTRODUCTION = """The tables show how far one loss lies below another on the test parts: the mean \
of 20 paired differences with a 95 % t-interval, each alone, widened because random splits share \
rows (variance s² (1/20 + 1/9), as in the report). Positive: the first one is better. **Bold**: \
the interval excludes 0."""


def sections(results: Path) -> dict[str, str]:
    """Every computed part by its heading."""
    found = {}
    with TemporaryDirectory() as folder:
        for heading, item in TABLES.items():
            (drawn,) = (p for p in item.draw(results, Path(folder)) if p.suffix == ".md")
            found[heading] = drawn.read_text()
    return {SEARCHES: searches(results), **found}


def searches(results: Path) -> str:
    """What the equal searches found: both measures on the sets where all four losses have one."""
    found = regression_results.found(results)
    done = [data for data, row in found.items() if all("rounds" in row.get(n, ()) for n in LOSSES)]
    minutes = sum(found[data][name]["seconds"] for data in done for name in LOSSES) / 60
    rest = [data for data in found if data not in done]
    older = f" {_listed(rest)} still have the older columns." if rest else ""
    text = f"{len(done)} of {len(found)} sets are searched, in {minutes:.0f} minutes on one core."
    return (
        "\n\n".join(
            [f"{text}{older} {INTRODUCTION}", *_measures(found, done), _settings(found, done)]
        )
        + "\n"
    )


def _measures(found: Found, done: Sequence[str]) -> list[str]:
    parts = []
    for key, scale in SCALES.items():
        leads = {
            pair: {data: lead(found[data], *pair, key, CONFIDENCE) for data in done}
            for pair in PAIRS
        }
        head = [f"{key.upper()}, {scale.unit}", *(_named(pair) for pair in PAIRS)]
        rows = [
            [data.replace("_", " "), *(_cell(own[data], scale.relative) for own in leads.values())]
            for data in done
        ]
        every = [head, ["---", *("---:" for _ in PAIRS)], *rows]
        parts.append(_table(every))
        said = [f"- {_named(pair)}: {_standings(own)}" for pair, own in leads.items()]
        parts.append("\n".join([f"In {key.upper()}:", "", *said]))
    return parts


def _settings(found: Found, done: Sequence[str]) -> str:
    """What was chosen: rate and epochs, with strength λ and alpha where the loss leaves them."""
    every = [["chosen", *map(title, LOSSES)], ["---"] * (len(LOSSES) + 1)]
    for data in done:
        row = [data.replace("_", " ")]
        for name in LOSSES:
            own, chooses = found[data][name]["setting"], CONTENDERS[name].chooses
            said = [f"rate {own['rate']:.2g}", f"{own['epochs']} epochs"]
            said += [f"λ {own['strength']:.2g}"] if "strength" in chooses else []
            said += [f"α {own['alpha']:.2g}"] if "alpha" in chooses else []
            row.append(", ".join(said))
        every.append(row)
    return _table(every)


def _table(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(interval: Interval, relative: bool) -> str:
    text = interval.times(100).text(1) if relative else interval.text(3)
    return text if standing(interval) is Standing.UNDECIDED else f"**{text}**"


def _standings(own: dict[str, Interval]) -> str:
    """On which sets it is decided, and which way.

    Examples:
        >>> wide, above = Interval(1.0, -1.0, 3.0, 5), Interval(1.0, 0.5, 1.5, 5)
        >>> _standings({"a": wide, "b": above, "c": above}), _standings({"a": wide})
        ('ahead on b and c, undecided on the rest', 'undecided on all')
    """
    decided = {
        kind: [data for data, interval in own.items() if standing(interval) is kind]
        for kind in (Standing.AHEAD, Standing.BEHIND)
    }
    said = [f"{kind.value} on {_listed(names)}" for kind, names in decided.items() if names]
    if sum(map(len, decided.values())) < len(own):
        said.append(f"undecided on {'the rest' if said else 'all'}")
    return ", ".join(said)


def _named(pair: tuple[str, str]) -> str:
    return " over ".join(map(title, pair))


def _listed(names: Sequence[str]) -> str:
    """Names as a sentence has them.

    Examples:
        >>> _listed(["yacht"]), _listed(["a_b", "c", "d"])
        ('yacht', 'a b, c and d')
    """
    words = [name.replace("_", " ") for name in names]
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def replaced(page: str, parts: dict[str, str]) -> str:
    r"""The page with these sections in place of its own.

    Examples:
        >>> replaced("# A\n\n## B\n\nold\n\n## C\n\nkept\n", {"B": "new\n"})
        '# A\n\n## B\n\nnew\n\n## C\n\nkept\n'
    """
    for heading, text in parts.items():
        own = re.compile(rf"(?ms)^## {re.escape(heading)}\n.*?(?=^## |\Z)")
        found = own.search(page)
        if found is None:
            raise ValueError(f"the page must have a section {heading!r}")
        page = f"{page[: found.start()]}## {heading}\n\n{text}\n{page[found.end() :]}"
    return page.rstrip("\n") + "\n"


if __name__ == "__main__":
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/paper/regression.md")
    runs.write(path, replaced(path.read_text(), sections(Path("results"))).encode())
