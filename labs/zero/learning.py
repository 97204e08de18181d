"""Whether the model learned: its loss on the first step's rows, before the training and after it."""

from __future__ import annotations

import torch

from labs.comms import Comms
from labs.context import Context
from labs.data_parallel.theory import loss_weight, rows_of
from labs.worst import over_ranks
from labs.zero.spec import ZeroParams
from labs.zero.stages import Stage
from labs.zero.task import Task

CLEARLY_AFTER = 20
"""Steps, those of a run by default, after which a model must have learned clearly: a tenth, of any size."""


@torch.no_grad()
def loss_again(ctx: Context, task: Task, stage: Stage) -> float:
    """Return the loss of some of the first step's rows, as many as this rank had of them. Collective."""
    ctx.recorder.step = -1
    inputs, targets = next(task.wholes())
    rows = slice(*rows_of(ctx.rank, ctx.world_size, len(inputs)))
    return task.loss(stage.module, (inputs[rows], targets[rows])).item()


def check_learned(ctx: Context, params: ZeroParams, first: float, again: float, proof: Comms) -> None:
    """Compare the loss of all ranks' rows of the first step, as it was and as it is now.

    The same rows: the loss of another batch may be higher by chance.
    """
    weight = loss_weight(ctx.rank, ctx.world_size, params.batch) / ctx.world_size
    first, again = over_ranks(proof, [weight * first, weight * again], "sum")
    if ctx.rank != 0:
        return
    clearly = params.steps >= CLEARLY_AFTER
    least = 0.9 * first if clearly else first
    ctx.check(
        "loss falls",
        again < least,
        measured=again,
        expected=f"below {least:.6g}, {'a tenth less than' if clearly else 'the loss'} at first",
        unit="on the first step's rows, afterwards",
        shows="the sharded model learns: its parameters are those that the optimizer steps",
    )
