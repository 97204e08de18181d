"""What plots by plotext share: an empty figure in the house's style, and its text as styled lines."""

from __future__ import annotations

import io
from collections.abc import Sequence

import plotext
from rich.ansi import AnsiDecoder
from rich.console import Console

from workbench import palette
from workbench.panes.ink import Line

_ASCII_FRAME = str.maketrans(dict.fromkeys("┤├┬┴┼└┘┌┐", "+") | {"│": "|", "─": "-"})
_CONSOLE = Console(width=1000, file=io.StringIO())


def start_plot(width: int, height: int) -> None:
    """Begin a figure of so many cells, with axes on two sides only."""
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.limit_size(False, False)
    plotext.plotsize(width, height)
    plotext.grid(False, False)
    plotext.xaxes(True, False)
    plotext.yaxes(True, False)
    plotext.ticks_color(rgb(palette.MUTED))
    plotext.axes_color("default")


def sign_curves(curves: Sequence[tuple[str, str, Sequence[tuple[float, float]]]]) -> None:
    """Write on each curve (sign, colour, points) its sign, each elsewhere on the way: not all see colours."""
    for place, (sign, colour, points) in enumerate(curves, 1):
        step, value = points[place * (len(points) - 1) // (len(curves) + 1)]
        plotext.scatter([step], [value], color=rgb(colour), marker=sign)


def rgb(colour: str) -> tuple[int, int, int]:
    """Return a palette colour as plotext wants it."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def decode(text: str, *, ascii_only: bool = False) -> list[Line]:
    """Turn plotext's escape sequences into lines of styled segments."""
    plain = text.translate(_ASCII_FRAME) if ascii_only else text
    return [
        [segment for segment in line.render(_CONSOLE) if segment.text] for line in AnsiDecoder().decode(plain)
    ]
