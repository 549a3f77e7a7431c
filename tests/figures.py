"""What a figure of the paper must be, whatever it shows."""

from pathlib import Path

import numpy as np
from PIL import Image


def assert_drawn(item, results: Path, out: Path, width: int) -> None:
    """The one figure of an item: as wide as it is shown, and not empty."""
    assert item.missing(results) == []
    (path,) = item.draw(results, out)
    image = Image.open(path).convert("L")
    assert image.width > width
    assert np.asarray(image).std() > 10
