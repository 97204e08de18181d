"""The communication table: operation, group, calls, bytes, time; and who waits for whom."""

from __future__ import annotations

from rich.segment import Segment

from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, fit, ink, muted, rank_tag, table
from workbench.views.communication import CommunicationSnapshot, Pending, Traffic
from workbench.views.units import duration, size

WIDE = 64


class CommunicationPane(Pane[CommunicationSnapshot]):
    """Which bytes moved, in which group, and how long it took."""

    NAME = "communication"
    TITLE = "communication"
    SHORT = "comm"
    MAX_HZ = 1.0

    def lines(self, snapshot: CommunicationSnapshot, width: int, height: int) -> list[Line]:
        """Return the table and, under it, the ranks that wait."""
        if not snapshot.rows and not snapshot.pending:
            self.say("")
            ended = "nothing was communicated"
            return self.waiting(ended if snapshot.over else "waiting for the first collective")
        total = sum(max(0, row.bytes_rank) for row in snapshot.rows)
        self.say(f"{size(total)} a rank")
        lines = self._wide(snapshot, width) if width >= WIDE else self._narrow(snapshot, width)
        if snapshot.pending and not snapshot.over:
            lines += [[], *(self._waiting_line(pending) for pending in snapshot.pending)]
        return lines

    def _wide(self, snapshot: CommunicationSnapshot, width: int) -> list[Line]:
        name = min(24, max(10, width - 62))
        widths = [name, 10, 7, 10, 10, 9, 9]
        header = ["operation", "group", "calls", "a call", "a rank", "mean", "in all"]
        rows = [
            [
                ink(row.name),
                muted(row.group or "world"),
                self._calls(row),
                ink(size(row.bytes_call)),
                ink(size(row.bytes_rank)),
                ink(duration(row.mean_s)),
                ink(duration(row.total_s)),
            ]
            for row in snapshot.rows
        ]
        return table(header, rows, widths, frozenset({2, 3, 4, 5, 6}))

    def _narrow(self, snapshot: CommunicationSnapshot, width: int) -> list[Line]:
        widths = [max(6, width - 23), 5, 7, 7]
        rows = [
            [
                ink(fit(_name(row), widths[0], self.glyphs.ellipsis)),
                self._calls(row),
                ink(size(row.bytes_rank)),
                ink(duration(row.mean_s)),
            ]
            for row in snapshot.rows
        ]
        return table(["operation", "calls", "a rank", "mean"], rows, widths, frozenset({1, 2, 3}))

    def _calls(self, row: Traffic) -> Segment:
        if row.fewest_calls < row.calls:
            return ink(f"{row.fewest_calls}-{row.calls}", palette.WARN)
        return ink(str(row.calls))

    def _waiting_line(self, pending: Pending) -> Line:
        seq = f" #{pending.seq}" if pending.seq >= 0 else ""
        group = f" in {pending.group}" if pending.group else ""
        glyph = self.glyphs.phases["waiting"]
        text = f"{glyph} waits in {pending.name or 'a collective'}{seq}{group}"
        return [rank_tag(pending.rank, 4), ink(text, palette.WARN)]


def _name(row: Traffic) -> str:
    """The operation, with its group where that is not the world."""
    return row.name if row.group in ("", "world") else f"{row.name}@{row.group}"
