"""Buffers before and after: each element with the rank it came from, as a number and as a colour."""

from __future__ import annotations

from rich.segment import Segment

from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, ink, muted, rank_tag, right
from workbench.views.buffers import COMBINED, UNWRITTEN, Buffer, BufferBlock, BufferRow, BuffersSnapshot

LABEL = 4
MOMENTS = ("before", "after")


class BuffersPane(Pane[BuffersSnapshot]):
    """Each rank's buffer before and after each collective."""

    NAME = "buffers"
    TITLE = "buffers"
    SPAN = 6
    WEIGHT = 16

    def lines(self, snapshot: BuffersSnapshot, width: int, height: int) -> list[Line]:
        """Return a block an operation, with what the marks mean on top."""
        if not snapshot.blocks:
            self.say("")
            return self.waiting("the run told no buffer" if snapshot.over else "waiting for the first buffer")
        count = len(snapshot.blocks)
        self.say("1 operation" if count == 1 else f"{count} operations")
        lines = [self._legend()]
        for block in snapshot.blocks:
            lines += [*self._block(block, width), []]
        return lines[:-1]

    def _legend(self) -> Line:
        return [
            muted("7"),
            ink(self._from(0), palette.rank_colour(0)),
            muted(" came from rank 0   "),
            ink(f"7{self.glyphs.combined}", palette.COMBINED),
            muted(" combined from several ranks   "),
            muted(f"{self.glyphs.unwritten} never written"),
        ]

    def _from(self, rank: int) -> str:
        digits = "".join(self.glyphs.digits[int(digit)] for digit in str(rank))
        return f"'{digits}" if self.ascii_only else digits

    def _block(self, block: BufferBlock, width: int) -> list[Line]:
        shape = self.glyphs.times.join(map(str, block.shape))
        title: Line = [ink(block.name, palette.ACCENT, bold=True), muted(f"  {block.dtype}, {shape}")]
        buffers = [buffer for row in block.rows for buffer in (row.before, row.after) if buffer is not None]
        cell = max((len(self._text(b, i)) for b in buffers for i in range(len(b.values))), default=1) + 1
        count = max((len(buffer.values) for buffer in buffers), default=0)
        told = [m for m in MOMENTS if any(getattr(row, m) is not None for row in block.rows)]
        arrow = f"  {self.glyphs.arrow}  "
        if LABEL + len(told) * (count * cell + len(arrow)) <= width:
            return [title, *(self._side_by_side(row, told, cell, count) for row in block.rows)]
        lines = [title]
        fitting = min(count, (width - LABEL - 2) // cell)
        for moment in told:
            lines.append([muted(moment)])
            lines += [
                [rank_tag(row.rank, LABEL), *self._cells(getattr(row, moment), cell, count, fitting)]
                for row in block.rows
            ]
        return lines

    def _side_by_side(self, row: BufferRow, told: list[str], cell: int, count: int) -> Line:
        line: Line = [rank_tag(row.rank, LABEL)]
        for place, moment in enumerate(told):
            line += [muted(f"  {self.glyphs.arrow}  ")] if place else []
            line += self._cells(getattr(row, moment), cell, count, count)
        return line

    def _cells(self, buffer: Buffer | None, cell: int, count: int, fitting: int) -> Line:
        """Draw `fitting` of `count` elements, each in `cell` cells."""
        if buffer is None or not buffer.values:
            text = " not told" if buffer is None else " nothing"
            return [muted(text.ljust(cell * fitting))]
        shown = [
            ink(right(self._text(buffer, place), cell), _colour(buffer.origin[place]))
            for place in range(min(fitting, len(buffer.values)))
        ]
        missing = fitting - len(shown)
        tail = [muted(f" {self.glyphs.ellipsis}")] if fitting < len(buffer.values) else []
        return [*shown, Segment(" " * (cell * missing)), *tail] if count else []

    def _text(self, buffer: Buffer, place: int) -> str:
        origin = buffer.origin[place] if place < len(buffer.origin) else COMBINED
        if origin == UNWRITTEN:
            return self.glyphs.unwritten
        mark = self.glyphs.combined if origin == COMBINED else self._from(origin)
        return f"{buffer.values[place]:.5g}{mark}"


def _colour(origin: int) -> str:
    if origin == UNWRITTEN:
        return palette.FAINT
    return palette.COMBINED if origin == COMBINED else palette.rank_colour(origin)
