"""The page: its sections one after the other."""

from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from types import ModuleType

from bayesdiv.app.data.splits import DataError
from bayesdiv.app.report import classes, quantities, reading, sections
from bayesdiv.app.report.charts import colours, series
from bayesdiv.app.report.examples import Looked, pictures, rows
from bayesdiv.app.report.markup import Html, document, element, note, problem, section
from bayesdiv.app.task import Task
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
        parts.append(
            problem(
                "The data could not be loaded again, so this page has no calibration, no confusion "
                f"and no examples: {lost}."
            )
        )
    else:
        looked = list(zip(known, looks, strict=True))
        tell("calibration")
        parts += [*_kind(runs[0].task).sections(looked), _uncertainty(looked)]
    tell("posterior")
    parts += [sections.posterior(runs, looks), sections.settings(runs)]
    style = f"{stylesheet()}\n{colours(looks)}"
    title = _title(runs)
    head = element("header", element("h1", title), element("p", reading.versions()))
    return document(title, style, head, element("main", parts))


def _kind(task: Task) -> ModuleType:
    """The file that knows what to say about such targets."""
    return classes if isinstance(task, Classification) else quantities


def _uncertainty(looked: Looked) -> Html:
    """The two parts of uncertainty, in the mean and in the surest and least sure examples."""
    first = looked[0][0]
    kind = _kind(first.splits.task)
    said = kind.UNCERTAINTY
    below = " below the header" if first.splits.name.lower().endswith(".csv") else ""
    said += (
        " Examples are test data; each has the number of its row in "
        f"{first.splits.name}, counted from 1{below}."
    )
    noise = first.run.settings["data"].get("noise")
    if noise:
        said += " Inputs are shown with the noise that was added to them."
    parts: list[Html] = []
    for one, _ in looked:
        found = kind.examples(one)
        shown = pictures if len(first.splits.shape) == 3 else rows
        parts.append(element("h3", one.run.label))
        for title, examples in found.items():
            parts += [element("h4", title), shown(one, examples)]
    return section(
        "Where the networks are sure and unsure", note(said), kind.summary(looked), *parts
    )


def _title(runs: Sequence[reading.Run]) -> str:
    source = Path(str(runs[0].settings["data"].get("data", runs[0].settings["target"])))
    named = runs[0].name if len(runs) == 1 else f"{len(runs)} runs compared"
    return f"{source.name}: {named}"


def stylesheet() -> str:
    """The style of all pages."""
    return files(__package__).joinpath("page.css").read_text(encoding="utf-8")
