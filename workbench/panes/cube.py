"""The ranks as a cube of slices, each with its action and the group it talked in; under it bytes by axis."""

from __future__ import annotations

import itertools

from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, faint, fit, ink, muted, rank_tag, table, wrap
from workbench.views.cube import AxisTraffic, CubeSnapshot, Talk
from workbench.views.units import size

LABEL = 6
TAG, ACTION, GROUP = 4, 5, 4
CELL = TAG + ACTION + GROUP
GAP = 3
HEADER = ["group", "ranks", "link", "calls", "a step", "theory"]
WIDTHS = [9, 5, 7, 5, 8, 8]
NARROW = (0, 1, 2, 4)
NOW = 24
"""Cells that the column of talks needs to be worth showing."""


class CubePane(Pane[CubeSnapshot]):
    """Who stands where, does what, talks to whom; and what each axis moves."""

    NAME = "cube"
    TITLE = "cube"
    SPAN = 3
    WEIGHT = 24
    MAX_HZ = 2.0

    def lines(self, snapshot: CubeSnapshot, width: int, height: int) -> list[Line]:
        """Return the slices, as many beside each other as there is room for, and the axes."""
        if not snapshot.names:
            self.say("")
            return self.waiting("waiting for the ranks to take their places")
        axes = " x ".join(
            f"{name} {length}" for name, length in zip(snapshot.names, snapshot.shape, strict=True)
        )
        self.say(axes)
        return [*self._slices(snapshot, width), [], *self._axes(snapshot, width)]

    def _slices(self, snapshot: CubeSnapshot, width: int) -> list[Line]:
        columns = snapshot.shape[-1]
        cell = max(TAG, min(CELL, (width - LABEL) // columns))
        wide = LABEL + cell * columns
        beside = max(1, (width + GAP) // (wide + GAP))
        outer = list(itertools.product(*(range(length) for length in snapshot.shape[:-2])))
        lines: list[Line] = []
        for start in range(0, len(outer), beside):
            blocks = [self._slice(snapshot, place, cell) for place in outer[start : start + beside]]
            for parts in zip(*blocks, strict=True):
                line: Line = []
                for part in parts:
                    line += [*([faint(" " * GAP)] if line else []), *part]
                lines.append(line)
        return lines

    def _slice(self, snapshot: CubeSnapshot, place: tuple[int, ...], cell: int) -> list[Line]:
        """One slice: the last axis to the right, the one before it downwards."""
        *outer, down, across = snapshot.names
        where = " ".join(f"{name} {at}" for name, at in zip(outer, place, strict=True))
        head: Line = [ink(where, palette.STRONG, bold=True, width=LABEL)]
        head += [muted(f"{across} {column}", cell) for column in range(snapshot.shape[-1])]
        lines = [head]
        for row in range(snapshot.shape[-2]):
            line: Line = [muted(f"{down} {row}", LABEL)]
            for column in range(snapshot.shape[-1]):
                line += self._cell(snapshot, snapshot.rank_at((*place, row, column)), cell)
            lines.append(line)
        return lines

    def _cell(self, snapshot: CubeSnapshot, rank: int | None, cell: int) -> Line:
        if rank is None:
            return [faint(self.glyphs.dot, cell)]
        if cell < TAG + ACTION:
            return [rank_tag(rank, cell)]
        action = dict(snapshot.doing).get(rank, "")
        group = dict(snapshot.talking).get(rank, "")
        kind = next((letter for letter in action if letter in palette.ACTIONS), "")
        colour = palette.ACTIONS[kind][0] if kind else palette.MUTED
        rest = cell - TAG - ACTION
        shown = [rank_tag(rank, TAG), ink(action, colour, width=ACTION)]
        return [*shown, muted(fit(group[: GROUP - 1], rest))] if rest else shown

    def _axes(self, snapshot: CubeSnapshot, width: int) -> list[Line]:
        left = width - sum(WIDTHS) - len(WIDTHS)
        with_now = left >= NOW and not snapshot.over
        rows = [self._axis(axis, left if with_now else 0) for axis in snapshot.traffic]
        if with_now:
            lines = table([*HEADER, "now"], rows, [*WIDTHS, left - 1], frozenset({1, 3, 4, 5}))
        elif left >= 0:
            lines = table(HEADER, rows, WIDTHS, frozenset({1, 3, 4, 5}))
        else:
            rows = [[row[column] for column in NARROW] for row in rows]
            header, widths = [HEADER[column] for column in NARROW], [WIDTHS[column] for column in NARROW]
            lines = table(header, rows, widths, frozenset({1, 3}))
        if not with_now and not snapshot.over:
            talks = [(axis, axis.now) for axis in snapshot.traffic if axis.now]
            lines += [[muted(axis.name, 10), *self._talks(now, width - 10)] for axis, now in talks]
        crossing = [axis.name for axis in snapshot.traffic if axis.crosses_nodes]
        if snapshot.names[-1] in crossing:
            text = f"{snapshot.names[-1]} crosses nodes: it talks in every layer, over the slow link"
            lines += [[], *([ink(line, palette.WARN)] for line in wrap(text, width))]
        return lines

    def _axis(self, axis: AxisTraffic, room: int) -> Line:
        links = {None: ("-", palette.MUTED), False: ("inside", palette.GOOD), True: ("crosses", palette.WARN)}
        link, colour = links[axis.crosses_nodes]
        agrees = axis.bytes_step == axis.theory
        line = [
            ink(axis.name, palette.STRONG, bold=True),
            ink(str(axis.size)),
            ink(link, colour),
            ink("-" if axis.calls_step < 0 else str(axis.calls_step)),
            ink(size(axis.bytes_step), palette.GOOD if agrees else ""),
            muted(size(axis.theory)),
        ]
        if not room:
            return line
        return [*line, ink("".join(segment.text for segment in self._talks(axis.now, room - 1)))]

    def _talks(self, talks: tuple[Talk, ...], width: int) -> Line:
        texts = []
        for talk in talks:
            if talk.name == "send":
                texts.append(f"{talk.ranks[0]}{self.glyphs.arrow}{talk.ranks[1]}")
            else:
                texts.append("[" + " ".join(map(str, talk.ranks)) + "]")
        return [ink(fit(" ".join(texts), width, self.glyphs.ellipsis))]
