"""Lines of styled text: what a pane draws with. Styles are made from the palette once and reused."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from workbench import palette

Line = list[Segment]


@cache
def style(colour: str = "", *, on: str = "", bold: bool = False, reverse: bool = False) -> Style:
    """Return the rich style for a palette colour on a background colour."""
    return Style(color=colour or None, bgcolor=on or None, bold=bold or None, reverse=reverse or None)


def ink(text: str, colour: str = "", *, bold: bool = False, on: str = "", width: int = 0) -> Segment:
    """Return `text` in a colour, cut or filled to `width` cells where one is given."""
    return Segment(fit(text, width) if width else text, style(colour, on=on, bold=bold))


def muted(text: str, width: int = 0) -> Segment:
    """Return text that steps back: labels, units, what is not news."""
    return ink(text, palette.MUTED, width=width)


def faint(text: str, width: int = 0) -> Segment:
    """Return text that steps back further: rules, empty places."""
    return ink(text, palette.FAINT, width=width)


def rank_tag(rank: int, width: int = 0) -> Segment:
    """Return `r3` in the rank's colour; the launcher is `--`."""
    return ink(f"r{rank}" if rank >= 0 else "--", palette.rank_colour(rank), bold=True, width=width)


def fit(text: str, width: int, ellipsis: str = "") -> str:
    """Return text cut or filled with blanks to exactly `width` cells."""
    if cell_len(text) > width and ellipsis and width > 1:
        return set_cell_size(text, width - 1) + ellipsis
    return set_cell_size(text, width)


def clipped(text: str, width: int, ellipsis: str, *, start: int = 0) -> str:
    """Return what `width` cells show of `text` from `start` on, an ellipsis where some is left out."""
    shown = text[start:]
    if start and shown:
        shown = ellipsis + shown[1:]
    return fit(shown, width, ellipsis) if cell_len(shown) > width else shown


def right(text: str, width: int) -> str:
    """Return text at the right end of `width` cells."""
    return " " * max(0, width - cell_len(text)) + text


def wrap(text: str, width: int) -> list[str]:
    """Return text broken at blanks into lines of at most `width` cells."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        while cell_len(word) > width:
            head = word[: max(1, width)]
            lines += [line] if line else []
            line = ""
            lines.append(head)
            word = word[len(head) :]
        if line and cell_len(line) + 1 + cell_len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line] if line or not lines else lines


def progress_bar(done: float, width: int, glyphs: palette.Glyphs, colour: str) -> Line:
    """Return a bar of `width` cells, `done` from 0 to 1."""
    filled = round(max(0.0, min(1.0, done)) * width)
    return [ink(glyphs.bar * filled, colour), faint(glyphs.rest * (width - filled))]


def table(
    header: Iterable[str], rows: Iterable[Line], widths: Iterable[int], rights: frozenset[int] = frozenset()
) -> list[Line]:
    """Return a header and rows set in columns of the given widths, one blank between them."""
    columns = list(widths)
    lines: list[Line] = []
    for row in [[muted(text) for text in header], *rows]:
        line: Line = []
        for place, (cell, width) in enumerate(zip(row, columns, strict=False)):
            text = right(cell.text, width) if place in rights else cell.text
            line += [Segment(fit(text, width), cell.style), Segment(" ")]
        lines.append(line)
    return lines


def to_strip(line: Line) -> Strip:
    """Return the line as textual wants it."""
    return Strip(line)
