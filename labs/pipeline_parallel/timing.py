"""The bubble as measured beside the simulated one."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from labs.context import Context
from labs.parallel.schedule_actions import Action, Schedule, dependency, parse_action
from labs.parallel.schedule_simulator import Costs, Timed, bubbles_of, makespan_of, simulate
from labs.pipeline_parallel.proofs import Evidence

BUBBLE_POINTS = 2.0
SLOWEST_MESSAGE = 0.1
"""A message may take so much of a forward; small ones on one machine take less, if the engine is right."""


def judge_time(
    ctx: Context, found: Sequence[Evidence], schedule: Schedule, costs: Costs, *, judged: bool
) -> None:
    """Tell the bubble as measured beside the simulated one, and check it where `judged`: the run was paced.

    The simulation counts the time that a message was measured to take, up to a bound: on a busy machine it
    takes a while until a rank that may go on does.
    """
    # Whatever else the machine does can only lengthen a step, so the shortest one shows the schedule best.
    rows = min(timed_steps(found), key=makespan_of)
    message = message_time(schedule, rows)
    bounded = min(message, SLOWEST_MESSAGE * costs.forward)
    plan = simulate(schedule, dataclasses.replace(costs, communication=bounded))
    measured = bubbles_of(rows)
    for source, bubbles in (("measured", measured), ("simulated", plan.bubbles)):
        for name, value in vars(bubbles).items():
            ctx.metric(f"{source}_{name}", value)
    ctx.metric("measured_makespan", makespan_of(rows) * 1e3, "ms")
    ctx.metric("simulated_makespan", plan.makespan * 1e3, "ms")
    ctx.metric("message_time", message * 1e3, "ms")
    if judged:
        here, there = measured.idle_over_total * 100, plan.bubbles.idle_over_total * 100
        passed = abs(here - there) <= BUBBLE_POINTS
        shows = "the ranks wait where the schedule makes them wait, and nowhere else"
        name = "measured bubble is the simulated one"
        ctx.check(name, passed, here, there, BUBBLE_POINTS, "% of all time idle", shows)


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
    ends = {_as_input(timed.action): timed.end for row in rows for timed in row}
    times = []
    for rank, row in enumerate(rows):
        free = row[0].start
        for timed in row:
            need = dependency(timed.action, schedule.num_stages)
            if need is not None and schedule.rank_of(need.stage) != rank and ends[need] > free:
                times.append(timed.start - ends[need])
            free = timed.end
    return max(0.0, statistics.median(times)) if times else 0.0


def _as_input(action: Action) -> Action:
    return action._replace(kind="I") if action.kind == "B" else action
