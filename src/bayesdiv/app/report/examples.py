"""Single test examples in a report: images, or rows with their columns."""

import io
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bayesdiv.app.data.columns import Numeric
from bayesdiv.app.data.encoder import Encoder
from bayesdiv.app.report.charts import Series
from bayesdiv.app.report.markup import Html, data_uri, element, joined, note, table
from bayesdiv.app.report.reading import Tested
from bayesdiv.app.rounding import number

MOST_COLUMNS = 40  # of an example
EXAMPLES = 6  # the most certain, and as many of the most uncertain

Looked = Sequence[tuple[Tested, Series]]


class Example(NamedTuple):
    """A test example with what is said about it."""

    row: int  # of the test part
    lines: dict[str, Html]
    x: Tensor


def mean(values: Tensor) -> str:
    """The mean of some values, if there are any."""
    return number(values.mean().item()) if len(values) else "none"


def ends(uncertainty: Tensor, make: Callable[[int], Example]) -> dict[str, list[Example]]:
    """The examples with the least and with the most uncertainty."""
    order = uncertainty.argsort(stable=True).tolist()
    count = min(EXAMPLES, len(order))
    return {
        "Most certain": [make(row) for row in order[:count]],
        "Most uncertain": [make(row) for row in order[::-1][:count]],
    }


def pictures(one: Tested, examples: Iterable[Example]) -> Html:
    """Images, each with what is said about it."""
    items = []
    for example in examples:
        name = f"image {_row(one, example)}"
        lines = (element("span", f"{key} ", text) for key, text in example.lines.items())
        picture = element("img", src=data_uri(png(example.x), "image/png"), alt=name)
        items.append(element("li", picture, element("span", name, class_="quiet"), lines))
    return element("ul", items, class_="examples")


def _row(one: Tested, example: Example) -> str:
    """Where an example is in the data, so that it can be looked up there."""
    rows = one.splits.test_rows
    return str(rows[example.row] if rows else example.row + 1)


def png(image: Tensor) -> bytes:
    """An image (channels, height, width), bytes or values from 0 to 1, as a PNG file.

    Values beyond are cut off; of other than three channels the first is shown in grey.
    """
    from PIL import Image

    as_bytes = (image.clamp(0, 1) * 255).round().to(torch.uint8)
    levels = (as_bytes if image.is_floating_point() else image).cpu()
    colour = levels.shape[0] == 3
    pixels = levels.permute(1, 2, 0).numpy() if colour else levels[0].numpy()
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, format="PNG")
    return content.getvalue()


def rows(one: Tested, examples: Sequence[Example]) -> Html:
    """Examples side by side: what is said about them, then the columns of the data."""
    head = ["row", *(_row(one, example) for example in examples)]
    said = [[key, *(e.lines[key] for e in examples)] for key in examples[0].lines]
    assert one.splits.encoder is not None
    read = decoded(one.splits.encoder, torch.stack([example.x for example in examples]))
    more = len(read) - MOST_COLUMNS
    columns = [[name, *values] for name, values in list(read.items())[:MOST_COLUMNS]]
    shown = table("Examples", head, [*said, *columns])
    return joined(shown, note(f"{more} more columns are not shown.")) if more > 0 else shown


def decoded(encoder: Encoder, x: Tensor) -> dict[str, list[str]]:
    """The columns that rows of x were encoded from; the likeliest category of those with noise.

    Examples:
        >>> from bayesdiv.app.data.columns import OneHot
        >>> encoder = Encoder((Numeric("age", 40.0, 10.0), OneHot("smoker", ("no", "yes"))), (3,))
        >>> decoded(encoder, torch.tensor([[2.0, 0.0, 1.0]]))
        {'age': ['60'], 'smoker': ['yes']}
    """
    found, start = {}, 0
    for column in encoder.columns:
        part = x[:, start : start + column.width]
        start += column.width
        if column.fill is not None:
            part = part[:, :-1]
        if isinstance(column, Numeric):
            found[column.name] = [
                number(v * column.scale + column.loc) for v in part[:, 0].tolist()
            ]
        else:
            found[column.name] = [column.categories[k] for k in part.argmax(-1).tolist()]
    return found
