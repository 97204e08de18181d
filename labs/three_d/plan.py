"""The plan of a run on the mesh: the pipeline's schedule in time, one row for every rank of the world."""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist

from labs.context import Context
from labs.parallel.pipeline import Done
from labs.parallel.schedule_actions import Schedule
from labs.parallel.schedule_simulator import Costs, Timed
from labs.pipeline_parallel import plan


def announce(ctx: Context, schedule: Schedule, costs: Costs, place: int) -> None:
    """Tell the schedule in time, on rank 0; `place` is this rank's on the pipeline axis. Collective."""
    places = [place] * ctx.world_size
    dist.all_gather_object(places, place)
    plan.announce(ctx, schedule, costs, places)


def measured(ctx: Context, trace: Sequence[Done], schedule: Schedule) -> Costs:
    """Return the costs of the actions as just measured, the mean over all ranks."""
    mine = [(action, start / 1e9, end / 1e9) for action, start, end in trace]
    rows = [mine] * ctx.world_size
    dist.all_gather_object(rows, mine)
    return plan.measured_costs([[Timed(*timed) for timed in row] for row in rows], schedule.chunks)
