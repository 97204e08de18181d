"""The schedule in time: for each rank what was planned and what was measured, with the bubble of both.

The plan comes from the worker, before the first step or, unpaced, after it; measured actions are the compute
spans that carry an action. Both start at 0 ms, so that one can be read above the other.
"""

from __future__ import annotations

import msgspec

from labs.parallel.schedule_actions import Action, ScheduleError, parse_action
from launcher.events import AnyEvent, Plan, Span
from launcher.rundir import Manifest
from workbench.views.base import View
from workbench.views.gantt_archive import NS_A_MS, Archive, Measured
from workbench.views.gantt_chart import Chart, GanttAction, Lane, Mark, chart_of, gantt_action

STEPS_KEPT = 8
LANES_AT_MOST = 64
COLLECTIVES_A_STEP = 512
EARLY_AT_MOST = 256
MARKED_LIVE = 1024
"""Actions of a step up to which messages are looked for while it goes on; in a larger one, at its end."""
NO_COLLECTIVES = ("send", "recv", "barrier")
"""Messages are read off the actions that wait for them; a barrier moves nothing."""


class GanttSnapshot(msgspec.Struct, frozen=True):
    """The plan, and the newest steps, oldest first; the last one may still go on.

    `archive` has the older ones, as far back as memory allows.
    """

    world_size: int
    name: str = ""
    planned: Chart | None = None
    steps: tuple[Chart, ...] = ()
    total_steps: int = -1
    paced_ms: float = 0.0
    over: bool = False
    archive: Archive | None = None

    def chart(self, step: int | None) -> Chart | None:
        """Return the chart of a step, of the newest one where `step` is None or not known."""
        newest = self.steps[-1] if self.steps else None
        if step is None or newest is None:
            return newest
        recent = next((chart for chart in self.steps if chart.step == step), None)
        older = self.archive.chart(step) if recent is None and self.archive is not None else None
        return recent or older or newest

    def known_steps(self) -> list[int]:
        """Return the steps that `chart` can give, in their order."""
        older = self.archive.steps() if self.archive is not None else []
        return sorted({*older, *(chart.step for chart in self.steps)})


class _Step:
    """What was measured of one step so far."""

    def __init__(self, step: int, world_size: int) -> None:
        self.step = step
        self.lanes: Measured = [[] for _ in range(world_size)]
        self.collectives: list[list[Span]] = [[] for _ in range(world_size)]
        self.whole = False
        self._chart: Chart | None = None
        self._origin = 0
        self._made: list[list[GanttAction]] = [[] for _ in range(world_size)]

    def add(self, rank: int, action: Action, start: int, end: int) -> None:
        self.lanes[rank].append((action, start, end))
        self._chart = None

    def collective(self, span: Span) -> None:
        if len(self.collectives[span.rank]) < COLLECTIVES_A_STEP:
            self.collectives[span.rank].append(span)
            self._chart = None

    def close(self) -> None:
        self.whole = True
        self._chart = None

    def chart(self) -> Chart:
        """The chart, made anew only where something came since."""
        if self._chart is None:
            origin = min((lane[0][1] for lane in self.lanes if lane), default=0)
            lanes = self._lanes(origin)
            marks = [[_collective(span, origin) for span in told] for told in self.collectives]
            small = sum(map(len, lanes)) <= MARKED_LIVE
            self._chart = chart_of(
                lanes, whole=self.whole, step=self.step, collectives=marks, messages=self.whole or small
            )
        return self._chart

    def _lanes(self, origin: int) -> tuple[Lane, ...]:
        """The lanes in ms; only what is new is computed while the step's first moment stays the same."""
        if origin != self._origin:
            self._origin = origin
            self._made = [[] for _ in self.lanes]
        for made, lane in zip(self._made, self.lanes, strict=True):
            made += (
                gantt_action(action, (t0 - origin) / NS_A_MS, (t1 - origin) / NS_A_MS)
                for action, t0, t1 in lane[len(made) :]
            )
        return tuple(map(tuple, self._made))


class GanttView(View[GanttSnapshot]):
    """Takes the plan, the compute spans that are actions of a schedule, and the collectives between them."""

    takes = (Plan, Span)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._name = ""
        self._planned: Chart | None = None
        self._steps: dict[int, _Step] = {}
        self._dropped_until = -1
        self._early: list[Span] = []
        """Collectives of a step of which no action has ended yet."""
        self._archive = Archive()

    def fold(self, event: AnyEvent) -> None:
        """Keep the plan, or one more measured action or collective."""
        if isinstance(event, Plan):
            self._name = event.name
            self._planned = _planned(event)
        elif isinstance(event, Span) and 0 <= event.rank < self.manifest.world_size:
            if event.lane == "compute" and event.action:
                self._action(event)
            elif event.lane == "comm" and event.name not in NO_COLLECTIVES:
                self._collective(event)

    def _action(self, span: Span) -> None:
        if span.step <= self._dropped_until:
            return
        try:
            action = parse_action(span.action)
        except ScheduleError:
            return
        step = self._steps.get(span.step)
        if step is None:
            step = self._steps[span.step] = _Step(span.step, self.manifest.world_size)
            for old in sorted(self._steps)[:-STEPS_KEPT]:
                del self._steps[old]
                self._dropped_until = max(self._dropped_until, old)
            if span.step not in self._steps:
                return
            for early in self._early:
                if early.step == span.step:
                    step.collective(early)
            self._early = [early for early in self._early if early.step > span.step]
        if not step.whole:
            step.add(span.rank, action, span.t, span.t1)
            self._close_if_whole(step)

    def _collective(self, span: Span) -> None:
        if span.step in self._steps:
            self._steps[span.step].collective(span)
        elif self._planned is not None and span.step > max(self._steps, default=-1):
            self._early = [*self._early[-EARLY_AT_MOST:], span]

    def _close_if_whole(self, step: _Step) -> None:
        """A step of which every planned action was seen will not change any more."""
        if self._planned is None or step.whole:
            return
        if all(len(a) == len(b) for a, b in zip(step.lanes, self._planned.lanes, strict=False)):
            step.close()
            self._archive.add(step.step, step.lanes)

    def build(self) -> GanttSnapshot:
        """Return the plan and the newest steps; a plan that came late closes what was whole before it."""
        for step in self._steps.values():
            self._close_if_whole(step)
        return GanttSnapshot(
            world_size=self.manifest.world_size,
            name=self._name or str(self.manifest.params.get("schedule", "")),
            planned=self._planned,
            steps=tuple(self._steps[step].chart() for step in sorted(self._steps)),
            total_steps=self.manifest.steps,
            paced_ms=self.manifest.paced_ms,
            over=self.result is not None,
            archive=self._archive,
        )


def _collective(span: Span, origin: int) -> Mark:
    start, end = (span.t - origin) / NS_A_MS, (span.t1 - origin) / NS_A_MS
    return Mark("collective", span.name, start, end, span.group)


def _planned(plan: Plan) -> Chart | None:
    try:
        lanes = tuple(
            tuple(
                gantt_action(parse_action(one.action), one.start_ms, one.start_ms + one.duration_ms)
                for one in row
            )
            for row in plan.actions[:LANES_AT_MOST]
        )
    except ScheduleError:
        return None
    return chart_of(lanes, whole=True)
