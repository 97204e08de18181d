"""What the pipeline lab proves: equal to one process, in the planned order and time, memory as predicted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from labs.context import Context
from labs.parallel.activations import Meter
from labs.parallel.pipeline import Done
from labs.parallel.schedule_actions import Schedule, format_row
from labs.pipeline_parallel import theory
from labs.pipeline_parallel.model import Alone
from labs.worst import worst

TOLERANCE = 1e-4
"""Largest relative difference that another order of float32 additions may make."""
STEPS_KEPT = 5


class Engine(Protocol):
    """Either pipeline engine, as the proofs see it."""

    @property
    def trace(self) -> list[Done]: ...
    @property
    def meter(self) -> Meter: ...


@dataclass
class Evidence:
    """What one rank found out; plain numbers, for rank 0 to judge."""

    loss_error: float = 0.0
    gradient_error: float = 0.0
    parameter_error: float = 0.0
    still: int = 0
    """Parameters that never moved."""
    disorder: str = ""
    peak: float = 0.0
    peak_bytes: int = 0
    sent_bytes: int = 0
    traces: list[list[tuple[str, int, int]]] = field(default_factory=list)


class Proof:
    """Collects evidence step by step on every rank, and judges it on rank 0."""

    def __init__(self, ctx: Context, schedule: Schedule) -> None:
        self._ctx, self._schedule = ctx, schedule
        self.mine = Evidence()

    def after_step(
        self,
        engine: Engine,
        losses: Sequence[Tensor],
        expected: Tensor,
        stages: Mapping[int, nn.Module],
        alone: Alone,
    ) -> None:
        """Compare a step's losses and gradients with those of one process, before the optimizer's step."""
        mine, planned = self.mine, format_row(self._schedule.rows[self._ctx.rank])
        if losses:
            mean = torch.stack(list(losses)).mean().cpu()
            mine.loss_error = max(mine.loss_error, relative_error(mean, expected))
        for stage, module in stages.items():
            for own, other in zip(module.parameters(), alone.stages[stage].parameters(), strict=True):
                mine.gradient_error = max(mine.gradient_error, relative_error(own.grad, other.grad))
        done = format_row(one.action for one in engine.trace)
        if done != planned and not mine.disorder:
            mine.disorder = first_difference(done, planned)
        mine.traces = [*mine.traces, [(str(a), start, end) for a, start, end in engine.trace]][-STEPS_KEPT:]

    def finish(
        self, engine: Engine, stages: Mapping[int, nn.Module], alone: Alone, before: Sequence[Tensor]
    ) -> list[Evidence]:
        """Compare the parameters after the last step; returns every rank's evidence, in rank order."""
        mine = self.mine
        now = [parameter.detach() for module in stages.values() for parameter in module.parameters()]
        other = [p.detach() for stage in stages for p in alone.stages[stage].parameters()]
        mine.parameter_error = max(relative_error(a, b) for a, b in zip(now, other, strict=True))
        mine.still = sum(bool(torch.equal(a, b)) for a, b in zip(now, before, strict=True))
        mine.peak = engine.meter.peak_chunks / self._schedule.chunks
        mine.peak_bytes = engine.meter.peak_bytes
        gathered: list[Evidence | None] = [None] * self._ctx.world_size
        dist.all_gather_object(gathered, mine)
        return [evidence for evidence in gathered if evidence is not None]


def relative_error(measured: Tensor | None, expected: Tensor | None) -> float:
    """Return the largest difference over the largest expected value; infinite where one is absent or NaN."""
    if measured is None or expected is None:
        return 0.0 if measured is expected else float("inf")
    difference = float((measured.detach().cpu() - expected.detach().cpu()).abs().max())
    scale = float(expected.detach().abs().max())
    return worst((difference / max(scale, 1e-12),))


def first_difference(done: str, planned: str) -> str:
    """Say where two rows part."""
    for index, (one, other) in enumerate(zip(done.split(), planned.split(), strict=False)):
        if one != other:
            return f"action {index} was {one}, planned {other}"
    return f"{len(done.split())} actions, planned {len(planned.split())}"


def judge_equality(ctx: Context, found: Sequence[Evidence]) -> None:
    """Check that the pipeline trained as one process does."""
    errors = (
        (
            "losses equal",
            max(one.loss_error for one in found),
            "the mean of the micro-batches' losses is the whole batch's; only the last stage has a loss",
        ),
        (
            "gradients equal",
            max(one.gradient_error for one in found),
            "every micro-batch came back through every stage, once, with weight 1/m",
        ),
        (
            "parameters equal",
            max(one.parameter_error for one in found),
            "after all steps the stages together are the model that one process trained",
        ),
    )
    check_equal(ctx, errors, sum(one.still for one in found))


def check_equal(ctx: Context, errors: Iterable[tuple[str, float, str]], still: int) -> None:
    """Check each error (of what, how large, what it shows), and that no parameter stood `still`."""
    for what, error, shows in errors:
        ctx.check(f"{what} one process", error <= TOLERANCE, error, 0.0, TOLERANCE, "relative", shows)
    shows = "the optimizer steps the parameters of the stages themselves"
    ctx.check("parameters moved", still == 0, still, 0, 0, "stayed", shows)


def judge_order(ctx: Context, schedule: Schedule, found: Sequence[Evidence]) -> None:
    """Check the order of the actions and the peak of the activations against the schedule."""
    wrong = [f"rank {rank}: {one.disorder}" for rank, one in enumerate(found) if one.disorder]
    good = f"{sum(map(len, schedule.rows))} actions in order"
    shows = "each rank did the actions of the schedule, in its order"
    measured = wrong[0] if wrong else good
    ctx.check("measured order is the planned order", not wrong, measured, good, shows=shows)
    p, m, v = schedule.num_ranks, schedule.num_micro_batches, schedule.chunks
    expected = [theory.peak_micro_batches(schedule.name, p, m, v, rank) for rank in range(p)]
    peaks = [one.peak for one in found]
    shows = "what a forward keeps is let go after its last use, not later"
    unit = "micro-batches, rank by rank"
    ctx.check(
        "peak activations equal theory", peaks == expected, _words(peaks), _words(expected), 0, unit, shows
    )
    ctx.metric("peak_activation_bytes", max(one.peak_bytes for one in found), "B")


def judge_bytes(ctx: Context, found: Sequence[Evidence], expected: int) -> None:
    """Check the bytes that all ranks sent against what crosses the boundaries."""
    sent = sum(one.sent_bytes for one in found)
    shows = "each boundary carries an activation there and a gradient back for each micro-batch"
    ctx.check("bytes sent equal theory", sent == expected, sent, expected, 0, "B", shows)


def _words(values: Sequence[float]) -> str:
    return " ".join(f"{value:g}" for value in values)
