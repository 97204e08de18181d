"""The zero lab's checks: memory and traffic beside theory, and equality with one process."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from labs.comms import Comms
from labs.context import Context
from labs.data_parallel.theory import loss_weight
from labs.zero import theory
from labs.zero.spec import ZeroParams

if TYPE_CHECKING:
    from labs.zero.lab import Journal

SIZE_TOLERANCE = 0.05
"""Of the predicted bytes: padding, and the flags that tell which parameters were used."""
GRADIENT_TOLERANCE = 1e-5
LOSS_TOLERANCE = 1e-4
DRIFT_TOLERANCE = 1e-3
"""Of the way the parameters went. AdamW divides by the gradient's size, so last bits of small ones count."""


def over_ranks(proof: Comms, numbers: list[float], op: str) -> list[float]:
    """Return the max or sum over ranks of each number; exact for bytes below 2^53."""
    told = torch.tensor(numbers, dtype=torch.float64, device=proof.recorder.device)
    proof.all_reduce(told, op=op)
    return told.tolist()


def check_memory(ctx: Context, params: ZeroParams, journal: Journal, proof: Comms) -> None:
    """Compare the bytes of each kind, on the rank with most, with the rule 4 + 4 + 8 of the stage."""
    psi = params.layers * params.dim**2
    for moment in theory.MOMENTS_OF_A_STEP:
        expected = theory.memory(int(params.stage), psi, ctx.world_size, moment)
        mine = journal.memory[moment]
        most = over_ranks(proof, [float(mine[kind]) for kind in theory.KINDS], "max")
        if ctx.rank != 0:
            continue
        for kind, measured in zip(theory.KINDS, most, strict=True):
            name = f"{kind} {moment}"
            ctx.metric(f"{name} bytes".replace(" ", "_"), measured, "B")
            ctx.metric(f"{name} bytes theory".replace(" ", "_"), expected[kind], "B")
            ctx.check(
                f"memory: {name}",
                abs(measured - expected[kind]) <= SIZE_TOLERANCE * expected[kind],
                measured=int(measured),
                expected=int(expected[kind]),
                tolerance=SIZE_TOLERANCE * expected[kind],
                unit="B",
                shows=_memory_rule(int(params.stage), kind),
            )


def _memory_rule(stage: int, kind: str) -> str:
    sharded = stage >= {"optimizer": 1, "gradients": 2, "parameters": 3}[kind]
    each = {"optimizer": 8, "gradients": 4, "parameters": 4}[kind]
    return f"{each} bytes a parameter" + (
        ", shared out over the ranks" if sharded else ", whole on every rank"
    )


def check_traffic(ctx: Context, params: ZeroParams, journal: Journal) -> None:
    """Compare what rank 0 sent in a step with 2 or 3 Psi (N-1)/N elements."""
    if ctx.rank != 0:
        return
    psi = params.layers * params.dim**2
    expected = theory.traffic(int(params.stage), psi, ctx.world_size)
    unit = psi * theory.FP32 * (ctx.world_size - 1) / ctx.world_size
    ctx.metric("sent_bytes_per_step", journal.sent, "B")
    ctx.metric("sent_bytes_per_step_theory", expected, "B")
    ctx.check(
        "traffic of a step",
        abs(journal.sent - expected) <= SIZE_TOLERANCE * expected,
        measured=journal.sent / unit,
        expected=theory.traffic_factor(int(params.stage)),
        tolerance=SIZE_TOLERANCE * theory.traffic_factor(int(params.stage)),
        unit="Psi (N-1)/N",
        shows="stages 0, 1 and 2 move the same; stage 3 gathers the parameters once more",
    )


def check_equal(
    ctx: Context,
    params: ZeroParams,
    journal: Journal,
    proof: Comms,
    losses: list[float],
    gradients: dict[str, Tensor],
) -> None:
    """Compare each rank's part of the first gradient, and the batch's loss in every step."""
    apart = max(
        (
            float((mine - gradients[name].flatten()[start:stop]).abs().max())
            for name, start, stop, mine in journal.first_gradients
        ),
        default=0.0,
    )
    covered = sum(stop - start for _, start, stop, _ in journal.first_gradients)
    weight = loss_weight(ctx.rank, ctx.world_size, params.batch) / ctx.world_size
    total = over_ranks(proof, [float(covered), *(weight * loss for loss in journal.losses)], "sum")
    (apart,) = over_ranks(proof, [apart], "max")
    if ctx.rank != 0:
        return
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    psi = params.layers * params.dim**2
    owners = ctx.world_size if params.stage == "0" else 1
    ctx.check(
        "each element has one owner" if owners == 1 else "each rank has every element",
        total[0] == psi * owners,
        measured=int(total[0]),
        expected=psi * owners,
        unit="elements optimized",
        shows="the ranks' slices cover every parameter, without gaps and without overlap",
    )
    ctx.check(
        "gradients equal one process",
        apart <= GRADIENT_TOLERANCE * largest,
        measured=apart / largest,
        expected=0.0,
        tolerance=GRADIENT_TOLERANCE,
        unit="of the largest",
        shows="each rank's slice is that slice of the whole batch's gradient",
    )
    worst = max(abs(a - b) / b for a, b in zip(total[1:], losses, strict=True))
    ctx.check(
        "losses equal one process",
        worst <= LOSS_TOLERANCE,
        measured=worst,
        expected=0.0,
        tolerance=LOSS_TOLERANCE,
        unit="relative, worst step",
        shows="the ranks' losses, weighed by their rows, are the loss of the whole batch in every step",
    )
    ctx.metric("initial_loss", total[1])
    ctx.metric("final_loss", total[-1])


def check_parameters(
    ctx: Context, start: dict[str, Tensor], after: dict[str, Tensor], lone: dict[str, Tensor], proof: Comms
) -> None:
    """Compare the parameters that every rank ends with, gathered whole, with one process's."""
    way = math.sqrt(sum(_squares(lone[name], start[name]) for name in lone))
    apart = math.sqrt(sum(_squares(after[name], lone[name]) for name in lone))
    (worst,) = over_ranks(proof, [apart], "max")
    if ctx.rank != 0:
        return
    ctx.check(
        "parameters equal one process",
        after.keys() == lone.keys() and worst <= DRIFT_TOLERANCE * way,
        measured=worst / way,
        expected=0.0,
        tolerance=DRIFT_TOLERANCE,
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


def _squares(left: Tensor, right: Tensor) -> float:
    return float((left - right).double().square().sum())
