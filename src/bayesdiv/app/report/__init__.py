"""Pages for a browser, each one file: a report on runs, and the paper reproduced.

A page holds all it needs, its charts and images included: it opens from a file, fetches nothing and
can be sent to anyone.
"""

from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

from bayesdiv.app.data.splits import DataError
from bayesdiv.app.report import reading, sections, targets
from bayesdiv.app.report.charts import colours, series
from bayesdiv.app.report.markup import Html, document, element, joined
from bayesdiv.app.tasks.classification import Classification


def page(
    folders: Sequence[Path],
    tell: Callable[[str], None] = lambda line: None,
    *,
    data: str | None = None,
) -> str:
    """A report on runs of the same data, as HTML.

    Args:
        folders: of finished runs.
        tell: called with a word on each piece of work before it begins.
        data: where the data of the runs are now; None where they were.

    Examples:
        >>> page([Path("nowhere")])
        Traceback (most recent call last):
        bayesdiv.app.runs.RunError: there is no run nowhere
    """
    runs = reading.read(folders, data)
    known: list[reading.Tested] = []
    lost = ""
    try:
        for run in runs:
            tell(f"predictions of {run.name}")
            known.append(reading.tested(run))
    except DataError as error:
        known, lost = [], str(error)
    looks = series([(run.label, run.family) for run in runs])
    tell("charts")
    parts = [sections.trained(runs, known), sections.compared(runs), sections.curves(runs, looks)]
    if lost:
        parts.append(_without_data(lost))
    else:
        looked = list(zip(known, looks, strict=True))
        kind = targets.classes if isinstance(runs[0].task, Classification) else targets.quantities
        tell("calibration")
        parts += [*kind(looked), targets.uncertainty(looked)]
    tell("posterior")
    parts += [sections.posterior(runs, looks), sections.settings(runs)]
    style = f"{stylesheet()}\n{colours(looks)}"
    title = _title(runs)
    head = element("header", element("h1", title), element("p", reading.versions()))
    return document(title, style, head, element("main", parts))


def _title(runs: Sequence[reading.Run]) -> str:
    source = Path(str(runs[0].settings["data"].get("data", runs[0].settings["target"])))
    named = runs[0].name if len(runs) == 1 else f"{len(runs)} runs compared"
    return f"{source.name}: {named}"


def _without_data(reason: str) -> Html:
    return element(
        "p",
        joined(
            "The data could not be loaded again, so this page has no calibration, no confusion and "
            f"no examples: {reason}."
        ),
        class_="problem",
    )


def stylesheet() -> str:
    """The style of all pages."""
    return files(__package__).joinpath("page.css").read_text(encoding="utf-8")
