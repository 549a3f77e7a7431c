"""What a figure of the paper must be, whatever it shows."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

SVG = "{http://www.w3.org/2000/svg}"
MOST = 200_000  # bytes: all figures go into one page


def assert_drawn(item, results: Path, out: Path, width: int) -> None:
    """The one figure of an item: wide, small, not empty, and without a fixed black or white.

    Args:
        width: in pixels, at 150 per inch.
    """
    assert item.missing(results) == []
    (path,) = item.draw(results, out)
    text = path.read_text(encoding="utf-8")
    whole = ElementTree.fromstring(text)
    assert float(whole.attrib["viewBox"].split()[2]) / 72 * 150 > width
    assert len(text) < MOST
    drawn = " ".join(each.get("d", "") for each in whole.iter(f"{SVG}path"))
    marks = [(each.get("x", 0), each.get("y", 0)) for each in whole.iter(f"{SVG}use")]
    places = np.array([*re.findall(r"[ML] (\S+) (\S+)", drawn), *marks], dtype=float)
    assert len(places) > 50
    assert places.std(axis=0).min() > 10
    assert any(each.text for each in whole.iter(f"{SVG}text"))
    assert "#000000" not in text
