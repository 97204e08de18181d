"""Runs an operation step by step, shows each step, and holds the result against the library's call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from labs.collectives import theory
from labs.collectives.calls import perform
from labs.collectives.spec import CollectivesParams
from labs.collectives.stepwise import (
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
    tree_broadcast,
    tree_reduce,
)
from labs.collectives.theory import Op
from labs.collectives.verdict import Judge
from labs.comms import Comms
from labs.context import Context


def run_stepwise(
    ctx: Context,
    params: CollectivesParams,
    op: Op,
    buffers: Sequence[Sequence[float]],
    links: Comms,
    judge: Judge,
) -> None:
    """Run `op` over `links` by the chosen algorithm and by the library; compare results and bytes."""
    mine = torch.tensor(list(buffers[ctx.rank]), dtype=getattr(torch, params.dtype), device=ctx.device)
    name = f"{params.algorithm} {op}"
    rounds = 0

    def told(step: int, buffer: Tensor) -> None:
        nonlocal rounds
        rounds = max(rounds, step + 1)
        ctx.tensor(f"{name} step {step + 1}", "after", buffer)

    ctx.tensor(f"{name} step 0", "before", mine)
    before = ctx.comms.traffic.total("send")
    result = _stepwise(links, params, op, mine.clone(), told)
    sent = ctx.comms.traffic.total("send") - before
    library, _ = perform(ctx.comms, op, mine, params.elements, params.root, params.reduce_op, False)
    undefined = theory.outcome(op, ctx.rank, buffers, params.root, params.reduce_op) is None
    judge.compare(
        f"{name} equals the library",
        result,
        None if undefined else library.tolist(),
        "sends and receives alone come to what the library's call does",
    )
    _check_cost(ctx, params, op, judge.gather([sent, rounds]))


def _stepwise(
    comms: Comms, params: CollectivesParams, op: Op, buffer: Tensor, told: Callable[[int, Tensor], None]
) -> Tensor:
    match op:
        case "all_gather":
            whole = buffer.new_zeros(params.elements * comms.world_size)
            ring_all_gather(comms, whole, buffer, told)
            return whole
        case "reduce_scatter":
            return ring_reduce_scatter(comms, buffer, params.reduce_op, told)
        case "all_reduce":
            ring_all_reduce(comms, buffer, params.reduce_op, told)
        case "broadcast":
            tree_broadcast(comms, buffer, params.root, told)
        case "reduce":
            tree_reduce(comms, buffer, params.root, params.reduce_op, told)
        case _:
            raise ValueError(f"no algorithm runs {op} step by step")
    return buffer


def _check_cost(ctx: Context, params: CollectivesParams, op: Op, seen: Sequence[Sequence[int]]) -> None:
    """Bytes sent by all ranks together, and the number of steps, as theory has them."""
    if ctx.rank != 0:
        return
    itemsize = getattr(torch, params.dtype).itemsize
    size = theory.payload_bytes(op, params.elements, ctx.world_size, itemsize)
    expected = theory.stepwise_bytes(op, ctx.world_size, size)
    sent = sum(row[0] for row in seen)
    ctx.check(
        f"{params.algorithm} {op} bytes",
        sent == expected,
        measured=sent,
        expected=expected,
        unit="B sent by all ranks",
        shows="each half of the ring sends S once a rank but one; the tree gives S to each rank but one",
    )
    steps = max(row[1] for row in seen)
    ctx.check(
        f"{params.algorithm} {op} steps",
        steps == theory.stepwise_rounds(op, ctx.world_size),
        measured=steps,
        expected=theory.stepwise_rounds(op, ctx.world_size),
        unit="steps one after another",
        shows="the ring takes steps in proportion to the ranks, the tree to their logarithm",
    )
