"""The bubble as measured beside the simulated one."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Collection, Iterator, Sequence

from labs.context import Context
from labs.parallel.schedule_actions import Action, Schedule, dependency, parse_action
from labs.parallel.schedule_simulator import Bubbles, Costs, Timed, bubbles_of, makespan_of, simulate

BUBBLE_POINTS = 2.0
PACE_KEPT = 0.02
"""Up to this part of its cost, on average, an action may be off, and the machine has kept the pace."""
QUICK_MESSAGE = 0.0005
"""Seconds that a message may take where the pace was kept; more is the engine's own waiting."""
LONGEST_MESSAGE = 0.1
LONGEST_TURN = 0.05
MOST_OFF = 0.25
"""What a machine that missed the pace may do to a step and the engine is not blamed for, in parts of a
stage's forward: how long a message takes, how long it is from an action's end to the next one's start; and by
which part of its cost an action is off. What goes beyond is the engine's own waiting."""
Rows = Sequence[Sequence[Timed]]
"""The actions of a step in seconds, a row a rank of the pipeline."""
Trace = Sequence[tuple[str, int, int]]
"""The actions of one rank's step: text form, start and end in ns."""


@dataclasses.dataclass(frozen=True)
class Weighed:
    """A measured step beside what it is held to; `missed`: by which part of its cost an action was off."""

    measured: Bubbles
    simulated: Bubbles
    missed: float

    @property
    def kept(self) -> bool:
        """Whether the machine kept the pace, so that the plan itself is what the step is held to."""
        return self.missed <= PACE_KEPT

    @property
    def points(self) -> float:
        """The measured share of idle time less the simulated one, in points."""
        return (self.measured.idle_over_total - self.simulated.idle_over_total) * 100


def weigh(schedule: Schedule, costs: Costs, rows: Rows) -> Weighed:
    """Return a paced step beside the plan, or where its machine missed the pace, beside what explains it.

    A sleep is never exact and a busy machine keeps a rank from its core, and where each action waits for
    another rank's, as with two chunks a rank, such delays add up along the chain. So where the actions were
    off by more than `PACE_KEPT`, the schedule is simulated with the times as they were, within bounds: a rank
    that waits without a reason in the schedule is not in that simulation.
    """
    missed = pace_missed(schedule, costs, rows)
    if missed <= PACE_KEPT:
        message = min(message_time(schedule, rows), QUICK_MESSAGE)
        simulated = simulate(schedule, dataclasses.replace(costs, communication=message)).bubbles
    else:
        simulated = bubbles_of(explain(schedule, costs, rows))
    return Weighed(bubbles_of(rows), simulated, missed)


def pace_missed(schedule: Schedule, costs: Costs, rows: Rows) -> float:
    """Return by which part of its cost an action was off, the mean over all actions."""
    timed = [one for row in rows for one in row]
    asked = [costs.of(one.action.kind, schedule.chunks) for one in timed]
    return statistics.fmean(
        abs(one.end - one.start - cost) / cost for one, cost in zip(timed, asked, strict=True)
    )


def judge_bubble(
    ctx: Context,
    schedule: Schedule,
    costs: Costs,
    pipelines: Sequence[Sequence[Rows]],
    at_most: float = math.inf,
) -> None:
    """Check the bubble of a paced run; `pipelines` has the steps of each pipeline that ran the schedule.

    The check shows the pipeline that is farthest off. One whose actions were off by more than `at_most` of
    their cost is not judged; where none is left, that is said in place of the check.
    """
    # Whatever else the machine does can only lengthen a step, so the shortest one shows the schedule best.
    found = [weigh(schedule, costs, min(steps, key=makespan_of)) for steps in pipelines]
    judged = [one for one in found if one.missed <= at_most]
    if not judged:
        least = min(one.missed for one in found)
        ctx.metric("pace_missed", least * 100, "%")
        ctx.say(
            f"the bubble is not judged: actions were off by {least:.0%} of their cost or more, this machine "
            "could not keep the pace; give a larger --pace-ms"
        )
        return
    worst = max(judged, key=lambda one: abs(one.points))
    ctx.metric("pace_missed", worst.missed * 100, "%")
    name = "measured bubble is the simulated one"
    held = "held to the plan"
    if not worst.kept:
        name = f"{name}, times as measured"
        held = f"more than {PACE_KEPT:.0%}, so simulated with the times as they were"
    shows = (
        "the ranks wait where the schedule makes them wait, and nowhere else; actions were off by "
        f"{worst.missed:.1%} of their cost, {held}"
    )
    here, there = worst.measured.idle_over_total * 100, worst.simulated.idle_over_total * 100
    passed = abs(worst.points) <= BUBBLE_POINTS
    ctx.check(name, passed, here, there, BUBBLE_POINTS, "% of all time idle", shows)


def tell_time(ctx: Context, schedule: Schedule, costs: Costs, steps: Sequence[Rows]) -> None:
    """Tell the measured bubble and makespan of the shortest step beside the simulated ones."""
    rows = min(steps, key=makespan_of)
    message = message_time(schedule, rows)
    bounded = min(message, LONGEST_MESSAGE * costs.of("F", schedule.chunks))
    plan = simulate(schedule, dataclasses.replace(costs, communication=bounded))
    for source, bubbles in (("measured", bubbles_of(rows)), ("simulated", plan.bubbles)):
        for name, value in vars(bubbles).items():
            ctx.metric(f"{source}_{name}", value)
    ctx.metric("measured_makespan", makespan_of(rows) * 1e3, "ms")
    ctx.metric("simulated_makespan", plan.makespan * 1e3, "ms")
    ctx.metric("message_time", message * 1e3, "ms")


def explain(schedule: Schedule, costs: Costs, rows: Rows) -> list[list[Timed]]:
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


def timed_steps(traces: Sequence[Sequence[Trace]]) -> list[list[list[Timed]]]:
    """Return the kept steps as rows of timed actions in seconds; not the first, which warms up.

    `traces` has the steps of each rank of one pipeline, in the order of its ranks.
    """
    steps = list(zip(*traces, strict=True))
    return [
        [[Timed(parse_action(action), start / 1e9, end / 1e9) for action, start, end in row] for row in step]
        for step in steps[-max(1, len(steps) - 1) :]
    ]


def message_time(schedule: Schedule, rows: Rows) -> float:
    """Return the median time from an action's end to the start of the one that waited for its message.

    Only ranks that were already waiting count; 0 where none was.
    """
    return _median(_messages(schedule, rows).values())


Place = tuple[int, int]
"""A rank, and the index of an action in its row."""


def _messages(schedule: Schedule, rows: Rows) -> dict[Place, float]:
    """How long each message took that its rank was waiting for."""
    return {place: timed.start - since for place, timed, since, waited in _begun(schedule, rows) if waited}


def _turns(schedule: Schedule, rows: Rows) -> dict[Place, float]:
    """How long each rank took from one action to the next that had all it needed."""
    return {
        place: timed.start - since
        for place, timed, since, waited in _begun(schedule, rows)
        if not waited and place[1]
    }


def _begun(schedule: Schedule, rows: Rows) -> Iterator[tuple[Place, Timed, float, bool]]:
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
