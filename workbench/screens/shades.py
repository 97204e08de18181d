"""The app's themes, and the palette under others: darker text on a light background, or sixteen colours.

Panes name their colours in `workbench.palette`, made for a dark background. On a light one, whatever would be
too pale to read is darkened as it is written; under the theme of sixteen colours each becomes one of those
that every terminal has, as the terminal itself shows them.
"""

from __future__ import annotations

import os
from functools import lru_cache

from rich.color import Color as RichColor
from rich.color import ColorSystem
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import Theme

from workbench import palette

READABLE = 4.0
"""Least contrast between text and background, as WCAG defines it."""
DARKER = 0.88
THEME = Theme(
    name="worldsize",
    primary=palette.ACCENT,
    secondary=palette.VIOLET,
    accent=palette.WARN,
    warning=palette.WARN,
    error=palette.BAD,
    success=palette.GOOD,
    foreground=palette.STRONG,
    background=palette.BACKGROUND,
    surface=palette.SURFACE,
    panel=palette.PANEL,
)
LIGHT = Theme(
    name="worldsize-light",
    primary="#1f5fa8",
    secondary="#5b45b0",
    accent="#9a6200",
    warning="#9a6200",
    error="#b3262b",
    success="#1f7a3d",
    foreground="#1a2030",
    background="#fafbfc",
    surface="#eef1f5",
    panel="#dfe4ec",
    dark=False,
)
SIXTEEN = Theme(
    name="worldsize-16",
    primary="#5555ff",
    secondary="#aa00aa",
    accent="#aa5500",
    warning="#aa5500",
    error="#aa0000",
    success="#00aa00",
    foreground=palette.STRONG,
    background="#000000",
    surface="#000000",
    panel="#000000",
    variables={"panel-lighten-1": palette.MUTED},
)


class Readable(LineFilter):
    """Darkens text that is too pale for what it stands on."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments in colours that can be read on `background`."""
        ground = ColorTriplet(*background.rgb)
        return [
            Segment(text, darkened(style, ground) if style is not None else None, control)
            for text, style, control in segments
        ]


class Sixteen(LineFilter):
    """Replaces each colour by one of the sixteen."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments in the terminal's own colours."""
        return [
            Segment(text, of_sixteen(style) if style is not None else None, control)
            for text, style, control in segments
        ]


READABLE_FILTER, SIXTEEN_FILTER = Readable(), Sixteen()


def heed_no_color() -> None:
    """Forget a NO_COLOR that is set to nothing: it asks for nothing, but Textual takes it for a wish."""
    if not os.environ.get("NO_COLOR"):
        os.environ.pop("NO_COLOR", None)


def filters_of(theme: Theme) -> tuple[LineFilter, ...]:
    """Return what a theme needs between the panes and the terminal."""
    if theme.name == SIXTEEN.name:
        return (SIXTEEN_FILTER,)
    return () if theme.dark else (READABLE_FILTER,)


def luminance(colour: ColorTriplet) -> float:
    """Return the relative luminance of a colour, from 0 (black) to 1."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: ColorTriplet, other: ColorTriplet) -> float:
    """Return the contrast of two colours, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@lru_cache(2048)
def darkened(style: Style, background: ColorTriplet) -> Style:
    """Return the style with text dark enough to be read; what is darker than its ground stays."""
    if style.color is None or style.color.triplet is None:
        return style
    ground = style.bgcolor.triplet if style.bgcolor is not None and style.bgcolor.triplet else background
    front = style.color.triplet
    if luminance(ground) < 0.3:
        return style
    while contrast(front, ground) < READABLE and max(front) > 8:
        front = ColorTriplet(*(int(part * DARKER) for part in front))
    return style + Style(color=RichColor.from_triplet(front))


@lru_cache(2048)
def of_sixteen(style: Style) -> Style:
    """Return the style in the sixteen colours."""
    front = _of_sixteen(style.color) if style.color is not None else None
    back = _of_sixteen(style.bgcolor) if style.bgcolor is not None else None
    if front is not None and back is not None:
        on_dark = back.number in palette.DARK
        alike = (front.number in palette.DARK) == on_dark
        if front == back or (alike and back.number != 0):
            front = RichColor.from_ansi(15 if on_dark else 0)
    return style + Style(color=front, bgcolor=back)


def _of_sixteen(colour: RichColor) -> RichColor:
    """The palette's own choice, for any other colour (of Textual's, or a blend) the nearest."""
    number = palette.OF_SIXTEEN.get(colour.triplet.hex) if colour.triplet is not None else None
    return RichColor.from_ansi(number) if number is not None else colour.downgrade(ColorSystem.STANDARD)
