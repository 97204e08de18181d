"""The bubble as measured beside the simulated one."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Collection, Iterator, Sequence

from labs.context import Context
from labs.parallel.schedule_actions import Action, Schedule, dependency, parse_action
from labs.parallel.schedule_simulator import Costs, Timed, bubbles_of, makespan_of, simulate
from labs.pipeline_parallel.proofs import Evidence

BUBBLE_POINTS = 2.0
LONGEST_MESSAGE = 0.1
LONGEST_TURN = 0.05
MOST_OFF = 0.25
"""What a machine may do to a step and the engine is not blamed for, in parts of a stage's forward: how long a
message takes, how long it is from an action's end to the next one's start; and by which part of its cost an
action is off. What goes beyond is the engine's own waiting."""


def judge_time(
    ctx: Context, found: Sequence[Evidence], schedule: Schedule, costs: Costs, *, judged: bool
) -> None:
    """Tell the bubble as measured beside the simulated one, and check it where `judged`: the run was paced.

    A sleep is never exact and a busy machine keeps a rank from its core, and where each action waits for
    another rank's, as with two chunks a rank, such delays add up along the chain. So the check simulates the
    schedule with the times as they were, within bounds: a rank that waits without a reason in the schedule
    is not in that simulation.
    """
    # Whatever else the machine does can only lengthen a step, so the shortest one shows the schedule best.
    rows = min(timed_steps(found), key=makespan_of)
    message = message_time(schedule, rows)
    bounded = min(message, LONGEST_MESSAGE * costs.of("F", schedule.chunks))
    plan = simulate(schedule, dataclasses.replace(costs, communication=bounded))
    measured = bubbles_of(rows)
    explained = bubbles_of(explain(schedule, costs, rows))
    for source, bubbles in (("measured", measured), ("simulated", plan.bubbles)):
        for name, value in vars(bubbles).items():
            ctx.metric(f"{source}_{name}", value)
    ctx.metric("measured_makespan", makespan_of(rows) * 1e3, "ms")
    ctx.metric("simulated_makespan", plan.makespan * 1e3, "ms")
    ctx.metric("message_time", message * 1e3, "ms")
    if judged:
        here, there = measured.idle_over_total * 100, explained.idle_over_total * 100
        passed = abs(here - there) <= BUBBLE_POINTS
        shows = "the ranks wait where the schedule makes them wait, and nowhere else"
        name = "measured bubble is the simulated one"
        ctx.check(name, passed, here, there, BUBBLE_POINTS, "% of all time idle", shows)


def explain(schedule: Schedule, costs: Costs, rows: Sequence[Sequence[Timed]]) -> list[list[Timed]]:
    """Return the schedule in time with each action, message and turn as measured, none beyond its bound.

    `rows` are the measured actions, in seconds. An action starts when its rank has turned to it and what it
    needs has arrived; nothing else can delay it here.
    """
    forward = costs.of("F", schedule.chunks)
    turns, messages = _turns(schedule, rows), _messages(schedule, rows)
    usual_turn, usual_message = _median(turns.values()), _median(messages.values())
    explained: list[list[Timed]] = [[] for _ in rows]
    ends: dict[Action, float] = {}
    # What was measured went by in an order in which everything that an action needs comes before it.
    places = sorted((t.start, rank, index) for rank, row in enumerate(rows) for index, t in enumerate(row))
    for _, rank, index in places:
        action, began, ended = rows[rank][index]
        turn = min(turns.get((rank, index), usual_turn), LONGEST_TURN * forward)
        start = explained[rank][-1].end + turn if index else 0.0
        need = dependency(action, schedule.num_stages)
        if need is not None and schedule.rank_of(need.stage) != rank:
            message = min(messages.get((rank, index), usual_message), LONGEST_MESSAGE * forward)
            start = max(start, ends[need] + message)
        cost = costs.of(action.kind, schedule.chunks)
        end = start + min(max(ended - began, cost * (1 - MOST_OFF)), cost * (1 + MOST_OFF))
        explained[rank].append(Timed(action, start, end))
        ends[_as_input(action)] = end
    return explained


def timed_steps(found: Sequence[Evidence]) -> list[list[list[Timed]]]:
    """Return the kept steps as rows of timed actions in seconds; not the first, where shapes are agreed."""
    steps = list(zip(*(one.traces for one in found), strict=True))
    return [
        [[Timed(parse_action(action), start / 1e9, end / 1e9) for action, start, end in row] for row in step]
        for step in steps[-max(1, len(steps) - 1) :]
    ]


def message_time(schedule: Schedule, rows: Sequence[Sequence[Timed]]) -> float:
    """Return the median time from an action's end to the start of the one that waited for its message.

    Only ranks that were already waiting count; 0 where none was.
    """
    return _median(_messages(schedule, rows).values())


Place = tuple[int, int]
"""A rank, and the index of an action in its row."""


def _messages(schedule: Schedule, rows: Sequence[Sequence[Timed]]) -> dict[Place, float]:
    """How long each message took that its rank was waiting for."""
    return {place: timed.start - since for place, timed, since, waited in _begun(schedule, rows) if waited}


def _turns(schedule: Schedule, rows: Sequence[Sequence[Timed]]) -> dict[Place, float]:
    """How long each rank took from one action to the next that had all it needed."""
    return {
        place: timed.start - since
        for place, timed, since, waited in _begun(schedule, rows)
        if not waited and place[1]
    }


def _begun(schedule: Schedule, rows: Sequence[Sequence[Timed]]) -> Iterator[tuple[Place, Timed, float, bool]]:
    """Each action with the moment since when it could have begun, and whether a message made it wait."""
    ends = {_as_input(timed.action): timed.end for row in rows for timed in row}
    for rank, row in enumerate(rows):
        free = row[0].start
        for index, timed in enumerate(row):
            need = dependency(timed.action, schedule.num_stages)
            remote = need is not None and schedule.rank_of(need.stage) != rank
            arrived = ends[need] if need is not None and remote else free
            yield (rank, index), timed, max(arrived, free), arrived > free
            free = timed.end


def _median(times: Collection[float]) -> float:
    return max(0.0, statistics.median(times)) if times else 0.0


def _as_input(action: Action) -> Action:
    return action._replace(kind="I") if action.kind == "B" else action
