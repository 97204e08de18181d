"""The plan of a run on the mesh: the pipeline's schedule in time, one row for every rank of the world."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch.distributed as dist

from labs.context import Context
from labs.parallel.pipeline import Done
from labs.parallel.schedule_actions import Schedule
from labs.parallel.schedule_simulator import Costs, Timed, simulate
from labs.pipeline_parallel.plan import measured_costs
from launcher.events import Plan, PlannedAction


def announce(ctx: Context, schedule: Schedule, costs: Costs, place: int) -> None:
    """Tell the schedule in time, on rank 0; `place` is this rank's on the pipeline axis.

    Every rank of the world has a row: ranks at the same place of the pipeline have the same one.
    """
    places: list[int] = [place] * ctx.world_size
    dist.all_gather_object(places, place)
    if ctx.rank != 0:
        return
    simulation = simulate(schedule, costs)
    rows = [
        [PlannedAction(str(t.action), t.start * 1e3, (t.end - t.start) * 1e3) for t in row]
        for row in simulation.rows
    ]
    bubbles = simulation.bubbles
    ctx.emit.emit(
        Plan(
            t=time.monotonic_ns(),
            rank=0,
            name=schedule.name,
            actions=[rows[at] for at in places],
            measures={
                "makespan_ms": simulation.makespan * 1e3,
                "idle_over_ideal": bubbles.idle_over_ideal,
                "idle_over_total": bubbles.idle_over_total,
                "zero_bubble": bubbles.zero_bubble,
                **{f"peak_rank_{rank}": simulation.peaks[at] for rank, at in enumerate(places)},
            },
        )
    )


def measured(ctx: Context, trace: Sequence[Done], schedule: Schedule) -> Costs:
    """Return the costs of the actions as just measured, the mean over all ranks."""
    mine = [(action, start / 1e9, end / 1e9) for action, start, end in trace]
    rows = [mine] * ctx.world_size
    dist.all_gather_object(rows, mine)
    return measured_costs([[Timed(*timed) for timed in row] for row in rows], schedule.chunks)
