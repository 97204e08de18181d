"""A schedule in time as data: lanes of actions, what fills their gaps, and what a whole step came to.

Made from a plan or from measured spans by `gantt.py`, drawn by `gantt_picture.py`; all times in ms from the
step's first action.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from labs.parallel.schedule_actions import Action, Kind, dependency
from labs.parallel.schedule_simulator import Timed, alive_activations, bubbles_of, makespan_of

MarkKind = Literal["message", "collective"]


class GanttAction(msgspec.Struct, frozen=True):
    """One action: its text form (`2F0`), its parts, and when it ran, in ms from the step's first action."""

    text: str
    kind: Kind
    stage: int
    micro_batch: int
    start: float
    end: float

    @property
    def action(self) -> Action:
        """The action without its times."""
        return Action(self.stage, self.kind, self.micro_batch)


class Mark(msgspec.Struct, frozen=True):
    """What a rank waited for between actions: a message on its way, or a collective such as all-reduce."""

    kind: MarkKind
    name: str
    start: float
    end: float
    group: str = ""


Lane = tuple[GanttAction, ...]


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
    """One lane a rank, and beside it what fills its gaps; `measures` is None while the step goes on.

    `traffic` are all collectives of a rank, also those that run while it computes.
    """

    lanes: tuple[Lane, ...]
    measures: Measures | None = None
    step: int = -1
    marks: tuple[tuple[Mark, ...], ...] = ()
    traffic: tuple[tuple[Mark, ...], ...] = ()

    @property
    def end(self) -> float:
        """When the last action or mark ends, in ms."""
        ends = [lane[-1].end for lane in self.lanes if lane]
        return max([*ends, *(marks[-1].end for marks in self.marks if marks)], default=0.0)

    def marks_of(self, rank: int) -> tuple[Mark, ...]:
        """Return what fills the gaps of a rank's lane."""
        return self.marks[rank] if rank < len(self.marks) else ()

    def groups(self) -> tuple[str, ...]:
        """Return the process groups that collectives ran in, in their order."""
        return tuple(sorted({mark.group for marks in self.traffic for mark in marks}))


def gantt_action(action: Action, start: float, end: float) -> GanttAction:
    """Return an action with its times (ms)."""
    return GanttAction(str(action), action.kind, action.stage, action.micro_batch, start, end)


def chart_of(
    lanes: tuple[Lane, ...],
    *,
    whole: bool,
    step: int = -1,
    collectives: Sequence[Sequence[Mark]] = (),
    messages: bool = True,
) -> Chart:
    """Return the chart of these lanes; `collectives` are the marks, by rank, that spans told of.

    Without `messages` none are looked for, which saves time while a large step goes on.
    """
    found = []
    for rank, arrived in enumerate(messages_of(lanes) if messages else [[]] * len(lanes)):
        told = collectives[rank] if rank < len(collectives) else ()
        found.append(_in_gaps(lanes[rank], [*arrived, *told]) if arrived or told else ())
    traffic = tuple(tuple(sorted(told, key=lambda mark: mark.start)) for told in collectives)
    return Chart(lanes, measures_of(lanes) if whole else None, step, tuple(found), traffic)


def measures_of(lanes: tuple[Lane, ...]) -> Measures:
    """Return what a whole step came to, from its actions alone."""
    rows = [[Timed(one.action, one.start, one.end) for one in lane] for lane in lanes]
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


class Place(NamedTuple):
    """Where an action stands: its rank and its index in that rank's lane."""

    rank: int
    at: int


class Senders:
    """Finds which action of another rank an action waited for."""

    def __init__(self, lanes: tuple[Lane, ...]) -> None:
        self._lanes = lanes
        self._places: dict[Action, list[Place]] = {}
        self._stages = 1 + max((one.stage for lane in lanes for one in lane), default=0)
        for rank, lane in enumerate(lanes):
            for index, one in enumerate(lane):
                self._places.setdefault(_as_input(one.action), []).append(Place(rank, index))

    def of(self, rank: int, action: GanttAction) -> Place | None:
        """Return the action whose output `action` needs; None where it needs none, or none is seen yet.

        Several replicas of a pipeline do the same action: the last of them that ended before is meant.
        """
        need = dependency(action.action, self._stages)
        places = self._places.get(need, []) if need is not None else []
        own = [place for place in places if place.rank == rank]
        ended = [place for place in own or places if self.end(place) <= action.start + 1e-6]
        return max(ended, key=self.end, default=None)

    def end(self, place: Place) -> float:
        """When the action at `place` ended."""
        return self._lanes[place.rank][place.at].end


def messages_of(lanes: tuple[Lane, ...]) -> list[list[Mark]]:
    """Return by rank when it waited for a message on its way: from its sender's end until its action began.

    The time before, in which the sender was still computing, is bubble; what arrived while the rank still
    computed itself is not waited for.
    """
    senders = Senders(lanes)
    found: list[list[Mark]] = []
    for rank, lane in enumerate(lanes):
        marks, free = [], 0.0
        for action in lane:
            place = senders.of(rank, action)
            if place is not None and place.rank != rank:
                since = max(senders.end(place), free)
                if since < action.start:
                    marks.append(Mark("message", f"from rank {place.rank}", since, action.start))
            free = action.end
        found.append(marks)
    return found


def _in_gaps(lane: Lane, marks: Iterable[Mark]) -> tuple[Mark, ...]:
    """Return the parts of marks that fall between actions, in the order of time and without overlap."""
    edges = [(float("-inf"), 0.0), *((one.start, one.end) for one in lane), (float("inf"), float("inf"))]
    gaps = [(before[1], after[0]) for before, after in pairwise(edges)]
    found: list[Mark] = []
    index, reached = 0, 0.0
    for mark in sorted(marks, key=lambda mark: mark.start):
        while index < len(gaps) and gaps[index][1] <= mark.start:
            index += 1
        for left, right in gaps[index:]:
            if left >= mark.end:
                break
            start, end = max(left, mark.start, reached), min(right, mark.end)
            if end > start:
                found.append(Mark(mark.kind, mark.name, start, end, mark.group))
                reached = end
    return tuple(found)


def _as_input(action: Action) -> Action:
    """A full backward gives the input gradient that others wait for."""
    return action._replace(kind="I") if action.kind == "B" else action


def critical_path(chart: Chart) -> tuple[Place, ...]:
    """Return a chain of actions that fixes the length of a chart, planned or measured, first to last.

    Each began when the one before it ended, on its own rank or on the one that sent it what it needed.
    """
    senders = Senders(chart.lanes)
    last = [Place(rank, len(lane) - 1) for rank, lane in enumerate(chart.lanes) if lane]
    place = max(last, key=senders.end, default=None)
    path: list[Place] = []
    while place is not None:
        path.append(place)
        rank, index = place
        before = Place(rank, index - 1) if index else None
        sender = senders.of(rank, chart.lanes[rank][index])
        choices = [choice for choice in (before, sender) if choice is not None]
        place = max(choices, key=senders.end, default=None)
    return tuple(reversed(path))


class GanttCell(msgspec.Struct, frozen=True):
    """A run of equal cells of a lane: `width` cells of one action, of one mark, or of nothing."""

    width: int
    action: GanttAction | None
    mark: Mark | None = None


def cells(lane: Lane, start: float, end: float, width: int, marks: tuple[Mark, ...] = ()) -> list[GanttCell]:
    """Return a lane of `width` cells between the times `start` and `end` (ms), as runs of equal cells.

    A cell belongs to the action at its middle, or to the mark there. Where none is, an action that is too
    short for any cell's middle has the cell with its own middle: a rank that works little does not look idle.
    """
    if width < 1 or end <= start:
        return []
    runs: list[GanttCell] = []
    index, at, each = 0, 0, (end - start) / width
    for place in range(width):
        middle = start + (place + 0.5) * each
        while index < len(lane) and lane[index].end <= middle:
            index += 1
        while at < len(marks) and marks[at].end <= middle:
            at += 1
        here = lane[index] if index < len(lane) and lane[index].start <= middle else None
        if here is None:
            left = start + place * each
            here = next(
                (one for one in lane[max(0, index - 1) : index + 1] if left <= _middle(one) < left + each),
                None,
            )
        mark = marks[at] if here is None and at < len(marks) and marks[at].start <= middle else None
        if runs and runs[-1].action is here and runs[-1].mark is mark:
            runs[-1] = GanttCell(runs[-1].width + 1, here, mark)
        else:
            runs.append(GanttCell(1, here, mark))
    return runs


def _middle(action: GanttAction) -> float:
    return (action.start + action.end) / 2


def covered(marks: Iterable[Mark], start: float, end: float, width: int) -> list[bool]:
    """Return for each of `width` cells from `start` to `end` (ms) whether any mark touches it."""
    found = [False] * width
    if end <= start:
        return found
    scale = width / (end - start)
    for mark in marks:
        if mark.end > start and mark.start < end:
            first = max(0, int((mark.start - start) * scale))
            last = min(width - 1, int((mark.end - start) * scale))
            found[first : last + 1] = [True] * (last + 1 - first)
    return found


def label(action: GanttAction, width: int, *, chunks: bool) -> str:
    """Return the text for an action in `width` cells: `2F0` or `F0` where it fits, else the letter.

    `chunks`: whether the rank holds several stages, so that the stage says something.
    """
    if chunks and width > len(action.text):
        return action.text
    short = f"{action.kind}{action.micro_batch}"
    return short if width >= len(short) else action.kind
