"""The zero lab's checks: memory and traffic beside theory, and equality with one process."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from labs.comms import Comms
from labs.context import Context
from labs.data_parallel.theory import loss_weight
from labs.parallel.precision import BF16_UNIT
from labs.worst import farthest, over_ranks, ratio, worst
from labs.zero import theory
from labs.zero.alone import Lone
from labs.zero.spec import ZeroParams

if TYPE_CHECKING:
    from labs.zero.lab import Journal

SIZE_TOLERANCE = 0.05
"""Of the predicted bytes: padding, and the flags that tell which parameters were used."""


@dataclass(frozen=True)
class Tolerances:
    """Relative. `gradient` is of the largest element, `drift` of the way the parameters went.

    AdamW divides by the gradient's size, so the last bits of small ones count in the drift.
    """

    loss: float
    gradient: float
    norm: float
    drift: float


FP32 = Tolerances(loss=1e-4, gradient=1e-5, norm=1e-4, drift=1e-3)
"""Sums of the same numbers in another order."""


def tolerances(params: ZeroParams, world_size: int) -> Tolerances:
    """Return how far many ranks may be from one process.

    In bf16, in units u of one rounding. Gradients: one process rounds each once; ranks round their parts, the
    weights of those, and each sum over micro-batches and ranks, at most u each; and parts that cancel are
    larger than their sum, so twice the first two. The drift: Adam's first steps go by the gradients' signs;
    if of a share u of the elements, those near 0, half go the other way in half of the steps, the ways part
    by 2 sqrt(u / 4). Norms follow the ways; losses are means in fp32, whose roundings cancel, at places a
    little apart. A wrong factor, or a slice one off, is off by half or more.
    """
    if params.precision == "fp32":
        return FP32
    u = BF16_UNIT
    gradient = (1 + 2 * 2 + (params.accumulate - 1) + (world_size - 1)) * u
    return Tolerances(loss=4 * u, gradient=gradient, norm=math.sqrt(u), drift=math.sqrt(u))


def check_memory(ctx: Context, setting: theory.Setting, journal: Journal, proof: Comms) -> None:
    """Compare the bytes of each kind, on the rank with most, with the rule of the stage."""
    for moment in theory.MOMENTS_OF_A_STEP:
        expected = theory.memory(setting, moment)
        mine = journal.memory[moment]
        most = over_ranks(proof, [float(mine[kind]) for kind in theory.KINDS], "max")
        if ctx.rank != 0:
            continue
        for kind, measured in zip(theory.KINDS, most, strict=True):
            name = f"{kind} {moment}"
            ctx.metric(f"{name} bytes".replace(" ", "_"), measured, "B")
            ctx.check(
                f"memory: {name}",
                abs(measured - expected[kind]) <= SIZE_TOLERANCE * expected[kind],
                measured=int(measured),
                expected=int(expected[kind]),
                tolerance=SIZE_TOLERANCE * expected[kind],
                unit="B",
                shows=_memory_rule(setting, kind, moment),
            )


def _memory_rule(setting: theory.Setting, kind: str, moment: theory.Moment) -> str:
    least = {"optimizer": 1, "gradients": 2, "parameters": 3}[kind]
    each = theory.bytes_a_parameter(setting, kind, moment)
    if not each:
        return "Adam makes its moments in the first step"
    if kind == "gradients" and moment != "before step":
        return "gradients are there from backward to the step"
    where = f"shared out over {setting.shard_group} ranks"
    return f"{each} bytes a parameter, " + (
        where if theory.SHARDED[setting.stage] >= least else "whole on every rank"
    )


def check_freed(ctx: Context, kept: int, proof: Comms) -> None:
    """Demand that no rank still has any of the whole parameters that it began with."""
    (most,) = over_ranks(proof, [float(kept)], "max")
    if ctx.rank == 0:
        ctx.check(
            "memory: whole parameters let go",
            most == 0,
            measured=int(most),
            expected=0,
            unit="B",
            shows="what was cut into shards is not kept beside them",
        )


def check_home(ctx: Context, elsewhere: int, proof: Comms) -> None:
    """Demand that no shard and no optimizer state is anywhere but in the CPU's memory, on any rank."""
    (total,) = over_ranks(proof, [float(elsewhere)], "sum")
    if ctx.rank == 0:
        ctx.check(
            "memory: shards live on the CPU",
            total == 0,
            measured=int(total),
            expected=0,
            unit="tensors elsewhere",
            shows="offloaded, parameters' shards and optimizer state take no memory of the GPU",
        )


def check_traffic(ctx: Context, setting: theory.Setting, journal: Journal) -> None:
    """Compare what rank 0 sent in a step, axis by axis, with so many times Psi (n-1)/n elements."""
    if ctx.rank != 0:
        return
    moves = theory.moves(setting)
    ctx.metric("sent_bytes_per_step", sum(journal.sent.values()), "B")
    for axis, times in moves.items():
        unit = theory.unit(setting, axis)
        sent = journal.sent[axis]
        if len(moves) > 1:
            ctx.metric(f"sent_bytes_per_step_{axis}", sent, "B")
        ctx.check(
            "traffic of a step" if len(moves) == 1 else f"traffic of a step over {axis}",
            abs(sent - times * unit) <= SIZE_TOLERANCE * times * unit,
            measured=sent / unit if unit else 0.0,
            expected=times if unit else 0.0,
            tolerance=SIZE_TOLERANCE * times,
            unit=f"Psi ({theory.axis_size(setting, axis)}-1)/{theory.axis_size(setting, axis)}",
            shows=_traffic_rule(setting, axis),
        )


def _traffic_rule(setting: theory.Setting, axis: str) -> str:
    if axis == "replicate":
        return "across the replicas only the parts of the gradients travel, 1/shards of an all-reduce"
    if setting.accumulate > 1:
        return f"{setting.accumulate} micro-batches: what is sharded is gathered or reduced for each"
    return "stages 0, 1 and 2 move 2 Psi; stage 3 gathers each layer's parameters once more"


def check_equal(
    ctx: Context,
    params: ZeroParams,
    setting: theory.Setting,
    journal: Journal,
    proof: Comms,
    lone: Lone,
) -> None:
    """Compare each rank's part of the first gradient, and the batch's loss in every step."""
    allowed = tolerances(params, ctx.world_size)
    gradients = lone.first_gradients
    apart = worst(
        float((mine.float() - gradients[name].flatten()[start:stop].float()).abs().max())
        for name, start, stop, mine in journal.first_gradients
    )
    covered = sum(stop - start for _, start, stop, _ in journal.first_gradients)
    weight = loss_weight(ctx.rank, ctx.world_size, params.batch) / ctx.world_size
    total = over_ranks(proof, [float(covered), *(weight * loss for loss in journal.losses)], "sum")
    (apart,) = over_ranks(proof, [apart], "max")
    norms = over_ranks(proof, [*journal.norms, *(-norm for norm in journal.norms)], "max")
    if ctx.rank != 0:
        return
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    owners = setting.copies
    ctx.check(
        "each element has one owner" if owners == 1 else f"each element lies on {owners} ranks",
        total[0] == setting.psi * owners,
        measured=int(total[0]),
        expected=setting.psi * owners,
        unit="elements optimized",
        shows="the ranks' slices cover every parameter, without gaps and without overlap",
    )
    _near(
        ctx,
        "gradients equal one process",
        ratio(apart, largest),
        allowed.gradient,
        "of the largest",
        "each rank's slice is that slice of the whole batch's gradient",
    )
    _near(
        ctx,
        "losses equal one process",
        farthest(total[1:], lone.losses),
        allowed.loss,
        "relative, worst step",
        "the ranks' losses, weighed by their rows, are the loss of the whole batch in every step",
    )
    if params.clip:
        _check_norms(ctx, params, norms, lone.norms)
    ctx.metric("initial_loss", total[1])
    ctx.metric("final_loss", total[-1])


def _check_norms(ctx: Context, params: ZeroParams, norms: list[float], lone: list[float]) -> None:
    """`norms` are the largest of the ranks by step, and then the smallest with their signs turned."""
    largest, smallest = norms[: len(lone)], [-norm for norm in norms[len(lone) :]]
    _near(
        ctx,
        "gradient norm equals one process",
        max(farthest(largest, lone), farthest(smallest, lone)),
        tolerances(params, ctx.world_size).norm,
        "relative, worst step and rank",
        "clipping goes by the norm of the whole gradient, of which a rank holds a part",
    )
    ctx.metric("clipped_steps", sum(norm > params.clip for norm in lone))


def check_parameters(
    ctx: Context,
    params: ZeroParams,
    start: dict[str, Tensor],
    after: dict[str, Tensor],
    lone: dict[str, Tensor],
    proof: Comms,
) -> None:
    """Compare the parameters that every rank ends with, gathered whole, with one process's."""
    way = math.sqrt(sum(_squares(lone[name], start[name]) for name in lone))
    apart = math.sqrt(sum(_squares(after[name], lone[name]) for name in lone))
    (apart,) = over_ranks(proof, [apart], "max")
    if ctx.rank != 0:
        return
    allowed = tolerances(params, ctx.world_size).drift
    ctx.check(
        "parameters equal one process",
        after.keys() == lone.keys() and apart <= allowed * way,
        measured=ratio(apart, way),
        expected=0.0,
        tolerance=allowed,
        unit="of the way they went",
        shows="sharding changes where numbers lie, not which numbers they are",
    )
    moved = sum(not torch.equal(after[name], start[name]) for name in start)
    ctx.check(
        "parameters moved",
        moved == len(start),
        measured=moved,
        expected=len(start),
        unit="tensors",
        shows="the optimizer steps what the model computes with",
    )


def _near(ctx: Context, name: str, measured: float, tolerance: float, unit: str, shows: str) -> None:
    ctx.check(
        name,
        measured <= tolerance,
        measured=measured,
        expected=0.0,
        tolerance=tolerance,
        unit=unit,
        shows=shows,
    )


def _squares(left: Tensor, right: Tensor) -> float:
    return float((left - right).double().square().sum())
