"""What the ranks printed: all of it, or that of the rank that was chosen."""

from __future__ import annotations

from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, clipped, ink, muted, rank_tag
from workbench.views.log import LogSnapshot


class LogPane(Pane[LogSnapshot]):
    """The log of one rank or of all."""

    NAME = "log"
    TITLE = "log"
    SPAN = 6
    WEIGHT = 6
    FOLLOW = True

    def lines(self, snapshot: LogSnapshot, width: int, height: int) -> list[Line]:
        """Return the lines of the chosen rank; lines on stderr are marked."""
        self.say("[ ] all ranks" if self.rank is None else f"[ ] rank {self.rank}")
        shown = [line for line in snapshot.lines if self.rank is None or line.rank == self.rank]
        if not shown:
            who = "the ranks" if self.rank is None else f"rank {self.rank}"
            return self.waiting(f"{who} printed nothing{'' if snapshot.over else ' yet'}")
        lines: list[Line] = []
        if snapshot.older:
            lines.append([muted(f"({snapshot.older} older lines are in the run's folder)")])
        for line in shown:
            colour = palette.WARN if line.stream == "stderr" else ""
            mark = "! " if line.stream == "stderr" else "  "
            text = clipped(line.text, width - 6, self.glyphs.ellipsis)
            lines.append([rank_tag(line.rank, 4), ink(mark, colour), ink(text, colour)])
        return lines
