"""The timeline: one row a rank, time from left to right, spans as runs of equal cells."""

from __future__ import annotations

from rich.segment import Segment

from launcher.events import Lane
from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, faint, fit, ink, muted, rank_tag, style
from workbench.views.timeline import Cell, TimelineRow, TimelineSnapshot, cells
from workbench.views.units import duration

LABEL = 4
TWO_ROWS: tuple[tuple[Lane, ...], ...] = (("optimizer", "compute"), ("idle", "comm"))


class TimelinePane(Pane[TimelineSnapshot]):
    """What each rank did in the last steps."""

    NAME = "timeline"
    TITLE = "timeline"
    SHORT = "time"
    SPAN = 4
    MAX_HZ = 1.0

    def lines(self, snapshot: TimelineSnapshot, width: int, height: int) -> list[Line]:
        """Return one line a rank; with room two, one for computing and one for communicating."""
        if snapshot.t1 <= snapshot.t0:
            self.say("")
            return self.waiting("the run timed nothing" if snapshot.over else "waiting for the first span")
        self._say_range(snapshot)
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

    def _say_range(self, snapshot: TimelineSnapshot) -> None:
        if snapshot.first_step < 0:
            self.say("the whole run")
        elif snapshot.first_step == snapshot.last_step:
            self.say(f"step {snapshot.last_step}")
        else:
            self.say(f"steps {snapshot.first_step} to {snapshot.last_step}")

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
