"""Every colour and every glyph of the app, and nothing else: one colour a rank, one a phase, one a lane.

Colours are plain strings, so that this module loads no textual. Colour is never the only signal: each state
has a glyph and a word, each rank its number, each lane its letters.
"""

from __future__ import annotations

import msgspec

from launcher.events import Lane, PhaseName

RANKS = (
    "#4c9ee8",
    "#e8a33d",
    "#4fb38a",
    "#d9668b",
    "#9a85e0",
    "#b8a43a",
    "#45b3c4",
    "#e07a4f",
)
"""Rank r has the colour r modulo 8: distinct also with the common kinds of colour blindness, by lightness."""

PHASES: dict[PhaseName, str] = {
    "starting": "#8a93a6",
    "ready": "#4c9ee8",
    "running": "#4fb38a",
    "waiting": "#e8a33d",
    "done": "#7fae6d",
    "failed": "#e0575b",
}

LANES: dict[Lane, str] = {
    "compute": "#4c7fb8",
    "comm": "#c98a2e",
    "optimizer": "#8a6fc0",
    "idle": "#6b7280",
}

BACKWARD = "#3a5f8c"
"""Backward spans, a darker shade of the lane `compute`."""

ACTIONS = {
    "F": ("#6f9be8", "#5b86d1"),
    "B": ("#e8a05a", "#d18a45"),
    "I": ("#57bdb6", "#45a8a1"),
    "W": ("#7fbf72", "#6aa95e"),
}
"""Actions of a pipeline schedule, each in two shades: neighbouring micro-batches differ."""

GOOD = "#5fb878"
BAD = "#e0575b"
WARN = "#e8a33d"
ACCENT = "#6ea8e0"
MUTED = "#8a93a6"
FAINT = "#565e6e"
STRONG = "#d8dee9"
ON_COLOUR = "#10141c"
COMBINED = "#c5a5e8"

VIOLET = "#9a85e0"
BACKGROUND = "#12161e"
SURFACE = "#171c26"
PANEL = "#1e2430"

OF_SIXTEEN = {
    **dict(zip(RANKS, (12, 3, 2, 5, 13, 11, 6, 14), strict=True)),
    **dict(zip(PHASES.values(), (7, 12, 2, 3, 10, 9), strict=True)),
    **dict(zip(LANES.values(), (12, 3, 5, 8), strict=True)),
    **dict(zip(sum(ACTIONS.values(), ()), (12, 4, 11, 3, 14, 6, 10, 2), strict=True)),
    BACKWARD: 4,
    GOOD: 10,
    BAD: 9,
    ACCENT: 14,
    MUTED: 7,
    FAINT: 8,
    STRONG: 15,
    ON_COLOUR: 0,
    COMBINED: 13,
    BACKGROUND: 0,
    SURFACE: 0,
    PANEL: 0,
}
"""Numbers of the sixteen colours that every terminal has: the nearest ones would make eight ranks four, and
red, which means failed here, of every orange."""
DARK = (0, 1, 4, 5, 8)
"""Those of the sixteen on which only white can be read."""


def rank_colour(rank: int) -> str:
    """Return the colour of a rank; of the launcher (rank -1) the muted one."""
    return RANKS[rank % len(RANKS)] if rank >= 0 else MUTED


class Glyphs(msgspec.Struct, frozen=True):
    """The drawing characters: one set for UTF-8 terminals, one of plain ASCII."""

    phases: dict[PhaseName, str]
    passed: str
    failed: str
    unknown: str
    bar: str
    rest: str
    spark: str
    rule: str
    cut: str
    arrow: str
    times: str
    combined: str
    unwritten: str
    ellipsis: str
    dot: str
    bullet: str
    digits: str
    marker: str
    equals: str
    differs: str
    marked: str


UNICODE = Glyphs(
    phases={"starting": "○", "ready": "◔", "running": "●", "waiting": "◌", "done": "✓", "failed": "✗"},
    passed="✓",
    failed="✗",
    unknown="·",
    bar="━",
    rest="─",
    spark="▁▂▃▄▅▆▇█",
    rule="─",
    cut="│",
    arrow="→",
    times="×",
    combined="Σ",
    unwritten="·",
    ellipsis="…",
    dot="·",
    bullet="·",
    digits="₀₁₂₃₄₅₆₇₈₉",
    marker="braille",
    equals="=",
    differs="≠",
    marked="◆",
)

ASCII = Glyphs(
    phases={"starting": "o", "ready": "r", "running": "*", "waiting": "w", "done": "+", "failed": "x"},
    passed="+",
    failed="x",
    unknown=".",
    bar="=",
    rest="-",
    spark="_.-:=+*#",
    rule="-",
    cut="|",
    arrow="->",
    times="x",
    combined="S",
    unwritten=".",
    ellipsis="~",
    dot="|",
    bullet="-",
    digits="0123456789",
    marker="digits",
    equals="=",
    differs="!",
    marked="@",
)


def glyphs(ascii_only: bool) -> Glyphs:
    """Return the glyphs to draw with."""
    return ASCII if ascii_only else UNICODE
