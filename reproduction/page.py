"""The page: every table and figure of the paper, ours beside what it reports, and judged."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

from bayesdiv.app import runs
from bayesdiv.app.report.markup import (
    Html,
    data_uri,
    document,
    element,
    joined,
    note,
    section,
    table,
    versions,
)
from reproduction.item import Entry
from reproduction.markdown import markdown
from reproduction.origin import Origin, day
from reproduction.verdict import Badge, Outcome, Verdict, not_computed

KINDS = {".svg": "image/svg+xml"}
TITLE = "The paper, recomputed and judged"
# Drawings of several panels scroll inside their box on a phone, or their letters were too small.
OWN = ".item img { background: none; } .item .scroll > img { min-width: 42rem; }"
BADGES = {
    Badge.YES: "reproduced",
    Badge.PARTLY: "partly",
    Badge.UNDECIDED: "partly",
    Badge.NO: "not",
    Badge.UNSTATED: "open",
    Badge.OPEN: "open",
}
MOST_NAMED = 4  # results that are missing; of more the number is shown
TAKES_HOURS = frozenset({"algorithms", "claims", "regression", "images"})
"""Groups whose results are trained, which takes hours on a CPU; all others take seconds."""


@dataclass(frozen=True)
class Shown:
    """A table or figure with its verdict.

    Args:
        entry: which one.
        verdict: how our result compares with the published one.
        missing: results that are not there, in words.
        files: what was drawn.
        drawn: whether drawing was asked for at all.
        problem: why it could not be judged, computed or drawn, in a sentence; usually empty.
    """

    entry: Entry
    verdict: Verdict
    missing: tuple[str, ...]
    files: tuple[Path, ...] = ()
    drawn: bool = False
    problem: str = ""


def standing(entry: Entry, results: Path) -> Shown:
    """An item and its verdict, from its results alone; it says so if they cannot be read."""
    try:
        missing = tuple(entry.needs().missing(results))
        return Shown(entry, entry.module().verdict(results), missing)
    except Exception as error:  # a damaged file of one item must not hide the others
        return Shown(entry, not_computed("its results cannot be read"), (), problem=told(error))


def told(error: Exception) -> str:
    """An error as a sentence."""
    plain = isinstance(error, ValueError | RuntimeError | OSError)
    return str(error) if plain else f"{type(error).__name__}: {error}"


def page(shown: Sequence[Shown], results: Path, aside: str = "") -> str:
    """The page, as HTML.

    Args:
        shown: every entry of the catalogue; those that were drawn have their own section.
        results: the folder of results, for what they were computed with.
        aside: a sentence at the top, such as that all sizes are toy sizes.
    """
    head = element(
        "header",
        element("h1", TITLE),
        element("p", "Every item of the paper beside our own result. ", counted(shown)),
        element("p", aside, class_="problem") if aside else "",
        element("p", versions()),
    )
    groups = dict.fromkeys(one.entry.group for one in shown if one.drawn)
    body = [_summary(shown)]
    for group in groups:
        own = [one for one in shown if one.entry.group == group and one.drawn]
        body += [_item(one, results) for one in own]
        body += _computed_with(group, own, results)
    return document(TITLE, OWN, head, element("main", body))


def counted(shown: Sequence[Shown]) -> str:
    """How many have which verdict, in a sentence."""
    counts = {o: sum(one.verdict.outcome is o for one in shown) for o in Outcome}
    listed = [f"{count} {o.value}" for o, count in counts.items() if count]
    said = " and ".join(filter(None, [", ".join(listed[:-1]), listed[-1]]))
    verb = "is" if said.startswith("1 ") else "are"
    return f"Of {len(shown)} items, {said.replace(' ', f' {verb} ', 1)}."


def _badges(one: Shown) -> Html:
    """Direction and size, each with the colour of its answer."""
    sides = {"direction": one.verdict.direction, "size": one.verdict.size}
    return joined(
        *(
            joined(element("span", f"{side}: {badge.value}", class_=f"badge {BADGES[badge]}"), " ")
            for side, badge in sides.items()
        )
    )


def _summary(shown: Sequence[Shown]) -> Html:
    rows = []
    for one in shown:
        name, label = one.entry.name, f"{one.entry.label}; {one.entry.name}, {one.entry.group}"
        link = element("a", one.entry.title, href=f"#{name}") if one.drawn else one.entry.title
        state = joined(_badges(one), _short_state(one))
        rows.append([joined(link, element("span", label, class_="hint")), state])
    head = ["in the paper", "our result against the published one"]
    return section(
        "Summary",
        element("div", table("All items of the paper", head, rows), class_="words summary"),
    )


def _short_state(one: Shown) -> str:
    parts = [_standing(one)]
    if one.missing:
        parts.append(_count(len(one.missing)))
    if not one.drawn:
        parts.append(f"not drawn this time; python -m reproduction {one.entry.name} draws it")
    return "; ".join(parts)


def _standing(one: Shown) -> str:
    return f"{one.verdict.outcome.value}: {_sentence(one)}"


def _sentence(one: Shown) -> str:
    return f"{one.verdict.sentence}: {one.problem}" if one.problem else one.verdict.sentence


def _count(missing: int) -> str:
    return "a result is missing" if missing == 1 else f"{missing} results are missing"


def _item(one: Shown, results: Path) -> Html:
    """What we have, and below it how it compares with the paper."""
    entry = one.entry
    files = _worth_showing(one.files)
    ours = [_file(path, entry.title) for path in files]
    facts: dict[str, Html] = {
        "in the paper": joined(entry.label),
        "verdict": joined(_badges(one), _standing(one)),
    }
    if one.verdict.n is not None:
        facts["n"] = joined(str(one.verdict.n))
    if one.verdict.missing:
        facts["not run, of the paper's plan"] = joined("; ".join(one.verdict.missing))
    if judged := _judged(entry):
        facts["how it is judged"] = joined(judged)
    if one.missing:
        facts["missing results"] = joined(_missing(one.missing))
        facts["compute them with"] = _to_compute(entry)
    facts |= {key: joined(text) for key, text in _own_origin(entry, results).items()}
    written = [element("a", path.name, href=quote(path.name)) for path in one.files]
    if written:
        facts["files"] = joined(*(joined(file, " ") for file in written))
    pairs = [joined(element("dt", key), element("dd", text)) for key, text in facts.items()]
    said = element("dl", pairs, class_="pairs")
    title = entry.title[:1].upper() + entry.title[1:]
    return element(
        "section",
        element("h2", title),
        note(_about(entry)),
        element("div", element("div", ours), said, class_="item"),
        class_="panel",
        id=entry.name,
    )


def _about(entry: Entry) -> str:
    """What it shows: the first paragraph of its module."""
    return " ".join((entry.module().__doc__ or "").split("\n\n")[0].split())


def _judged(entry: Entry) -> str:
    """The rule of the verdict, as its function states it."""
    verdict = entry.module().verdict
    rule = verdict.func if isinstance(verdict, partial) else verdict
    return " ".join((rule.__doc__ or "").split())


def _missing(missing: Sequence[str]) -> str:
    more = len(missing) - MOST_NAMED
    rest = f"; and {more} more" if more > 0 else ""
    return "; ".join(missing[:MOST_NAMED]) + rest


def _to_compute(entry: Entry) -> Html:
    command = f"python -m reproduction {entry.name}"
    if entry.group in TAKES_HOURS:
        command += " --compute"
    return element("code", command)


def _worth_showing(files: Sequence[Path]) -> list[Path]:
    """Figures, and of a table in several formats one."""
    figures = [path for path in files if path.suffix in KINDS]
    tables = [path for ending in (".md", ".csv") for path in files if path.suffix == ending]
    return [*figures, *tables[:1]]


def _file(path: Path, title: str) -> Html:
    if path.suffix in KINDS:
        source = data_uri(path.read_bytes(), KINDS[path.suffix])
        drawing = element("img", src=source, alt=title)
        return element("div", drawing, class_="scroll", role="region", aria_label=title, tabindex=0)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return markdown(text, title)
    head, *rows = csv.reader(text.splitlines())
    return table(title, head, rows)


def _own_origin(entry: Entry, results: Path) -> dict[str, str]:
    """Date and settings of an item that has its own result file."""
    place = getattr(entry.module(), "PLACE", None)
    if place is None:
        return {}
    try:
        told = runs.read_json(results / place)
    except runs.RunError:
        return {}
    origin = Origin.of(told)
    where = "" if origin.hardware == "not recorded" else f" on {origin.hardware}"
    when = f"{day(told)} by bayesdiv {origin.version}{where}"
    return {"computed": when, "settings": origin.settings}


def _computed_with(group: str, own: Iterable[Shown], results: Path) -> list[Html]:
    """What the results that a group shares were computed with; none where each has its own."""
    if all(getattr(one.entry.module(), "PLACE", None) is not None for one in own):
        return []
    found: dict[Origin, list[tuple[str, str]]] = {}
    folder = results / group
    for path in sorted(folder.rglob("*.json")):
        try:
            told = runs.read_json(path)
        except runs.RunError:
            continue  # reported where the item is judged
        part = path.relative_to(folder).parts[0].removesuffix(".json")
        found.setdefault(Origin.of(told), []).append((part, day(told)))
    if not found:
        return []
    lists = []
    for origin, each in found.items():
        days = sorted({min(day for _, day in each), max(day for _, day in each)})
        facts = {
            "results": f"{', '.join(dict.fromkeys(part for part, _ in each))} (files: {len(each)})",
            "computed": f"{' to '.join(days)} by bayesdiv {origin.version} with torch "
            f"{origin.torch} on {origin.hardware}",
            "settings": origin.settings or "not recorded",
        }
        pairs = (joined(element("dt", key), element("dd", text)) for key, text in facts.items())
        lists.append(element("dl", pairs, class_="pairs"))
    return [section(f"What the results of the group {group} were computed with", *lists)]
