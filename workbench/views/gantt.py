"""The schedule in time: for each rank what was planned and what was measured, with the bubble of both.

The plan comes from the worker, before the first step or, unpaced, after it; measured actions are the compute
spans that carry an action. Both start at 0 ms, so that one can be read above the other.
"""

from __future__ import annotations

import msgspec

from labs.parallel.schedule_actions import Action, Kind, ScheduleError, parse_action
from labs.parallel.schedule_simulator import Timed, alive_activations, bubbles_of, makespan_of
from launcher.events import AnyEvent, Plan, Span
from launcher.rundir import Manifest
from workbench.views.base import View

STEPS_KEPT = 8
LANES_AT_MOST = 64
NS_A_MS = 1e6


class GanttAction(msgspec.Struct, frozen=True):
    """One action: its text form (`2F0`), its parts, and when it ran, in ms from the step's first action."""

    text: str
    kind: Kind
    stage: int
    micro_batch: int
    start: float
    end: float


class Measures(msgspec.Struct, frozen=True):
    """What a whole step came to: time in ms, the three bubbles as shares, peak activations rank by rank.

    Activations count in micro-batches of one rank's full depth.
    """

    makespan: float
    idle_over_ideal: float
    idle_over_total: float
    zero_bubble: float
    peaks: tuple[float, ...]


class Chart(msgspec.Struct, frozen=True):
    """One lane a rank; `measures` is None while the step goes on."""

    lanes: tuple[tuple[GanttAction, ...], ...]
    measures: Measures | None = None
    step: int = -1

    @property
    def end(self) -> float:
        """When the last action ends, in ms."""
        return max((lane[-1].end for lane in self.lanes if lane), default=0.0)


class GanttSnapshot(msgspec.Struct, frozen=True):
    """The plan, and the newest steps, oldest first; the last one may still go on."""

    world_size: int
    name: str = ""
    planned: Chart | None = None
    steps: tuple[Chart, ...] = ()
    total_steps: int = -1
    paced_ms: float = 0.0
    over: bool = False


class GanttView(View[GanttSnapshot]):
    """Takes the plan and the compute spans that are actions of a schedule."""

    takes = (Plan, Span)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._name = ""
        self._planned: Chart | None = None
        self._origin: dict[int, int] = {}
        self._lanes: dict[int, list[list[tuple[Action, int, int]]]] = {}
        self._done: dict[int, Chart] = {}

    def fold(self, event: AnyEvent) -> None:
        """Keep the plan, or one more measured action."""
        if isinstance(event, Plan):
            self._name = event.name
            self._planned = _planned(event)
        elif isinstance(event, Span) and event.action and event.lane == "compute":
            self._action(event)

    def _action(self, span: Span) -> None:
        try:
            action = parse_action(span.action)
        except ScheduleError:
            return
        if not 0 <= span.rank < self.manifest.world_size or span.step in self._done:
            return
        lanes = self._lanes.setdefault(span.step, [[] for _ in range(self.manifest.world_size)])
        lanes[span.rank].append((action, span.t, span.t1))
        self._origin[span.step] = min(self._origin.get(span.step, span.t), span.t)
        if self._is_whole(lanes):
            self._close(span.step)
        for step in sorted({*self._done, *self._lanes})[:-STEPS_KEPT]:
            self._drop(step)

    def _is_whole(self, lanes: list[list[tuple[Action, int, int]]]) -> bool:
        """Whether every planned action of the step was seen."""
        if self._planned is None:
            return False
        return all(len(a) == len(b) for a, b in zip(lanes, self._planned.lanes, strict=False))

    def _close(self, step: int) -> None:
        """Turn a whole step into its chart, once; it will not change any more."""
        self._done[step] = self._chart(step, whole=True)
        del self._lanes[step]

    def _drop(self, step: int) -> None:
        for store in (self._done, self._lanes, self._origin):
            store.pop(step, None)

    def _chart(self, step: int, *, whole: bool) -> Chart:
        origin = self._origin[step]
        lanes = tuple(
            tuple(
                _gantt_action(action, (t0 - origin) / NS_A_MS, (t1 - origin) / NS_A_MS)
                for action, t0, t1 in lane
            )
            for lane in self._lanes[step]
        )
        return Chart(lanes, measures_of(lanes) if whole else None, step)

    def build(self) -> GanttSnapshot:
        """Return the plan and the newest steps; a plan that came late closes what was whole before it."""
        for step in sorted(self._lanes):
            if self._is_whole(self._lanes[step]):
                self._close(step)
        charts = dict(self._done)
        charts.update({step: self._chart(step, whole=False) for step in self._lanes})
        return GanttSnapshot(
            world_size=self.manifest.world_size,
            name=self._name or str(self.manifest.params.get("schedule", "")),
            planned=self._planned,
            steps=tuple(charts[step] for step in sorted(charts)),
            total_steps=self.manifest.steps,
            paced_ms=self.manifest.paced_ms,
            over=self.result is not None,
        )


def _planned(plan: Plan) -> Chart | None:
    try:
        lanes = tuple(
            tuple(
                _gantt_action(parse_action(one.action), one.start_ms, one.start_ms + one.duration_ms)
                for one in row
            )
            for row in plan.actions[:LANES_AT_MOST]
        )
    except ScheduleError:
        return None
    return Chart(lanes, measures_of(lanes))


def _gantt_action(action: Action, start: float, end: float) -> GanttAction:
    return GanttAction(str(action), action.kind, action.stage, action.micro_batch, start, end)


def measures_of(lanes: tuple[tuple[GanttAction, ...], ...]) -> Measures:
    """Return what a whole step came to, from its actions alone."""
    rows = [
        [Timed(Action(one.stage, one.kind, one.micro_batch), one.start, one.end) for one in lane]
        for lane in lanes
    ]
    bubbles = bubbles_of(rows)
    peaks = []
    for row in rows:
        chunks = len({timed.action.stage for timed in row}) or 1
        peaks.append(max(alive_activations([timed.action for timed in row]), default=0) / chunks)
    return Measures(
        makespan_of(rows),
        bubbles.idle_over_ideal,
        bubbles.idle_over_total,
        bubbles.zero_bubble,
        tuple(peaks),
    )


class GanttCell(msgspec.Struct, frozen=True):
    """A run of equal cells of a lane: `width` cells of one action, or of nothing."""

    width: int
    action: GanttAction | None


def cells(lane: tuple[GanttAction, ...], start: float, end: float, width: int) -> list[GanttCell]:
    """Return a lane of `width` cells between the times `start` and `end` (ms), as runs of equal cells.

    A cell belongs to the action at its middle.
    """
    if width < 1 or end <= start:
        return []
    runs: list[GanttCell] = []
    index, each = 0, (end - start) / width
    for place in range(width):
        middle = start + (place + 0.5) * each
        while index < len(lane) and lane[index].end <= middle:
            index += 1
        here = lane[index] if index < len(lane) and lane[index].start <= middle else None
        if runs and runs[-1].action is here:
            runs[-1] = GanttCell(runs[-1].width + 1, here)
        else:
            runs.append(GanttCell(1, here))
    return runs


def label(action: GanttAction, width: int, *, chunks: bool) -> str:
    """Return the text for an action in `width` cells: `2F0` or `F0` where it fits, else the letter.

    `chunks`: whether the rank holds several stages, so that the stage says something.
    """
    if chunks and width > len(action.text):
        return action.text
    short = f"{action.kind}{action.micro_batch}"
    return short if width >= len(short) else action.kind
