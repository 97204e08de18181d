"""What each rank did, step by step: its spans, for a drawing with one row a rank."""

from __future__ import annotations

from collections import deque

import msgspec

from launcher.events import AnyEvent, Lane, Scalar, Span
from launcher.rundir import Manifest
from workbench.views.base import View

SPANS_A_RANK = 512
STEPS = 2
HIDDEN = "hidden_communication"


class Bar(msgspec.Struct, frozen=True):
    """One span: nanoseconds, lane, and the text to put into it."""

    t0: int
    t1: int
    lane: Lane
    label: str
    step: int = -1


class TimelineRow(msgspec.Struct, frozen=True):
    """One rank's spans in the order they ended."""

    rank: int
    bars: tuple[Bar, ...]


class TimelineSnapshot(msgspec.Struct, frozen=True):
    """The rows between `t0` and `t1` (ns); steps are -1 where the spans carry none.

    `kept` is all that is remembered; `window` cuts other steps from it.
    """

    rows: tuple[TimelineRow, ...]
    t0: int = 0
    t1: int = 0
    first_step: int = -1
    last_step: int = -1
    over: bool = False
    kept: tuple[TimelineRow, ...] = ()
    hidden: float | None = None
    """Which part of all communication ran while its rank computed, where a lab told it."""

    @property
    def oldest_step(self) -> int:
        """The first step of which something is kept."""
        return min((bar.step for row in self.kept for bar in row.bars), default=-1)

    def window(self, last: int, count: int) -> TimelineSnapshot:
        """Return the `count` steps up to `last`, as far as they are kept."""
        first = max(0, last - count + 1)
        rows = tuple(
            TimelineRow(row.rank, tuple(bar for bar in row.bars if first <= bar.step <= last))
            for row in self.kept
        )
        return msgspec.structs.replace(_between(rows, first, last, self.over, self.kept), hidden=self.hidden)


def _between(
    rows: tuple[TimelineRow, ...], first: int, last: int, over: bool, kept: tuple[TimelineRow, ...]
) -> TimelineSnapshot:
    times = [moment for row in rows for bar in row.bars for moment in (bar.t0, bar.t1)] or [0]
    return TimelineSnapshot(rows, min(times), max(times), first, last, over, kept)


class Cell(msgspec.Struct, frozen=True):
    """A run of equal cells of a row: `width` cells of one span, or of nothing."""

    width: int
    lane: Lane | None
    label: str


class TimelineView(View[TimelineSnapshot]):
    """Takes spans; shows the newest steps that every rank has finished, and what a lab says was hidden."""

    takes = (Span, Scalar)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._spans: dict[int, deque[Span]] = {
            rank: deque(maxlen=SPANS_A_RANK) for rank in range(manifest.world_size)
        }
        self._step: dict[int, int] = {}
        self._hidden: float | None = None

    def fold(self, event: AnyEvent) -> None:
        """Keep the span, and how far its rank is."""
        if isinstance(event, Scalar):
            if event.name == HIDDEN:
                self._hidden = event.value
            return
        assert isinstance(event, Span)
        if event.rank in self._spans:
            self._spans[event.rank].append(event)
            self._step[event.rank] = max(self._step.get(event.rank, -1), event.step)

    def build(self) -> TimelineSnapshot:
        """Return the newest steps."""
        last = min(self._step.values(), default=-1)
        if last > 0 and self.result is None:
            last -= 1
        kept = tuple(
            TimelineRow(rank, tuple(Bar(s.t, s.t1, s.lane, s.action or s.name, s.step) for s in spans))
            for rank, spans in self._spans.items()
        )
        over = self.result is not None
        if last < 0:
            return _between(kept, -1, -1, over, kept)
        return TimelineSnapshot((), over=over, kept=kept, hidden=self._hidden).window(last, STEPS)


PAINT: tuple[Lane, ...] = ("idle", "comm", "optimizer", "compute")
"""Where spans overlap, the later lane is seen: computing while communicating is computing."""


def cells(bars: tuple[Bar, ...], t0: int, t1: int, width: int, lanes: tuple[Lane, ...] = PAINT) -> list[Cell]:
    """Return a row of `width` cells as runs of equal cells, between the times `t0` and `t1` (ns)."""
    scale = width / max(1, t1 - t0)
    owners: list[int] = [-1] * width
    for lane in lanes:
        for index, bar in enumerate(bars):
            if bar.lane == lane and bar.t1 > t0 and bar.t0 < t1:
                start = min(width - 1, max(0, int((bar.t0 - t0) * scale)))
                stop = min(width, max(start + 1, round((bar.t1 - t0) * scale)))
                owners[start:stop] = [index] * (stop - start)
    runs: list[Cell] = []
    start = 0
    for place in range(1, width + 1):
        if place == width or owners[place] != owners[start]:
            owner = owners[start]
            bar_of = bars[owner] if owner >= 0 else None
            runs.append(Cell(place - start, bar_of.lane if bar_of else None, bar_of.label if bar_of else ""))
            start = place
    return runs
