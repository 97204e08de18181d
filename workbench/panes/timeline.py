"""The timeline: one row a rank, time from left to right, spans as runs of equal cells."""

from __future__ import annotations

import re
from typing import ClassVar, cast

from rich.segment import Segment
from textual.binding import Binding, BindingType

from labs.parallel.schedule_actions import KIND_NAMES, Kind
from launcher.events import Lane
from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, faint, fit, ink, muted, rank_tag, style
from workbench.views.timeline import STEPS, Bar, Cell, TimelineRow, TimelineSnapshot, cells
from workbench.views.units import duration

LABEL = 4
ACTION = re.compile(r"\d+([FBIW])\d+")
TWO_ROWS: tuple[tuple[Lane, ...], ...] = (("optimizer", "compute"), ("idle", "comm"))


class TimelinePane(Pane[TimelineSnapshot]):
    """What each rank did in the last steps, or in those that the person turned to."""

    NAME = "timeline"
    TITLE = "timeline"
    SHORT = "time"
    SPAN = 4
    MAX_HZ = 1.0
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("less_than_sign", "turn(-1)", "step", key_display="< >"),
        Binding("greater_than_sign", "turn(1)", "next step", show=False),
        Binding("h", "choose(-1)", "span before", show=False),
        Binding("l", "choose(1)", "next span", show=False),
        Binding("plus,equals_sign", "widen(-1)", "zoom in: fewer steps", show=False),
        Binding("minus", "widen(1)", "zoom out: more steps", show=False),
    ]

    def __init__(self, *, ascii_only: bool = False, key: str = "") -> None:
        super().__init__(ascii_only=ascii_only, key=key)
        self._last: int | None = None
        self._count = STEPS
        self._chosen: int | None = None
        """The span under the cursor, counted over those in view of the first rank that is shown."""

    def action_choose(self, by: int) -> None:
        """Move the cursor to the next span of the rank; past the first or the last there is none."""
        bars = self._choices()
        if bars:
            at = (0 if by > 0 else len(bars) - 1) if self._chosen is None else self._chosen + by
            self._chosen = at if 0 <= at < len(bars) else None
        self._drawn = None
        self.redraw()

    def _window(self, snapshot: TimelineSnapshot) -> TimelineSnapshot:
        if snapshot.last_step < 0:
            return snapshot
        last = snapshot.last_step if self._last is None else self._last
        return snapshot.window(last, self._count)

    def _choices(self) -> list[Bar]:
        """The spans that the cursor can stand on, from left to right."""
        if self.shown is None:
            return []
        seen = self._window(self.shown)
        row = next((row for row in seen.rows if self.rank in (None, row.rank)), None)
        bars = row.bars if row is not None else ()
        return sorted((bar for bar in bars if bar.t1 > seen.t0 and bar.t0 < seen.t1), key=lambda bar: bar.t0)

    def _under_cursor(self) -> Bar | None:
        bars = self._choices() if self._chosen is not None else []
        return bars[self._chosen] if self._chosen is not None and self._chosen < len(bars) else None

    def chosen_span(self) -> str:
        """Return the name of the span under the cursor; an action's is that of its kind."""
        bar = self._under_cursor()
        if bar is None:
            return ""
        action = ACTION.fullmatch(bar.label)
        return KIND_NAMES[cast(Kind, action[1])] if action is not None else bar.label

    def action_turn(self, by: int) -> None:
        """Show the step before or after; past the newest one, follow the newest again."""
        if self.shown is None or not self.shown.kept:
            return
        newest = self.shown.last_step
        last = max(self.shown.oldest_step, (newest if self._last is None else self._last) + by)
        self._last = None if last >= newest else last
        self._drawn = None
        self.redraw()

    def action_widen(self, by: int) -> None:
        """Show twice or half as many steps."""
        self._count = max(1, self._count * 2 if by > 0 else self._count // 2)
        self._drawn = None
        self.redraw()

    def lines(self, snapshot: TimelineSnapshot, width: int, height: int) -> list[Line]:
        """Return one line a rank; with room two, one for computing and one for communicating."""
        snapshot = self._window(snapshot)
        self._say_range(snapshot)
        if snapshot.t1 <= snapshot.t0:
            return self.waiting(self._why_empty(snapshot))
        rows = [row for row in snapshot.rows if self.rank in (None, row.rank)]
        lines: list[Line] = []
        if height >= 2 * len(rows) + 2:
            for row in rows:
                lines += [self._row(row, snapshot, width, lanes, lanes == TWO_ROWS[0]) for lanes in TWO_ROWS]
        else:
            lines = [
                self._row(row, snapshot, width, ("idle", "comm", "optimizer", "compute"), True)
                for row in rows
            ]
        if height > len(lines):
            lines.append(self._axis(snapshot, width))
        return [*lines, self._legend()] if height > len(lines) else lines

    def _why_empty(self, snapshot: TimelineSnapshot) -> str:
        if any(row.bars for row in snapshot.kept):
            return "nothing was timed in these steps; < and > turn to others, - shows more of them"
        self.say("")
        return "the run timed nothing" if snapshot.over else "waiting for the first span"

    def _say_range(self, snapshot: TimelineSnapshot) -> None:
        bar = self._under_cursor()
        if bar is not None:
            self.say(
                f"{bar.lane}: {bar.label}, {duration((bar.t1 - bar.t0) / 1e9)} {self.glyphs.dot} o: source"
            )
        elif snapshot.first_step < 0:
            self.say("the whole run")
        else:
            first, last = snapshot.first_step, snapshot.last_step
            steps = f"step {last}" if first == last else f"steps {first} to {last}"
            hidden = snapshot.hidden
            told = "" if hidden is None else f"{hidden:.0%} of communication hidden {self.glyphs.dot} "
            self.say(told + steps)

    def _row(
        self,
        row: TimelineRow,
        snapshot: TimelineSnapshot,
        width: int,
        lanes: tuple[Lane, ...],
        tagged: bool,
    ) -> Line:
        found = cells(row.bars, snapshot.t0, snapshot.t1, max(1, width - LABEL), lanes)
        head = rank_tag(row.rank, LABEL) if tagged else ink(" " * LABEL)
        return [head, *(self._cell(cell) for cell in found)]

    def _cell(self, cell: Cell) -> Segment:
        if cell.lane is None:
            return faint(self.glyphs.unknown * cell.width)
        backward = cell.lane == "compute" and cell.label[:1] in ("b", "B")
        on = palette.BACKWARD if backward else palette.LANES[cell.lane]
        return Segment(label(cell), style(palette.ON_COLOUR, on=on))

    def _axis(self, snapshot: TimelineSnapshot, width: int) -> Line:
        span = duration((snapshot.t1 - snapshot.t0) / 1e9)
        room = max(0, width - LABEL - len(span) - 2)
        bar = self._under_cursor()
        if bar is not None:
            scale = (width - LABEL) / max(1, snapshot.t1 - snapshot.t0)
            start = max(0, int((bar.t0 - snapshot.t0) * scale))
            cells_of_it = max(1, round((bar.t1 - max(bar.t0, snapshot.t0)) * scale))
            return [
                ink(" " * (LABEL + start)),
                ink("^" * min(cells_of_it, width - LABEL - start), palette.WARN),
            ]
        return [ink(" " * LABEL), muted("0 "), faint(self.glyphs.rest * (room - 1)), muted(f" {span}")]

    def _legend(self) -> Line:
        line: Line = [ink(" " * LABEL)]
        for lane, colour in palette.LANES.items():
            line += [ink(f" {lane} ", palette.ON_COLOUR, on=colour), ink("  ")]
        return line


def label(cell: Cell) -> str:
    """Return the text in a run of cells: the name where it fits, else its first letter, and blanks."""
    text = cell.label if len(cell.label) < cell.width else cell.label[:1]
    return fit(text, cell.width) if cell.width > 1 else text or " "
