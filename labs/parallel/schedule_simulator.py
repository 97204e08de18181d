"""Run a schedule on paper: when each action starts and ends, the bubble, the peak of activations, the
critical path.

Each rank does its actions in order; an action starts when its rank is free and what it needs has arrived.
Transfers between ranks take time but occupy no rank (asynchronous send and recv). Loads no torch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from labs.parallel.schedule_actions import Action, Kind, Schedule, ScheduleError, dependency


@dataclass(frozen=True)
class Costs:
    """Time of one micro-batch through one rank's full depth (all its chunks); any unit, the result has the
    same.

    A full backward costs `input_gradient + weight_gradient`; a chunk costs 1/v of a rank. `communication` is
    the time from the end of an action until its output is on another rank, per transfer, whatever v is.
    """

    forward: float = 1.0
    input_gradient: float = 1.0
    weight_gradient: float = 1.0
    communication: float = 0.0

    def of(self, kind: Kind, chunks: int) -> float:
        """Return the time of one action of `kind` on one of `chunks` chunks."""
        backward = self.input_gradient + self.weight_gradient
        whole = {"F": self.forward, "B": backward, "I": self.input_gradient, "W": self.weight_gradient}
        return whole[kind] / chunks


class Timed(NamedTuple):
    """An action with its start and end."""

    action: Action
    start: float
    end: float


@dataclass(frozen=True)
class Bubbles:
    """The three measures that go by the name of bubble; a ratio is between 0 and, for the first, p-1.

    `idle_over_ideal`: idle time over the time of a pipeline without any bubble, (p-1)/m for 1F1B.
    `idle_over_total`: idle time over all time, (p-1)/(m+p-1) for 1F1B.
    `zero_bubble`: the zero-bubble papers' measure: the longest (own span - own work) of a rank, over that
    rank's span; a rank that starts late and ends late by the same amount has none.
    """

    idle_over_ideal: float
    idle_over_total: float
    zero_bubble: float


@dataclass(frozen=True)
class Simulation:
    """A schedule in time: one row of timed actions a rank, and what follows from them."""

    rows: tuple[tuple[Timed, ...], ...]
    makespan: float
    bubbles: Bubbles
    peaks: tuple[float, ...]
    """Peak activations a rank, in micro-batches of one rank's full depth."""


def simulate(schedule: Schedule, costs: Costs | None = None) -> Simulation:
    """Return when each action starts and ends.

    Raises:
        ScheduleError: the schedule deadlocks; names a rank and the action it waits in.
    """
    rows = _run(schedule, costs or Costs())
    return Simulation(rows, makespan_of(rows), bubbles_of(rows), peak_activations(schedule))


def _run(schedule: Schedule, costs: Costs) -> tuple[tuple[Timed, ...], ...]:
    """Advance each rank as far as it can; a rank that must wait is woken by the action that it waits for."""
    last, m = schedule.num_stages - 1, schedule.num_micro_batches
    owner = [schedule.rank_of(stage) for stage in range(last + 1)]
    duration = {kind: costs.of(kind, schedule.chunks) for kind in ("F", "B", "I", "W")}
    ends: dict[int, float] = {}
    waiting: dict[int, int] = {}
    rows: list[list[Timed]] = [[] for _ in schedule.rows]
    clocks = [0.0] * len(rows)
    ready = deque(range(len(rows)))
    while ready:
        rank = ready.popleft()
        actions, row, now = schedule.rows[rank], rows[rank], clocks[rank]
        while len(row) < len(actions):
            action = actions[len(row)]
            stage, kind, micro_batch = action
            # Keys are integers (twice for forward and backward): this loop runs once for each action.
            own = -1 if kind == "W" else ((kind != "F") * (last + 1) + stage) * m + micro_batch
            start = now
            if (kind == "F" and stage > 0) or (kind in "BI" and stage < last):
                source = stage - 1 if kind == "F" else stage + 1
                need = own + (source - stage) * m
                if need not in ends:
                    waiting[need] = rank
                    break
                arrival = ends[need] + (costs.communication if owner[source] != rank else 0.0)
                start = max(now, arrival)
            now = start + duration[kind]
            row.append(Timed(action, start, now))
            if own >= 0:
                ends[own] = now
                if own in waiting:
                    ready.append(waiting.pop(own))
        clocks[rank] = now
    for rank, row in enumerate(rows):
        if len(row) < len(schedule.rows[rank]):
            raise ScheduleError(f"rank {rank} waits for ever in {schedule.rows[rank][len(row)]}: a deadlock")
    return tuple(tuple(row) for row in rows)


def makespan_of(rows: Sequence[Sequence[Timed]]) -> float:
    """Return the time from the first start to the last end over all ranks; 0 without actions."""
    timed = [row for row in rows if row]
    if not timed:
        return 0.0
    return max(row[-1].end for row in timed) - min(row[0].start for row in timed)


def bubbles_of(rows: Sequence[Sequence[Timed]]) -> Bubbles:
    """Return the three bubble measures of rows of timed actions, simulated or measured."""
    work = [sum(end - start for _, start, end in row) for row in rows]
    ideal, total = sum(work), makespan_of(rows) * len(rows)
    if not ideal:
        return Bubbles(0.0, 0.0, 0.0)
    spans = [row[-1].end - row[0].start if row else 0.0 for row in rows]
    own = max((span - done, span) for span, done in zip(spans, work, strict=True))
    return Bubbles((total - ideal) / ideal, (total - ideal) / total, own[0] / own[1] if own[1] else 0.0)


def peak_activations(schedule: Schedule) -> tuple[float, ...]:
    """Return for each rank the most activations alive at once, in micro-batches of the rank's full depth.

    A forward keeps its activations until their last use: the full backward, or W where the backward is split.
    """
    return tuple(max(alive_activations(row), default=0) / schedule.chunks for row in schedule.rows)


def alive_activations(row: Sequence[Action]) -> tuple[int, ...]:
    """Return how many chunk activations of a rank are alive after each of its actions."""
    change = {"F": 1, "B": -1, "I": 0, "W": -1}
    return tuple(accumulate(change[kind] for _, kind, _ in row))


def critical_path(schedule: Schedule, simulation: Simulation) -> tuple[Timed, ...]:
    """Return a chain of actions that fixes the makespan: each starts because the one before it ended."""
    at = {
        _key(timed.action): (rank, index)
        for rank, row in enumerate(simulation.rows)
        for index, timed in enumerate(row)
    }
    rank = max(
        (rank for rank, row in enumerate(simulation.rows) if row),
        key=lambda rank: simulation.rows[rank][-1].end,
    )
    place: tuple[int, int] | None = (rank, len(simulation.rows[rank]) - 1)
    path = []
    while place is not None:
        rank, index = place
        timed = simulation.rows[rank][index]
        path.append(timed)
        need = dependency(timed.action, schedule.num_stages)
        place = (rank, index - 1) if index else None
        if need is not None and (index == 0 or simulation.rows[rank][index - 1].end < timed.start):
            place = at[_key(need)]
    return tuple(reversed(path))


def _key(action: Action) -> Action:
    return action._replace(kind="I") if action.kind == "B" else action
