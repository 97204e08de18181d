"""What checkpointing saves and costs, measured: a step with it and one without, same stages, same data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from labs.context import Context
from labs.parallel.pipeline import Loss, Pipeline
from labs.parallel.pipeline_mail import Wire
from labs.parallel.schedule_actions import Schedule

EXTRA, TOLERANCE = 1 / 3, 0.05
"""A backward costs two forwards, so one more forward is a third more."""


class Flops(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the floating point operations of what torch executes, by torch's own formulas.

    Its `FlopCounterMode` also hooks every gradient, which a backward that is split in two does not allow.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=out)
        return out


class Cost(NamedTuple):
    """One rank's step: floating point operations of its matrix products, and its peak of activation bytes."""

    flops: int
    peak_bytes: int


def _step(
    schedule: Schedule,
    rank: int,
    stages: Mapping[int, nn.Module],
    wire: Wire,
    loss: Loss,
    data: tuple[Sequence[Tensor] | None, Sequence[Tensor] | None],
    checkpoint: bool,
) -> Cost:
    pipeline = Pipeline(schedule, rank, stages, wire, loss, checkpoint=checkpoint)
    pipeline.step(*data)
    with Flops() as flops:
        pipeline.step(*data)
    for module in stages.values():
        module.zero_grad()
    return Cost(flops.total, pipeline.meter.peak_bytes)


def judge(
    ctx: Context,
    schedule: Schedule,
    stages: Mapping[int, nn.Module],
    wire: Wire,
    loss: Loss,
    data: tuple[Sequence[Tensor] | None, Sequence[Tensor] | None],
) -> None:
    """Run a step each way on all ranks, and check memory and compute on rank 0."""
    plain = _step(schedule, ctx.rank, stages, wire, loss, data, checkpoint=False)
    thrifty = _step(schedule, ctx.rank, stages, wire, loss, data, checkpoint=True)
    gathered: list[tuple[Cost, Cost] | None] = [None] * ctx.world_size
    dist.all_gather_object(gathered, (plain, thrifty))
    if ctx.rank:
        return
    pairs = [pair for pair in gathered if pair is not None]
    before, after = max(one.peak_bytes for one, _ in pairs), max(one.peak_bytes for _, one in pairs)
    shows = "between forward and backward a stage keeps its input alone"
    ctx.check("checkpointing keeps less", after < before, after, f"less than {before}", None, "B", shows)
    extra = sum(one.flops for _, one in pairs) / sum(one.flops for one, _ in pairs) - 1
    shows = "each forward runs once more: a third of forward and backward together"
    passed = abs(extra - EXTRA) <= TOLERANCE
    ctx.check(
        "checkpointing costs a third more compute", passed, extra, EXTRA, TOLERANCE, "of all FLOP", shows
    )
