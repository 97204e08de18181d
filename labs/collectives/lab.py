"""The collectives lab: run each operation, show every buffer before and after, check it by its definition."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from labs.collectives import theory
from labs.collectives.calls import perform
from labs.collectives.spec import CollectivesParams, ops_of, steps_of
from labs.collectives.steps import run_stepwise
from labs.collectives.theory import DEFINITIONS, UNWRITTEN, Op
from labs.collectives.verdict import Judge
from labs.comms import Handle
from labs.context import SMALL, Context

STAGGER_S = 0.01
"""Each rank comes to the barrier so much later than the one before it."""
MEANWHILE = 64
"""Width of the matrix product that runs between starting an operation and waiting for it."""


def run(ctx: Context, params: CollectivesParams) -> None:
    """Run the chosen operations in turn, then what they are made of."""
    if params.mismatch:
        bring_one_more(ctx, params)
        return
    judge = Judge(ctx)
    ops, stepwise = ops_of(params), steps_of(params)
    identities = [op for op in ("all_reduce", "broadcast") if op in ops]
    total = len(ops) + len(stepwise) + len(identities)
    moved = 0
    for step, op in enumerate(ops):
        ctx.step(step, total)
        moved += show(ctx, params, op, judge)
    check_bytes(ctx, params, ops, moved)
    # Sends are numbered too, and a tree sends unequally: hence a group of their own (see labs.comms).
    links = ctx.comms.over(dist.new_group(), "links") if stepwise else ctx.comms
    for step, op in enumerate(stepwise, start=len(ops)):
        ctx.step(step, total)
        run_stepwise(ctx, params, op, start_buffers(ctx, params, op), links, judge)
    for step, op in enumerate(identities, start=len(ops) + len(stepwise)):
        ctx.step(step, total)
        (all_reduce_in_two if op == "all_reduce" else broadcast_in_two)(ctx, params, judge)


def show(ctx: Context, params: CollectivesParams, op: Op, judge: Judge) -> int:
    """Run one operation; every rank tells its buffer before and after. Returns S as it was counted."""
    buffers = start_buffers(ctx, params, op)
    mine = as_tensor(ctx, params, buffers[ctx.rank])
    tell(ctx, op, "before", mine, [ctx.rank] * mine.numel())
    if op == "barrier":
        time.sleep(STAGGER_S * ctx.rank)
    before, came = ctx.comms.traffic.total(counted_as(op)), time.monotonic_ns()
    result, handles = perform(
        ctx.comms, op, mine, params.elements, params.root, params.reduce_op, params.async_op
    )
    finish(ctx, handles, overlap=params.async_op)
    left, moved = time.monotonic_ns(), ctx.comms.traffic.total(counted_as(op)) - before
    expected = theory.outcome(op, ctx.rank, buffers, params.root, params.reduce_op)
    tell(ctx, op, "after", result, expected.origin if expected else [UNWRITTEN] * result.numel())
    if op == "barrier":
        check_barrier(ctx, judge, came, left)
    else:
        values = expected.values if expected else None
        judge.compare(f"{op} matches its definition", result, values, DEFINITIONS[op])
    return moved


def counted_as(op: Op) -> str:
    """Return the name under which the communicator counts an operation's bytes."""
    return "send" if op == "send_recv" else op


def finish(ctx: Context, handles: Sequence[Handle], *, overlap: bool) -> None:
    """Wait for what is in flight; with `overlap`, compute first, as long as the bytes travel anyway."""
    if overlap:
        with ctx.span("compute", "meanwhile"):
            square = torch.ones(MEANWHILE, MEANWHILE, device=ctx.device)
            for _ in range(10):
                square = square @ square / MEANWHILE
    for handle in handles:
        handle.wait()


def start_buffers(ctx: Context, params: CollectivesParams, op: Op) -> list[list[float]]:
    """Return what every rank holds before, as the dtype can hold it; each rank can work all of it out."""
    return [
        as_tensor(
            ctx,
            params,
            theory.start_of(op, rank, ctx.world_size, params.elements, params.root, params.reduce_op),
        ).tolist()
        for rank in range(ctx.world_size)
    ]


def as_tensor(ctx: Context, params: CollectivesParams, values: Sequence[float]) -> Tensor:
    """Return a tensor of the lab's dtype on this rank's device."""
    return torch.tensor(list(values), dtype=getattr(torch, params.dtype), device=ctx.device)


def tell(ctx: Context, name: str, moment: str, tensor: Tensor, origin: list[int]) -> None:
    """Tell a buffer, with the rank each element came from while it is small enough to be drawn."""
    ctx.tensor(
        name,
        "before" if moment == "before" else "after",
        tensor,
        origin=origin if tensor.numel() <= SMALL else None,
    )


def check_barrier(ctx: Context, judge: Judge, came: int, left: int) -> None:
    """No rank left before the last one came; the clock is one for all ranks of a node (ns)."""
    times = judge.gather([came, left])
    last_came, first_left = max(c for c, _ in times), min(e for _, e in times)
    if ctx.rank == 0:
        ctx.check(
            "barrier matches its definition",
            first_left >= last_came,
            measured=(first_left - last_came) / 1e6,
            expected=">= 0",
            unit="ms from the last to come to the first to leave",
            shows=DEFINITIONS["barrier"],
        )


def check_bytes(ctx: Context, params: CollectivesParams, ops: Sequence[Op], moved: int) -> None:
    """The bytes that the communicator counted are those of the theory; and what a rank sends for each."""
    if ctx.rank != 0:
        return
    itemsize = getattr(torch, params.dtype).itemsize
    sizes = {op: theory.payload_bytes(op, params.elements, ctx.world_size, itemsize) for op in ops}
    ctx.check(
        "bytes of all operations",
        moved == sum(sizes.values()),
        measured=moved,
        expected=sum(sizes.values()),
        unit="B",
        shows="S by the rule of nccl-tests: one buffer, or the total of all pieces",
    )
    for op, size in sizes.items():
        most = max(
            theory.sent_bytes(op, rank, params.root, ctx.world_size, size) for rank in range(ctx.world_size)
        )
        ctx.metric(f"{op}.bytes", size, "B")
        ctx.metric(f"{op}.most_sent_by_a_rank", most, "B")


def all_reduce_in_two(ctx: Context, params: CollectivesParams, judge: Judge) -> None:
    """Do an all-reduce as a reduce-scatter and an all-gather, beside the library's."""
    buffer = as_tensor(ctx, params, start_buffers(ctx, params, "reduce_scatter")[ctx.rank])
    whole, piece = buffer.clone(), buffer.new_empty(params.elements)
    ctx.comms.all_reduce(whole, params.reduce_op)
    ctx.comms.reduce_scatter(piece, buffer, params.reduce_op)
    joined = torch.empty_like(whole)
    ctx.comms.all_gather(joined, piece)
    judge.compare(
        "all_reduce = reduce_scatter + all_gather",
        joined,
        whole.tolist(),
        "combining the pieces and then collecting them is the whole operation",
    )


def broadcast_in_two(ctx: Context, params: CollectivesParams, judge: Judge) -> None:
    """Do a broadcast as a scatter and an all-gather, beside the library's."""
    buffer = as_tensor(ctx, params, start_buffers(ctx, params, "reduce_scatter")[ctx.rank])
    whole, piece = buffer.clone(), buffer.new_empty(params.elements)
    ctx.comms.broadcast(whole, params.root)
    pieces = list(torch.split(buffer, params.elements)) if ctx.rank == params.root else None
    ctx.comms.scatter(piece, pieces, params.root)
    joined = torch.empty_like(whole)
    ctx.comms.all_gather(joined, piece)
    judge.compare(
        "broadcast = scatter + all_gather",
        joined,
        whole.tolist(),
        "large broadcasts are done so: the root sends its buffer once, not W-1 times",
    )


def bring_one_more(ctx: Context, params: CollectivesParams) -> None:
    """Let the last rank bring a longer tensor to an all-reduce; the group must refuse it by name."""
    last = ctx.rank == ctx.world_size - 1
    tensor = torch.ones(params.elements + last, dtype=getattr(torch, params.dtype), device=ctx.device)
    ctx.step(0, 1)
    tell(ctx, "all_reduce", "before", tensor, [ctx.rank] * tensor.numel())
    ctx.comms.all_reduce(tensor, params.reduce_op)
