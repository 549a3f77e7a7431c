"""Single rows in a report: as their file has them, or as images, with what is predicted."""

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bayesdiv.app.report.markup import Html, data_uri, element, joined, note, table
from bayesdiv.app.report.reading import Tested

MOST_COLUMNS = 40  # of a row
ROWS = 8  # of each kind


class Listed(NamedTuple):
    """What is said about every row, and some orders of the rows by their titles."""

    lines: Mapping[str, Sequence[str]]
    orders: Mapping[str, Tensor]


def shown(one: Tested, listed: Listed) -> Iterable[Html]:
    """The first rows of each order, under its title."""
    draw, none = _rows, "No test row was misclassified."
    if one.pictures:
        draw, none = _pictures, "No test picture was misclassified."
    for title, order in listed.orders.items():
        rows = order[:ROWS].tolist()
        yield element("h4", title)
        yield draw(one, rows, listed.lines, title) if rows else note(none)


def _pictures(
    one: Tested, rows: Sequence[int], lines: Mapping[str, Sequence[str]], title: str
) -> Html:
    items = []
    for row in rows:
        name = one.files[row] if one.files else f"image {one.places[row]}"
        said = (element("span", f"{key} {texts[row]}") for key, texts in lines.items())
        picture = element("img", src=data_uri(png(one.part.x[row]), "image/png"), alt=name)
        items.append(element("li", picture, element("span", name, class_="quiet"), said))
    return element("ul", items, class_="examples", aria_label=title)


def png(image: Tensor) -> bytes:
    """An image (channels, height, width), bytes or values from 0 to 1, as a PNG file."""
    from PIL import Image

    as_bytes = (image.clamp(0, 1) * 255).round().to(torch.uint8)
    levels = (as_bytes if image.is_floating_point() else image).cpu()
    colour = levels.shape[0] == 3
    pixels = levels.permute(1, 2, 0).numpy() if colour else levels[0].numpy()
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, format="PNG")
    return content.getvalue()


def _rows(one: Tested, rows: Sequence[int], lines: Mapping[str, Sequence[str]], title: str) -> Html:
    """Rows of a table that can be sorted: what is predicted, then the columns of the file."""
    raw, names = one.raw, one.splits.encoder.names if one.splits.encoder else ()
    columns = {} if raw is None else {n: raw[n] for n in names[:MOST_COLUMNS] if n in raw.columns}
    body = []
    for row in rows:
        cells = [texts[row] for texts in lines.values()]
        cells += [plain(column.iloc[row]) for column in columns.values()]
        body.append([str(one.places[row]), *cells])
    table_ = table(title, ["row", *lines, *columns], body, class_="sortable")
    more = len(names) - MOST_COLUMNS
    return joined(table_, note(f"{more} more columns are not shown.")) if more > 0 else table_


def plain(value: object) -> str:
    """A value as a file has it: 0 and not 0.0, 007 and not 7."""
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)
