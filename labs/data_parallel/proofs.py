"""The dp lab's checks: what was measured beside what data parallelism promises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labs.context import Context
from labs.data_parallel import theory
from labs.data_parallel.journal import Journal
from labs.data_parallel.spec import DataParallelParams
from labs.data_parallel.subjects import Subject
from labs.data_parallel.training import Lone
from labs.parallel.precision import BF16_UNIT, DTYPES
from labs.worst import SMALL, farthest, ratio, worst


@dataclass(frozen=True)
class Tolerance:
    """How far many ranks may be from one process."""

    gradients: float
    """Of the largest gradient."""
    losses: float
    """Relative, in the worst step."""
    drift: float
    """Of the way the parameters went. AdamW divides by the gradient's size: last bits of small ones count."""


FP32 = Tolerance(1e-5, 1e-4, 1e-3)
"""fp32 sums of the same numbers in another order."""
HALF = Tolerance(4 * BF16_UNIT, 1e-2, math.sqrt(BF16_UNIT))
"""bf16 keeps 8 bits, fp16 11: each rank rounds its own products, one process those of the whole batch.

Gradients are rounded when they come out of a product, once on either side, and travel in fp32; parts that
cancel are larger than their mean, hence twice that. Adam's first steps go by the gradients' signs: if of a
share u of the elements, those near 0, half go the other way in half of the steps, the ways part by
2 sqrt(u / 4).
"""


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
    subject: Subject,
    journal: Journal,
    module: nn.Module,
    start: nn.Module,
) -> None:
    """What rank 0 can tell of losses, parameters and dtypes without a second training."""
    if ctx.rank != 0:
        return
    # Losses that have fallen to nothing may be equal.
    least = SMALL * max(journal.losses[0])
    distinct = min(len(set(losses)) for losses in journal.losses if max(losses) >= least)
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
    computed, travelled = (str(dtype).removeprefix("torch.") for dtype in journal.dtypes)
    wanted = str(DTYPES[params.precision]).removeprefix("torch.")
    ctx.check(
        "precision of forward and of gradients",
        (computed, travelled) == (wanted, "float32"),
        measured=f"{computed}, {travelled}",
        expected=f"{wanted}, float32",
        shows="autocast computes the products in its type; parameters and what travels stay float32",
    )


def check_losses(
    ctx: Context, params: DataParallelParams, subject: Subject, journal: Journal, again: float
) -> None:
    """The loss starts where theory puts it, and falls; `again` is that of the first rows, after training.

    The same rows before and after: with few rows the loss of another batch may be higher by chance.
    """
    means = [theory.batch_loss(losses, params.batch) for losses in journal.losses]
    predicted, factor = subject.initial_loss()
    ctx.check(
        "initial loss",
        predicted / factor <= means[0] <= predicted * factor,
        measured=means[0],
        expected=predicted,
        tolerance=predicted * (factor - 1),
        shows="freshly drawn weights keep a deep model's output in range",
    )
    learned = subject.learned_loss() if params.steps >= theory.CLEARLY_AFTER else math.inf
    what = "what frequencies alone would give" if learned < means[0] else "the loss at first"
    ctx.check(
        "loss falls",
        again < min(means[0], learned),
        measured=again,
        expected=f"below {min(means[0], learned):.6g}, {what}",
        unit="on the first step's rows, afterwards",
        shows="the averaged gradient is a direction downhill",
    )
    ctx.metric("initial_loss", means[0])
    ctx.metric("final_loss", means[-1])


def check_equal(
    ctx: Context,
    params: DataParallelParams,
    journal: Journal,
    start: nn.Module,
    lone: Lone,
) -> None:
    """Rank 0 compares its replica with what one process came to on whole batches, in the same precision."""
    allowed = FP32 if params.precision == "fp32" else HALF
    gradients = largest_difference(journal.first_gradients, lone.first_gradients)
    largest = max(float(g.abs().max()) for g in lone.first_gradients)
    ctx.check(
        "averaged gradients equal one process",
        gradients <= allowed.gradients * largest,
        measured=ratio(gradients, largest),
        expected=0.0,
        tolerance=allowed.gradients,
        unit="of the largest",
        shows="the mean over ranks, weighed by their rows, is the gradient of the whole batch",
    )
    compared = len(lone.losses)
    off = farthest(
        (theory.batch_loss(losses, lone.batch) for losses in journal.losses[:compared]), lone.losses
    )
    ctx.check(
        "losses equal one process",
        off <= allowed.losses,
        measured=off,
        expected=0.0,
        tolerance=allowed.losses,
        unit="relative, worst step",
        shows="weighed by their rows, the ranks' losses are in each of these steps the whole batch's",
    )
    ours, theirs = journal.compared, list(lone.module.parameters())
    way = math.sqrt(sum(_squares(a, b) for a, b in zip(theirs, start.parameters(), strict=True)))
    apart = math.sqrt(sum(_squares(a, b) for a, b in zip(ours, theirs, strict=True)))
    ctx.check(
        f"parameters equal one process after {compared} steps",
        apart <= allowed.drift * way,
        measured=ratio(apart, way),
        expected=0.0,
        tolerance=allowed.drift,
        unit="of the way they went",
        shows="many ranks with parts of the batch walked the way of one with all of it",
    )


def largest_difference(left: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """Return the largest difference of any element; infinite where the tensors do not match up."""
    if [t.shape for t in left] != [t.shape for t in right]:
        return math.inf
    return worst(float((a - b).abs().max()) for a, b in zip(left, right, strict=True))


def _squares(left: Tensor, right: Tensor) -> float:
    return float((left.detach() - right.detach()).double().square().sum())
