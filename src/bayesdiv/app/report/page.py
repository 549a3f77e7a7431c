"""The page: its sections one after the other."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from bayesdiv.app.data.splits import DataError
from bayesdiv.app.report import classes, columns, network, quantities, reading, scores
from bayesdiv.app.report.charts import framed
from bayesdiv.app.report.examples import shown
from bayesdiv.app.report.markup import Html, element, joined, note, problem, section, table
from bayesdiv.app.rounding import number
from bayesdiv.app.tasks.classification import Classification

Tell = Callable[[str], None]


def page(
    folders: Sequence[Path], tell: Tell = lambda line: None, *, data: str | None = None
) -> str:
    """A report on runs of the same data; `tell` gets a word on each piece of work."""
    runs = reading.read(folders, data)
    known: list[reading.Tested] = []
    lost = ""
    try:
        for run in runs:
            tell(f"predictions of {run.name}")
            known.append(reading.tested(run))
    except DataError as error:
        known, lost = [], str(error)
    return on_runs(runs, known, lost, tell)


def on_runs(
    runs: Sequence[reading.Run],
    known: Sequence[reading.Tested],
    lost: str = "",
    tell: Tell = lambda line: None,
) -> str:
    """The page on runs with what they predict, or with why that is not known."""
    parts = [network.seeds(runs)]
    if known:
        kind = classes if isinstance(runs[0].task, Classification) else quantities
        tell("simple models")
        own, beside = scores.measured(known)
        parts += [scores.verdict(known, own, beside), scores.compared(runs, own, beside)]
        tell("calibration")
        parts += kind.sections(known)
        tell("columns")
        parts += [*columns.sections(known), _examples(known, kind)]
        tell("unusual rows")
        parts += [columns.unusual(known), columns.overview(known[0])]
    if lost:
        said = "The data could not be loaded again, so this page has no verdict, no calibration "
        parts += [problem(f"{said}and no examples: {lost}."), scores.compared(runs, {}, {})]
    tell("posterior")
    parts += [network.training(runs), network.posterior(runs), network.settings(runs, known)]
    source = Path(str(runs[0].settings["data"].get("data", runs[0].settings["target"])))
    named = runs[0].name if len(runs) == 1 else f"{len(runs)} runs compared"
    every = [(run.name, run.label, run.loss) for run in runs]
    return framed(f"{source.name}: {named}", every, parts)


def _examples(known: Sequence[reading.Tested], kind: ModuleType) -> Html:
    """The two parts of uncertainty, in the mean and in the least sure and most wrong rows."""
    first = known[0]
    where = "path in" if first.files else "number in the test part of"
    said = f"Each picture has its {where} {first.source}."
    if len(first.splits.shape) == 1:
        said = f"Each row has its number in {first.source}, counted from 1 below the header, and "
        said += "the values of that file. Click a column heading to sort."
    if first.run.settings["data"].get("noise"):
        said += " The networks saw the inputs with noise added."
    head = ["mean over test data", *kind.parts(first)]
    cells = [
        [one.run.name, *(number(part.mean().item()) for part in kind.parts(one).values())]
        for one in known
    ]
    means = table("The two parts of the uncertainty", head, cells)
    shown_ = (joined(element("h3", o.run.label), *shown(o, kind.listed(o))) for o in known)
    return section("Least sure and most wrong", note(said), means, *shown_, kind=kind.NAME)
