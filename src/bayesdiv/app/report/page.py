"""The page on runs: its sections one after the other, those that need no data among them."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from bayesdiv.app.metric import number
from bayesdiv.app.report import classes, columns, markup, quantities, reading, scores
from bayesdiv.app.report.comparison import training
from bayesdiv.app.report.markup import Html, element, joined, note, section, table
from bayesdiv.app.report.reading import Run, Tested
from bayesdiv.app.runs import leaves
from bayesdiv.app.tasks.classification import Classification

MOST_COLUMNS = 40  # of a row
ROWS = 8  # of each kind


def page(folders: Sequence[str | Path], *, data: str | None = None) -> str:
    """A report on runs of the same data, which now are at `data`."""
    return on_runs([reading.tested(run) for run in reading.read(folders, data)])


def on_runs(known: Sequence[Tested]) -> str:
    """The page on runs with what they predict."""
    runs = [one.run for one in known]
    kind = classes if isinstance(runs[0].task, Classification) else quantities
    own, beside = scores.measured(known)
    histories = {run.name: [run.experiment.history] for run in runs if run.experiment.history}
    parts = [
        scores.verdict(known, own, beside),
        scores.compared(runs, own, beside),
        *kind.sections(known),
        *columns.sections(known),
        _examples(known, kind),
        columns.unusual(known),
        columns.overview(known[0]),
        training(histories, runs[0].task.main, runs[0].experiment.watch),
        settings(runs, known[0]),
    ]
    source = Path(str(runs[0].settings["data"]["data"])).name
    named = runs[0].name if len(runs) == 1 else f"{len(runs)} runs compared"
    every = [(run.name, run.label, run.loss) for run in runs]
    return markup.framed(f"{source}: {named}", every, parts)


def _examples(known: Sequence[Tested], kind: ModuleType) -> Html:
    """The two parts of uncertainty, in the mean and in the least sure and most wrong rows."""
    first = known[0]
    where = "path in" if first.files else "number in the test part of"
    said = f"Each picture has its {where} {first.source}."
    if not first.pictures:
        said = f"Each row has its number in {first.source}, counted from 1 below the header, and "
        said += "the values of that file. Click a column heading to sort."
    if first.run.settings["data"].get("noise"):
        said += " The networks saw the inputs with noise added."
    head = ["mean over test data", *kind.parts(first)]
    parts = [(one.run.name, *kind.parts(one).values()) for one in known]
    cells = [[name, *(number(part.mean().item()) for part in own)] for name, *own in parts]
    means = table("The two parts of the uncertainty", head, cells)
    shown = []
    for one in known:
        shown.append(element("h3", one.run.label))
        lines, orders = kind.listed(one)
        for title, order in orders.items():
            rows, draw = order[:ROWS].tolist(), _pictures if one.pictures else _rows
            none = note(f"No test {one.what[:-1]} was misclassified.")
            shown += [element("h4", title), draw(one, rows, lines, title) if rows else none]
    return section("Least sure and most wrong", note(said), means, *shown, kind=kind.NAME)


def _pictures(
    one: Tested, rows: Sequence[int], lines: Mapping[str, Sequence[str]], title: str
) -> Html:
    items = []
    for row in rows:
        name = one.files[row] if one.files else f"image {one.places[row]}"
        said = (element("span", f"{key} {texts[row]}") for key, texts in lines.items())
        picture = element("img", src=markup.data_uri(png(one.part.x[row]), "image/png"), alt=name)
        items.append(element("li", picture, element("span", name, class_="quiet"), said))
    return element("ul", items, class_="examples", aria_label=title)


def png(image: Tensor) -> bytes:
    """An image (channels, height, width), bytes or values from 0 to 1, as a PNG file."""
    from PIL import Image

    levels = (image.clamp(0, 1) * 255).round() if image.is_floating_point() else image
    pixels = levels.to(torch.uint8).cpu().permute(1, 2, 0).squeeze(-1)  # grey has no last axis
    content = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(content, format="PNG")
    return content.getvalue()


def _rows(one: Tested, rows: Sequence[int], lines: Mapping[str, Sequence[str]], title: str) -> Html:
    """Rows of a table that can be sorted: what is predicted, then the columns of the file."""
    raw, names = one.raw, list(columns.spans(one))
    shown = {name: raw[name] for name in names[:MOST_COLUMNS] if name in raw.columns}
    body = []
    for row in rows:
        cells = [texts[row] for texts in lines.values()]
        cells += [markup.plain(column.iloc[row]) for column in shown.values()]
        body.append([str(one.places[row]), *cells])
    table_ = table(title, ["row", *lines, *shown], body, class_="sortable")
    more = len(names) - MOST_COLUMNS
    return joined(table_, note(f"{more} more columns are not shown.")) if more > 0 else table_


def settings(runs: Sequence[Run], first: Tested) -> Html:
    """What was trained, and every setting of every run as it is kept with it."""
    parts = zip(("training", "validation", "testing"), first.splits.parts, strict=True)
    rows = ", ".join(f"{len(part.y):,} for {name}" for name, part in parts)
    shape = " × ".join(map(str, first.splits.shape))
    target = f"Target {runs[0].settings['target']}: {runs[0].task.description}"
    about = f"{target}; an input has {shape} numbers. Rows: {rows}."
    kept = [
        {"divergence": run.loss, "network": str(run.experiment.recipe)}
        | {"weights": f"{run.experiment.num_weights:,}", "seconds": f"{run.result['seconds']:.1f}"}
        | {name: _told(value) for name, value in leaves(run.settings) if name != "divergence"}
        for run in runs
    ]
    every = dict.fromkeys(name for each in kept for name in each)
    head = ["setting", *(run.name for run in runs)]
    cells = ([name, *(each.get(name, "–") for each in kept)] for name in every)
    whole = element("summary", "Settings in full"), table("Settings in full", head, cells)
    return section("Settings", note(about), element("details", *whole, class_="long"))


def _told(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
