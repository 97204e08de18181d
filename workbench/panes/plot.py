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
    parts = len(curves) + 1
    at = [_on_the_way(points, place / parts) for place, (_, _, points) in enumerate(curves, 1)]
    colours = [rgb(colour) for _, colour, _ in curves]
    plotext.scatter(*zip(*at, strict=True), color=colours, marker=[sign for sign, _, _ in curves])


def _on_the_way(points: Sequence[tuple[float, float]], share: float) -> tuple[float, float]:
    """The place on a curve after such a share of its segments."""
    segment, within = divmod(share * (len(points) - 1), 1)
    (x0, y0), (x1, y1) = points[int(segment)], points[min(int(segment) + 1, len(points) - 1)]
    return x0 + within * (x1 - x0), y0 + within * (y1 - y0)


def rgb(colour: str) -> tuple[int, int, int]:
    """Return a palette colour as plotext wants it."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def decode(text: str, *, ascii_only: bool = False) -> list[Line]:
    """Turn plotext's escape sequences into lines of styled segments."""
    plain = text.translate(_ASCII_FRAME) if ascii_only else text
    return [
        [segment for segment in line.render(_CONSOLE) if segment.text] for line in AnsiDecoder().decode(plain)
    ]
