"""The page of `bayesdiv tune`: which settings matter, and every trial with its value."""

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

from bayesdiv.app.metric import number
from bayesdiv.app.report import markup
from bayesdiv.app.report.markup import Html, chart, charts, element, note, section, table

SERIES = [("finished", "finished trials", "KL"), ("best", "the best trial", "JSA")]


def page(
    title: str, value: str, tried: Sequence[Any], logs: Set[str], importance: Mapping[str, float]
) -> str:
    """A search for the least of a value; `logs` are settings on a log scale."""
    done = [one for one in tried if one.state == "complete"]
    names = list(dict.fromkeys(name for one in done for name in one.settings))
    aim = min((one.value for one in done), default=math.nan)
    values: markup.Values = [
        {"trial": one.number, "value": one.value, **one.settings}
        | {"run": "best" if one.value == aim else "finished"}
        for one in done
    ]
    drawn = [
        chart(f"Slice over {name}", "", values, "slice", x=name, y=value, log=name in logs)
        for name in names
    ]
    if values:
        said = "a line per trial, each axis from its least to its greatest value"
        options = {"names": [*names, "value"], "logs": sorted(logs)}
        drawn.insert(0, chart("Parallel coordinates", said, values, "parallel", **options))
    matters = note("Fewer than ten different trials finished: too few to say.")
    if importance:
        bars = [{"setting": n, "importance": v, "run": "finished"} for n, v in importance.items()]
        said = "share of the spread among the better trials that a setting explains (PED-ANOVA)"
        drawing = {"field": "setting", "x": "importance"}
        matters = charts(chart("Importance", said, bars, "bars", **drawing))
    begun = [one for one in tried if one.state != "waiting"]
    counted = f"{len(done)} of {len(begun)} trials finished."
    parts = [
        section("Result", element("p", f"{counted} {_verdict(done, value, aim)}".strip())),
        section("Which settings matter", matters),
        section("Trials", charts(*drawn)),
        _trials(begun, names, value),
    ]
    return markup.framed(title, SERIES, parts)


def _verdict(done: Sequence[Any], value: str, aim: float) -> str:
    chosen = next((one for one in done if one.value == aim), None)
    if chosen is None:
        return ""
    found = ", ".join(f"{name} {number(v)}" for name, v in chosen.settings.items())
    close = sum(abs(one.value - aim) <= 0.01 * abs(aim) for one in done) - 1
    text = f"Trial {chosen.number} has the lowest {value}, {number(aim)}, with {found}"
    return f"{text}. Others within 1 % of it, which are as good: {close or 'none'}."


def _trials(tried: Sequence[Any], names: Sequence[str], value: str) -> Html:
    body, told = [], any(one.reason for one in tried)
    for one in tried:
        cells = [number(one.settings[name]) if name in one.settings else "" for name in names]
        cells += ["" if one.value is None else number(one.value), one.state, *[one.reason] * told]
        body.append([str(one.number), *cells])
    heads = ["trial", *names, value, "state", *["reason"] * told]
    return section("All trials", table("All trials", heads, body, class_="sortable"))
