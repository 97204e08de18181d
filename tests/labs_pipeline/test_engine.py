"""Every schedule on real ranks against one process: losses, gradients, planned order, peaks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NoReturn

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from labs.context import Context
from labs.parallel.pipeline import Pipeline
from labs.parallel.pipeline_mail import TwoWay, Wire
from labs.parallel.pipeline_shapes import agree
from labs.parallel.schedule_actions import Schedule, format_row, parse_rows
from labs.parallel.schedule_simulator import simulate
from labs.parallel.schedules import NAMES, build
from tests.ranks import on_ranks, values

MICRO_BATCH = 3


class Block(nn.Module):
    """A residual block that changes width on its way out."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, 2 * width)
        self.outer = nn.Linear(2 * width, width, bias=False)
        self.change = nn.Linear(width, out)

    def forward(self, x: Tensor) -> Tensor:
        changed: Tensor = self.change(x + self.outer(torch.tanh(self.inner(x))))
        return changed


def values_of(world_size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What each rank of the pipeline returned."""
    return values(on_ranks(world_size, function, *arguments, lab="pp"))


def model(num_stages: int, widths: tuple[int, ...]) -> nn.ModuleList:
    torch.manual_seed(7)
    around = [widths[stage % len(widths)] for stage in range(num_stages + 1)]
    return nn.ModuleList(Block(a, b) for a, b in pairwise(around))


def data(schedule: Schedule, width: int, out: int) -> tuple[list[Tensor], list[Tensor]]:
    torch.manual_seed(11)
    m = schedule.num_micro_batches
    inputs, targets = torch.randn(m * MICRO_BATCH, width), torch.randn(m * MICRO_BATCH, out)
    return list(inputs.chunk(m)), list(targets.chunk(m))


def alone(schedule: Schedule, widths: tuple[int, ...]) -> tuple[list[float], list[list[Tensor]]]:
    """Losses a micro-batch and gradients a stage, of one process on the whole batch."""
    whole = model(schedule.num_stages, widths)
    inputs, targets = data(schedule, widths[0], widths[schedule.num_stages % len(widths)])
    for_loss = copy.deepcopy(whole)
    output = nn.Sequential(*whole)(torch.cat(inputs))
    torch.autograd.backward([functional.mse_loss(output, torch.cat(targets))])
    with torch.no_grad():
        losses = [
            float(functional.mse_loss(nn.Sequential(*for_loss)(x), y))
            for x, y in zip(inputs, targets, strict=True)
        ]
    return losses, [[_grad(parameter) for parameter in stage.parameters()] for stage in whole]


def _grad(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def part(
    ctx: Context, schedules: list[Schedule], widths: tuple[int, ...], checkpoint: bool
) -> list[dict[str, Any]]:
    """Run schedules one after another on this rank."""
    wire = ctx.comms.over(dist.new_group(), "pipeline")
    return [_one(ctx.rank, wire, schedule, widths, checkpoint) for schedule in schedules]


def _one(
    rank: int, wire: Wire, schedule: Schedule, widths: tuple[int, ...], checkpoint: bool
) -> dict[str, Any]:
    whole = model(schedule.num_stages, widths)
    torch.manual_seed(1000 + rank)
    stages = {stage: whole[stage] for stage in schedule.stages_of(rank)}
    inputs, targets = data(schedule, widths[0], widths[schedule.num_stages % len(widths)])
    pipeline = Pipeline(schedule, rank, stages, wire, functional.mse_loss, checkpoint=checkpoint)
    for _ in range(2):
        for stage in stages.values():
            stage.zero_grad()
        losses = pipeline.step(
            inputs if 0 in stages else None, targets if schedule.num_stages - 1 in stages else None
        )
    return {
        "losses": [float(loss) for loss in losses],
        "gradients": {s: [_grad(parameter) for parameter in m.parameters()] for s, m in stages.items()},
        "order": format_row(done.action for done in pipeline.trace),
        "starts": [done.start for done in pipeline.trace],
        "ends": [done.end for done in pipeline.trace],
        "peak": pipeline.meter.peak_chunks / schedule.chunks,
        "peak_bytes": pipeline.meter.peak_bytes,
        "bytes": pipeline.meter.bytes,
    }


def verify(schedule: Schedule, results: list[dict[str, Any]], widths: tuple[int, ...]) -> None:
    losses, gradients = alone(schedule, widths)
    last = schedule.rank_of(schedule.num_stages - 1)
    for rank, result in enumerate(results):
        assert result["losses"] == pytest.approx(losses if rank == last else [])
        assert result["order"] == format_row(schedule.rows[rank])
        assert result["bytes"] == 0, "activations outlive the step"
        assert all(end <= start for end, start in zip(result["ends"], result["starts"][1:], strict=False))
        for stage, found in result["gradients"].items():
            for one, expected in zip(found, gradients[stage], strict=True):
                torch.testing.assert_close(one, expected)


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("widths", [(16,), (16, 12, 8)])
def test_every_schedule_equals_one_process(widths: tuple[int, ...], checkpoint: bool) -> None:
    schedules = [build(name, 4, 8) for name in NAMES]
    results = values_of(4, part, schedules, widths, checkpoint)
    for index, schedule in enumerate(schedules):
        verify(schedule, [rank[index] for rank in results], widths)
        peaks = tuple(rank[index]["peak"] for rank in results)
        assert peaks == simulate(schedule).peaks, schedule.name


def test_two_ranks_talk_both_ways_over_the_wrap_and_the_turn() -> None:
    """On two ranks the neighbours before and behind are the same rank; with four chunks they meet often."""
    schedules = [build(name, 2, 4) for name in NAMES] + [build("interleaved", 2, 6, 4), build("zbv", 2, 2)]
    results = values_of(2, part, schedules, (16,), False)
    for index, schedule in enumerate(schedules):
        verify(schedule, [rank[index] for rank in results], (16,))


def test_one_rank_is_a_pipeline_too() -> None:
    schedules = [build(name, 1, 4) for name in NAMES]
    for index, result in enumerate(values_of(1, part, schedules, (16,), False)[0]):
        verify(schedules[index], [result], (16,))


def test_checkpointing_keeps_less() -> None:
    schedules = [build("gpipe", 2, 8)]
    plain = values_of(2, part, schedules, (16,), False)
    thrifty = values_of(2, part, schedules, (16,), True)
    for before, after in zip(plain, thrifty, strict=True):
        assert after[0]["peak_bytes"] < before[0]["peak_bytes"] / 2


def test_a_hand_written_schedule_runs() -> None:
    """Any sound action list will do: this one mixes full and split backwards and delays a W to the end."""
    rows = parse_rows("0F0 0F1 0I0 0B1 0F2 0B2 0W0\n1F0 1I0 1F1 1B1 1W0 1F2 1I2 1W2")
    schedule = Schedule("mine", 2, 3, 1, "loop", rows)
    results = values_of(2, part, [schedule], (16,), False)
    verify(schedule, [rank[0] for rank in results], (16,))


class NoWire:
    """For a pipeline of one rank: nothing is ever sent."""

    def isend(self, tensor: Tensor, dst: int, **fields: Any) -> NoReturn:
        raise AssertionError(f"sent to rank {dst}")

    def irecv(self, tensor: Tensor, src: int, **fields: Any) -> NoReturn:
        raise AssertionError(f"received from rank {src}")


def misfit(rank: int, case: str) -> str:
    """Return the message with which this rank's pipeline refuses."""
    schedule = build("gpipe", 1, 2)
    stages: dict[int, nn.Module] = {0: nn.Linear(4, 4)}
    inputs, targets = [torch.randn(3, 4)] * 2, [torch.randn(3, 4)] * 2
    cases: dict[str, Callable[[], object]] = {
        "stages": lambda: Pipeline(schedule, rank, {1: nn.Linear(4, 4)}, NoWire(), functional.mse_loss),
        "none": lambda: pipeline(stages).step(None, targets),
        "count": lambda: pipeline(stages).step(inputs[:1], targets),
        "shapes": lambda: pipeline(stages).step([torch.randn(2, 4), torch.randn(3, 4)], targets),
    }

    def pipeline(modules: dict[int, nn.Module]) -> Pipeline:
        return Pipeline(schedule, rank, modules, NoWire(), functional.mse_loss)

    try:
        cases[case]()
    except ValueError as error:
        return str(error)
    return "accepted"


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("stages", "rank 0 holds stages (0,), not (1,)"),
        ("none", "inputs: stage 0 needs 2 micro-batches on rank 0, got none"),
        ("count", "inputs: stage 0 needs 2 micro-batches on rank 0, got 1"),
        ("shapes", "inputs: micro-batches must have one shape, got [(2, 4), (3, 4)]"),
    ],
)
def test_what_does_not_fit_is_said(case: str, words: str) -> None:
    assert misfit(0, case) == words


def wrong_width(ctx: Context) -> str:
    """Stages that do not fit: every rank calls the same, the one with the misfit stage says so."""
    schedule = build("gpipe", 2, 2)
    stages = {ctx.rank: nn.Linear(4, 6) if ctx.rank == 0 else nn.Linear(5, 4)}
    wire = ctx.comms.over(dist.new_group(), "pipeline")
    try:
        agree(schedule, ctx.rank, stages, wire, torch.randn(3, 4) if ctx.rank == 0 else None)
    except ValueError as error:
        return str(error)
    return "accepted"


def test_stages_that_do_not_fit_are_named_before_the_first_step() -> None:
    first, second = values_of(2, wrong_width)
    assert first == "accepted"
    assert second.startswith("stage 1 does not take the (3, 6) that stage 0 gives: ")


def two_way(ctx: Context, schedules: list[Schedule]) -> list[dict[str, Any]]:
    """As `part`, with a group for each direction."""
    up, down = (ctx.comms.over(dist.new_group(), name) for name in ("up", "down"))
    wire = TwoWay(ctx.rank, up, down)
    return [_one(ctx.rank, wire, schedule, (16,), False) for schedule in schedules]


def test_each_direction_may_have_its_own_group() -> None:
    schedules = [build("interleaved", 2, 4), build("zbv", 2, 4)]
    results = values_of(2, two_way, schedules)
    for index, schedule in enumerate(schedules):
        verify(schedule, [rank[index] for rank in results], (16,))
