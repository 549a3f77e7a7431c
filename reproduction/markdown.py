"""Tables and notes of Markdown, as the items write them, in HTML."""

import re

from bayesdiv.app.report.markup import Html, element, joined, note, table


def markdown(text: str, title: str) -> Html:
    """Paragraphs and tables of Markdown, with bold and italic words.

    Examples:
        >>> markdown("Some *note*.", "none")
        '<p class="note">Some <em>note</em>.</p>'
    """
    parts: list[Html] = []
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = [line.strip() for line in block.splitlines()]
        if not lines[0].startswith("|"):
            parts.append(note(_inline(" ".join(lines))))
            continue
        rows = [re.split(r"(?<!\\)\|", line.strip("|")) for line in lines]
        cells = [[_cell(cell.strip().replace(r"\|", "|")) for cell in row] for row in rows]
        parts.append(table(title, cells[0], cells[2:]))
    return joined(parts)


def _cell(text: str) -> Html:
    """A cell; a published figure in brackets after ours goes below it."""
    both = re.fullmatch(r"(.*?)\s*\[([^\[\]]+)\]", text)
    if both is None:
        return _inline(text)
    return joined(_inline(both[1]), element("span", f"paper {both[2]}", class_="theirs"))


def _inline(text: str) -> Html:
    """Text with its `**bold**`, `*italic*` and code."""
    tags = {"**": "b", "*": "em", "`": "code"}
    pieces = re.split(r"(\*\*.+?\*\*|(?<!\w)\*[^*\s][^*]*\*|`[^`]+`)", text)
    parts: list[str] = []
    for place, piece in enumerate(pieces):
        if place % 2 == 0:
            parts.append(piece)
            continue
        sign = "**" if piece.startswith("**") else piece[0]
        parts.append(element(tags[sign], piece[len(sign) : -len(sign)]))
    return joined(*parts)
