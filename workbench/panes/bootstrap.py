"""The sleeps as bars, the ranks as they came, and a table of stages for each way of starting a group."""

from __future__ import annotations

from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, ink, muted, progress_bar, rank_tag, right
from workbench.views.bootstrap import BootstrapSnapshot, Life, Start
from workbench.views.units import duration

LABEL = 12
COLUMN = 13


class BootstrapPane(Pane[BootstrapSnapshot]):
    """A job comes to life, from the sleeps to the group."""

    NAME = "bootstrap"
    TITLE = "coming to life"
    SPAN = 4
    WEIGHT = 14
    MAX_HZ = 2.0

    def lines(self, snapshot: BootstrapSnapshot, width: int, height: int) -> list[Line]:
        """Return one block a stage of the job's life, the ranks first."""
        here = [life for life in snapshot.lives if life.pid >= 0]
        self.say(f"{len(here)} of {len(snapshot.lives)} ranks")
        if not here:
            return self.waiting("waiting for the first rank")
        lines = [self._life(life) for life in snapshot.lives]
        if snapshot.sleeps:
            lines += [[], [muted("sleeps, seconds")], *self._sleeps(snapshot, width)]
        if snapshot.keys is not None:
            lines += [
                [],
                [muted("keys in the store by hand  "), ink(str(snapshot.keys), palette.STRONG, bold=True)],
            ]
        for start in snapshot.starts:
            lines += [[], *_start(start, width)]
        return lines

    def _life(self, life: Life) -> Line:
        if life.pid < 0:
            return [rank_tag(life.rank, 5), muted("not here yet")]
        joined = "" if life.joined_ms is None else f"  joined in {duration(life.joined_ms / 1e3)}"
        return [
            rank_tag(life.rank, 5),
            ink(f"local {life.local_rank}"),
            muted(f" on {life.node}, pid {life.pid}{joined}"),
        ]

    def _sleeps(self, snapshot: BootstrapSnapshot, width: int) -> list[Line]:
        longest = max(seconds for _, seconds in snapshot.sleeps) or 1.0
        room = max(4, width - LABEL - 9)
        return [
            [
                ink(how, width=LABEL),
                *progress_bar(seconds / longest, room, self.glyphs, palette.ACCENT),
                ink(right(f"{seconds:.2f} s", 9), palette.STRONG),
            ]
            for how, seconds in snapshot.sleeps
        ]


def _start(start: Start, width: int) -> list[Line]:
    """Return the table of one way: a row a rank where its columns fit, else the slowest of each stage."""
    if width < LABEL + COLUMN * len(start.stages):
        told = [f"{stage} {_ms(start.slowest(place))}" for place, stage in enumerate(start.stages)]
        return [[ink(start.way, palette.STRONG, bold=True)], *([muted(f"  {line}")] for line in told)]
    head = [ink(start.way, palette.STRONG, bold=True, width=LABEL)]
    head += [muted(right(stage.removeprefix("first ")[: COLUMN - 1], COLUMN)) for stage in start.stages]
    rows: list[Line] = [
        [rank_tag(rank, LABEL), *(ink(right(_ms(ms), COLUMN)) for ms in times)]
        for rank, times in enumerate(start.ranks)
    ]
    return [head, *rows]


def _ms(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:.1f} ms"
