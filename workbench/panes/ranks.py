"""The rank grid: one line a rank with its phase, step, and whether its parameters equal the others'."""

from __future__ import annotations

from rich.segment import Segment

from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, fit, ink, muted, rank_tag, right
from workbench.views.ranks import RankRow, RanksSnapshot


class RanksPane(Pane[RanksSnapshot]):
    """Phase, step and in-sync light of every rank."""

    NAME = "ranks"
    TITLE = "ranks"
    MAX_HZ = 2.0

    def lines(self, snapshot: RanksSnapshot, width: int, height: int) -> list[Line]:
        """Return one line a rank."""
        self._say_sync(snapshot)
        return [self._row(row, width) for row in snapshot.rows]

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
