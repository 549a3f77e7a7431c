"""The colour of text and axes in figures, for light pages and for dark ones."""

import re

INK, INK_ON_DARK = "#3c4043", "#d5d9de"
_FIGURE = re.compile(r"!\[([^\]]*)\]\((?![^)]*images/)([^)\s]+)\.svg\)")


def darkened(svg: str) -> str:
    """The same figure for a dark page."""
    return svg.replace(INK, INK_ON_DARK)


def both(markdown: str) -> str:
    """Show each figure in the version that suits the page; images/ has one for both.

    Example:
        >>> both("![A line](figures/line.svg)")
        '![A line](figures/line.svg#only-light)![A line](figures/line-dark.svg#only-dark)'
    """
    return _FIGURE.sub(r"![\1](\2.svg#only-light)![\1](\2-dark.svg#only-dark)", markdown)
