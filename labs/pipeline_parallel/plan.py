"""The plan of a run: what each action should cost, the schedule in time, told before the first step, and the
actions as they are done, to be seen beside it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from labs.context import Context
from labs.parallel.pipeline import Done
from labs.parallel.schedule_actions import KIND_NAMES, Schedule
from labs.parallel.schedule_simulator import Costs, Timed, simulate
from launcher.events import Plan, PlannedAction


def paced_costs(pace_ms: float, backward_ratio: float, checkpoint: bool) -> Costs | None:
    """Return the seconds of a paced run's actions on a rank's full depth, or None where nothing is paced.

    I and W are half a backward each; a checkpointed forward is run again before I, and costs its time there.
    """
    if not pace_ms:
        return None
    forward, half = pace_ms / 1e3, pace_ms / 1e3 * backward_ratio / 2
    return Costs(forward, half + forward * checkpoint, half)


def measured_costs(rows: Sequence[Sequence[Timed]], chunks: int) -> Costs:
    """Return the mean seconds of F, I and W as measured, on a rank's full depth; B is split in halves."""
    seconds: dict[str, list[float]] = {"F": [], "B": [], "I": [], "W": []}
    for row in rows:
        for timed in row:
            seconds[timed.action.kind].append((timed.end - timed.start) * chunks)
    mean = {kind: sum(values) / len(values) if values else 0.0 for kind, values in seconds.items()}
    full = mean["B"] / 2
    return Costs(mean["F"], mean["I"] or full, mean["W"] or full)


def announce(ctx: Context, schedule: Schedule, costs: Costs, places: Sequence[int] | None = None) -> None:
    """Tell the schedule in time, a row for every rank of the world; rank 0 does.

    `places` are the ranks' places in the pipeline, where the world is not one pipeline.
    """
    if ctx.rank != 0:
        return
    simulation = simulate(schedule, costs)
    bubbles = simulation.bubbles
    rows = [[_planned(timed) for timed in row] for row in simulation.rows]
    places = range(schedule.num_ranks) if places is None else places
    ctx.emit.emit(
        Plan(
            t=time.monotonic_ns(),
            rank=0,
            name=schedule.name,
            actions=[rows[place] for place in places],
            measures={
                "makespan_ms": simulation.makespan * 1e3,
                "idle_over_ideal": bubbles.idle_over_ideal,
                "idle_over_total": bubbles.idle_over_total,
                "zero_bubble": bubbles.zero_bubble,
                **{f"peak_rank_{rank}": simulation.peaks[place] for rank, place in enumerate(places)},
            },
        )
    )


def tell_action(ctx: Context, done: Done) -> None:
    """Tell an action of this rank as it ends."""
    stage, kind, micro_batch = done.action
    ctx.emit.span(
        "compute",
        KIND_NAMES[kind],
        done.start,
        done.end,
        step=ctx.recorder.step,
        stage=stage,
        micro_batch=micro_batch,
        action=str(done.action),
    )


def _planned(timed: Timed) -> PlannedAction:
    return PlannedAction(str(timed.action), timed.start * 1e3, (timed.end - timed.start) * 1e3)
