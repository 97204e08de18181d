"""The rank grid: one line a rank with its phase, step, and whether its parameters equal the others'."""

from __future__ import annotations

from rich.segment import Segment

from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, fit, ink, muted, rank_tag, right
from workbench.views.ranks import RankRow, RanksSnapshot

FEW = 16
"""So many ranks have a line each, even where one has to scroll."""
FIRST = 3
"""How many lines of ranks that stand out go before the cells of all."""
CELL = 2
"""Cells of a rank beside its number."""


class RanksPane(Pane[RanksSnapshot]):
    """Phase, step and in-sync light of every rank."""

    NAME = "ranks"
    TITLE = "ranks"
    MAX_HZ = 2.0

    def lines(self, snapshot: RanksSnapshot, width: int, height: int) -> list[Line]:
        """Return one line a rank; of very many a cell each, and a line for those that stand out."""
        self._say_sync(snapshot)
        if len(snapshot.rows) <= max(height, FEW):
            return [self._row(row, width) for row in snapshot.rows]
        special = [self._row(row, width) for row in snapshot.rows if self._stands_out(row)]
        return [
            self._summary(snapshot),
            *special[:FIRST],
            *self._cells(snapshot, width),
            *special[FIRST:],
        ]

    def _stands_out(self, row: RankRow) -> bool:
        return bool(row.detail) or row.phase == "failed" or row.sync == "differs" or row.rank == self.rank

    def _summary(self, snapshot: RanksSnapshot) -> Line:
        """How many ranks are in each phase, and between which steps they are."""
        phases = [row.phase for row in snapshot.rows if not row.stopped]
        line: Line = []
        for phase, colour in palette.PHASES.items():
            if count := phases.count(phase):
                line.append(ink(f"{self.glyphs.phases[phase]} {count} {phase}  ", colour))
        if stopped := len(snapshot.rows) - len(phases):
            line.append(muted(f"{self.glyphs.unknown} {stopped} stopped  "))
        steps = sorted({row.step for row in snapshot.rows if row.step >= 0})
        if steps:
            span = f"{steps[0]}-{steps[-1]}" if len(steps) > 1 else f"{steps[0]}"
            line.append(muted(f"step {span}"))
        return line

    def _cells(self, snapshot: RanksSnapshot, width: int) -> list[Line]:
        """A cell a rank: its number, the glyph of its phase, a mark where its parameters differ."""
        digits = len(str(snapshot.rows[-1].rank))
        each = max(1, width // (digits + CELL))
        cells = [self._cell(row, digits) for row in snapshot.rows]
        rows = [cells[start : start + each] for start in range(0, len(cells), each)]
        return [[segment for cell in row for segment in cell] for row in rows]

    def _cell(self, row: RankRow, digits: int) -> Line:
        glyph = self.glyphs.unknown if row.stopped else self.glyphs.phases[row.phase]
        colour = palette.MUTED if row.stopped else palette.PHASES[row.phase]
        wrong = self.glyphs.differs if row.sync == "differs" else " "
        number = ink(right(str(row.rank), digits), palette.rank_colour(row.rank), bold=row.rank == self.rank)
        return [number, ink(glyph, colour, bold=True), ink(wrong, palette.BAD, bold=True)]

    def _say_sync(self, snapshot: RanksSnapshot) -> None:
        if snapshot.sync == "equal":
            self.say(f"parameters {self.glyphs.equals} at step {snapshot.sync_step}")
        elif snapshot.sync == "differs":
            self.say(f"parameters {self.glyphs.differs} at step {snapshot.sync_step}")
        else:
            self.say("" if snapshot.heard else "waiting for the first rank")

    def _row(self, row: RankRow, width: int) -> Line:
        phase = "stopped" if row.stopped else row.phase
        colour = palette.MUTED if row.stopped else palette.PHASES[row.phase]
        glyph = self.glyphs.unknown if row.stopped else self.glyphs.phases[row.phase]
        step = f"{row.step}/{row.total_steps}" if row.total_steps > 0 else ""
        light, digest = self._light(row), row.digest[:8] if row.digest else f"pid {row.pid}" * bool(row.pid)
        line = [
            rank_tag(row.rank, 4),
            ink(right(step, max(7, len(step)))),
            ink(f" {glyph} {phase} ", colour, bold=row.phase == "failed"),
        ]
        room = width - sum(segment.cell_length for segment in line) - 2
        if row.detail or room < len(digest):
            return [*line, ink(fit(row.detail, room, self.glyphs.ellipsis), colour), ink(" "), light]
        return [*line, ink(" " * (room - len(digest))), light, ink(" "), muted(digest)]

    def _light(self, row: RankRow) -> Segment:
        match row.sync:
            case "equal":
                return ink(self.glyphs.equals, palette.GOOD, bold=True)
            case "differs":
                return ink(self.glyphs.differs, palette.BAD, bold=True)
        return muted(" ")
