"""What each rank did in the last few steps: its spans, for a drawing with one row a rank."""

from __future__ import annotations

from collections import deque

import msgspec

from launcher.events import AnyEvent, Lane, Span
from launcher.rundir import Manifest
from workbench.views.base import View

SPANS_A_RANK = 512
STEPS = 2


class Bar(msgspec.Struct, frozen=True):
    """One span: nanoseconds, lane, and the text to put into it."""

    t0: int
    t1: int
    lane: Lane
    label: str


class TimelineRow(msgspec.Struct, frozen=True):
    """One rank's spans in the order they ended."""

    rank: int
    bars: tuple[Bar, ...]


class TimelineSnapshot(msgspec.Struct, frozen=True):
    """The rows between `t0` and `t1` (ns); steps are -1 where the spans carry none."""

    rows: tuple[TimelineRow, ...]
    t0: int = 0
    t1: int = 0
    first_step: int = -1
    last_step: int = -1
    over: bool = False


class Cell(msgspec.Struct, frozen=True):
    """A run of equal cells of a row: `width` cells of one span, or of nothing."""

    width: int
    lane: Lane | None
    label: str


class TimelineView(View[TimelineSnapshot]):
    """Takes spans; shows the newest steps that every rank has finished."""

    takes = (Span,)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._spans: dict[int, deque[Span]] = {
            rank: deque(maxlen=SPANS_A_RANK) for rank in range(manifest.world_size)
        }
        self._step: dict[int, int] = {}

    def fold(self, event: AnyEvent) -> None:
        """Keep the span, and how far its rank is."""
        assert isinstance(event, Span)
        if event.rank in self._spans:
            self._spans[event.rank].append(event)
            self._step[event.rank] = max(self._step.get(event.rank, -1), event.step)

    def build(self) -> TimelineSnapshot:
        """Return the newest steps."""
        last = min(self._step.values(), default=-1)
        if last > 0 and self.result is None:
            last -= 1
        first = max(0, last - STEPS + 1) if last >= 0 else -1
        kept = {
            rank: [span for span in spans if last < 0 or first <= span.step <= last]
            for rank, spans in self._spans.items()
        }
        times = [moment for spans in kept.values() for span in spans for moment in (span.t, span.t1)]
        rows = tuple(
            TimelineRow(rank, tuple(Bar(s.t, s.t1, s.lane, s.action or s.name) for s in spans))
            for rank, spans in kept.items()
        )
        over = self.result is not None
        if not times:
            return TimelineSnapshot(rows, over=over)
        return TimelineSnapshot(rows, min(times), max(times), first, last, over)


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
