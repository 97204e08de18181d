"""The grid of ranks with its axes, and under it the process groups of each axis."""

from __future__ import annotations

import itertools

from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, faint, ink, muted, rank_tag, wrap
from workbench.views.mesh import Axis, MeshSnapshot
from workbench.views.units import count


class MeshPane(Pane[MeshSnapshot]):
    """Who stands where, and who forms a group with whom."""

    NAME = "mesh"
    TITLE = "mesh"
    SPAN = 3
    WEIGHT = 14
    MAX_HZ = 2.0

    def lines(self, snapshot: MeshSnapshot, width: int, height: int) -> list[Line]:
        """Return the grid, one slice after another where there are more than two axes, and the groups."""
        if not snapshot.axes:
            self.say("")
            return self.waiting("waiting for the ranks to take their places")
        shape = "x".join(str(axis.size) for axis in snapshot.axes)
        self.say(f"{shape}, {count(sum(len(axis.groups) for axis in snapshot.axes), 'group')}")
        lines = self._grid(snapshot, width)
        if snapshot.tensor:
            lines.append([muted(f"below: {snapshot.tensor} before {self.glyphs.arrow} after")])
        for axis in snapshot.axes:
            lines += [[], *self._groups(axis, width)]
        return lines

    def _grid(self, snapshot: MeshSnapshot, width: int) -> list[Line]:
        *outer, last = snapshot.axes
        rows = outer[-1] if outer else None
        slices = outer[:-1]
        cell = min(9, max(4, (width - 16) // max(1, last.size)))
        lines: list[Line] = []
        for place in itertools.product(*(range(axis.size) for axis in slices)):
            where = ", ".join(f"{axis.name} {i}" for axis, i in zip(slices, place, strict=True))
            lines.append(
                [muted(f"{where}  " if where else "", 14), muted(f"{last.name} {self.glyphs.arrow}")]
            )
            for row in range(rows.size if rows else 1):
                prefix = (*place, row) if rows else place
                label = f"{rows.name} {row}" if rows else ""
                lines += self._row(snapshot, label, prefix, last.size, cell)
        return lines

    def _row(
        self, snapshot: MeshSnapshot, label: str, prefix: tuple[int, ...], size: int, cell: int
    ) -> list[Line]:
        ranks: Line = [muted(label, 14)]
        values: Line = [muted("", 14)]
        for column in range(size):
            rank = snapshot.rank_at((*prefix, column))
            before, after = snapshot.value_of(rank) if rank is not None else (None, None)
            ranks.append(faint(self.glyphs.dot, cell) if rank is None else rank_tag(rank, cell))
            values += self._change(before, after, cell)
        return [ranks, values] if snapshot.values else [ranks]

    def _change(self, before: float | None, after: float | None, cell: int) -> Line:
        """Both numbers where they fit; else the newer one."""
        old = "" if before is None else f"{before:g}"
        new = "" if after is None else f"{after:g}"
        both = f"{self.glyphs.arrow}{new}" if new else ""
        if len(old) + len(both) < cell:
            return [muted(old), ink(both, palette.STRONG), muted(" " * (cell - len(old) - len(both)))]
        return [ink(new, palette.STRONG, width=cell) if new else muted(old, cell)]

    def _groups(self, axis: Axis, width: int) -> list[Line]:
        lines: list[Line] = [
            [ink(axis.name, palette.STRONG, bold=True), muted(f"  {count(axis.size, 'rank')} a group")]
        ]
        if axis.crosses_nodes is not None:
            crosses = axis.crosses_nodes
            words = "crosses nodes" if crosses else "stays inside a node"
            lines.append([ink(f"  {words}", palette.WARN if crosses else palette.GOOD)])
        text = " ".join("[" + " ".join(map(str, group)) + "]" for group in axis.groups)
        return [*lines, *([ink(f"  {line}")] for line in wrap(text, width - 2))]
