"""The dp lab's checks: what was measured beside what data parallelism promises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from labs.context import Context
from labs.data_parallel import theory
from labs.data_parallel.spec import DataParallelParams

if TYPE_CHECKING:
    from labs.data_parallel.lab import Journal, Lone

GRADIENT_TOLERANCE = 1e-5
"""Of the largest gradient: fp32 sums of the same numbers in another order."""
LOSS_TOLERANCE = 1e-4
DRIFT_TOLERANCE = 1e-3
"""Of the way the parameters went. AdamW divides by the gradient's size, so last bits of small ones count."""


def check_start(ctx: Context, drawn: list[list[int]], started: list[list[int]]) -> None:
    """Replicas drew different weights and hold equal ones after the broadcast; arguments by rank."""
    different = len({row[0] for row in drawn})
    equal = len({row[0] for row in started})
    if ctx.rank != 0:
        return
    ctx.check(
        "ranks are seeded differently",
        different == ctx.world_size,
        measured=different,
        expected=ctx.world_size,
        unit="different models",
        shows="before the broadcast each rank has a model of its own",
    )
    ctx.check(
        "replicas start equal",
        equal == 1,
        measured=equal,
        expected=1,
        unit="different models",
        shows="rank 0's parameters were broadcast; averaging gradients would never mend a difference",
    )


def check_run(
    ctx: Context,
    params: DataParallelParams,
    journal: Journal,
    module: nn.Module,
    start: nn.Module,
    moved_bytes: int,
    again: float,
) -> None:
    """What rank 0 can tell without a second training.

    `moved_bytes` is S of all all-reduces, summed; `again` the loss of the first batch after training.
    """
    if ctx.rank != 0:
        return
    distinct = min(len(set(losses)) for losses in journal.losses)
    ctx.check(
        "losses differ by rank",
        distinct == ctx.world_size,
        measured=distinct,
        expected=ctx.world_size,
        unit="different losses in a step",
        shows="each rank sees its own rows of the batch",
    )
    equal = sum(len(set(hashes)) == 1 for hashes in journal.hashes)
    ctx.check(
        "parameters equal across ranks",
        equal == params.steps,
        measured=equal,
        expected=params.steps,
        unit="steps bitwise equal",
        shows="equal starts and equal averaged gradients keep the replicas equal to the last bit",
    )
    tensors = list(zip(module.parameters(), start.parameters(), strict=True))
    moved = sum(not torch.equal(now, then) for now, then in tensors)
    ctx.check(
        "parameters moved",
        moved == len(tensors),
        measured=moved,
        expected=len(tensors),
        unit="tensors",
        shows="the optimizer holds this model's parameters, not another instance's",
    )
    parameters = theory.parameters_of(params.dim, params.layers)
    expected = theory.all_reduced_bytes(parameters, params.layers, params.steps)
    ctx.check(
        "bytes all-reduced",
        moved_bytes == expected,
        measured=moved_bytes,
        expected=expected,
        unit="B",
        shows="every gradient once a step and a flag a tensor, whatever the batch",
    )
    check_losses(ctx, params, journal, again)
    ctx.metric("parameters", parameters)
    ctx.metric("all_reduced_bytes_per_step", moved_bytes / params.steps, "B")
    ctx.metric(
        "sent_bytes_per_step_theory", theory.sent_bytes(moved_bytes, ctx.world_size) / params.steps, "B"
    )


def check_losses(ctx: Context, params: DataParallelParams, journal: Journal, again: float) -> None:
    """The loss starts where 1/fan-in puts it, and falls; `again` is that of the first batch, after training.

    The same rows before and after: with few rows the loss of another batch may be higher by chance.
    """
    means = [batch_loss(losses, params.batch) for losses in journal.losses]
    predicted = theory.initial_loss(params.layers)
    factor = math.exp(5 * math.sqrt(params.layers / params.dim))
    ctx.check(
        "initial loss",
        predicted / factor <= means[0] <= predicted * factor,
        measured=means[0],
        expected=predicted,
        tolerance=predicted * (factor - 1),
        shows="weights of variance 1/fan-in keep a deep model's output in range",
    )
    ctx.check(
        "loss falls",
        again < means[0],
        measured=again,
        expected=f"below {means[0]:.6g}",
        unit="on the first batch, afterwards",
        shows="the averaged gradient is a direction downhill",
    )
    ctx.metric("initial_loss", means[0])
    ctx.metric("final_loss", means[-1])


def check_equal(ctx: Context, journal: Journal, module: nn.Module, start: nn.Module, lone: Lone) -> None:
    """Rank 0 compares its replica with what one process came to on whole batches."""
    gradients = farthest(journal.first_gradients, lone.first_gradients)
    largest = max(float(g.abs().max()) for g in lone.first_gradients)
    ctx.check(
        "averaged gradients equal one process",
        gradients <= GRADIENT_TOLERANCE * largest,
        measured=_part(gradients, largest),
        expected=0.0,
        tolerance=GRADIENT_TOLERANCE,
        unit="of the largest",
        shows="the mean over ranks, weighed by their rows, is the gradient of the whole batch",
    )
    batch = [batch_loss(losses, lone.batch) for losses in journal.losses]
    worst = max(abs(a - b) / b for a, b in zip(batch, lone.losses, strict=True))
    ctx.check(
        "losses equal one process",
        worst <= LOSS_TOLERANCE,
        measured=worst,
        expected=0.0,
        tolerance=LOSS_TOLERANCE,
        unit="relative, worst step",
        shows="the ranks' losses, weighed by their rows, are the loss of the whole batch in every step",
    )
    ours, theirs = list(module.parameters()), list(lone.module.parameters())
    way = math.sqrt(sum(_squares(a, b) for a, b in zip(theirs, start.parameters(), strict=True)))
    apart = math.sqrt(sum(_squares(a, b) for a, b in zip(ours, theirs, strict=True)))
    ctx.check(
        f"parameters equal one process after {len(lone.losses)} steps",
        apart <= DRIFT_TOLERANCE * way,
        measured=_part(apart, way),
        expected=0.0,
        tolerance=DRIFT_TOLERANCE,
        unit="of the way they went",
        shows="many ranks with parts of the batch walked the way of one with all of it",
    )


def batch_loss(losses: Sequence[float], batch: int) -> float:
    """Return the mean loss over the whole batch from each rank's mean over its rows."""
    world_size = len(losses)
    weights = [theory.loss_weight(rank, world_size, batch) for rank in range(world_size)]
    return sum(w * loss for w, loss in zip(weights, losses, strict=True)) / world_size


def farthest(left: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """Return the largest difference of any element; infinite where the tensors do not match up."""
    if [t.shape for t in left] != [t.shape for t in right]:
        return math.inf
    return max(float((a - b).abs().max()) for a, b in zip(left, right, strict=True))


def _part(part: float, whole: float) -> float:
    """Return part / whole, also where nothing moved at all."""
    return part / whole if whole else (math.inf if part else 0.0)


def _squares(left: Tensor, right: Tensor) -> float:
    return float((left.detach() - right.detach()).double().square().sum())
