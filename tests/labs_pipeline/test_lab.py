"""The lab on real ranks: its checks pass for every schedule, and each turns red when the engine is broken."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from labs.comms import Comms
from labs.context import Context
from labs.parallel import pipeline
from labs.parallel.backward_split import WeightGradients
from labs.parallel.schedules import NAMES, build
from labs.params import ParameterError, parse
from labs.pipeline_parallel import lab
from labs.pipeline_parallel.spec import SPEC, PipelineParams
from labs.recorder import Recorder
from launcher import emitter
from launcher.events import Check
from tests.labs_pipeline.processes import on_ranks


def context(rank: int) -> Context:
    """A context as the worker makes it, with no telemetry."""
    emit, device = emitter.connect(rank, {}), torch.device("cpu")
    recorder = Recorder(emit, device)
    return Context(
        rank=rank,
        world_size=dist.get_world_size(),
        local_rank=rank,
        node="test",
        device=device,
        backend="gloo",
        seed=3,
        pace_ms=0.0,
        emit=emit,
        recorder=recorder,
        comms=Comms(recorder),
    )


def checks_of(rank: int, runs: list[PipelineParams]) -> list[list[Check]]:
    """Run the lab once for each params on this rank; the checks that this rank emitted."""
    found = []
    for params in runs:
        ctx = context(rank)
        lab.run(ctx, params)
        found.append(ctx.checks)
    return found


def red(rank: int, mutation: str, params: PipelineParams) -> list[str]:
    """Run the lab on a broken engine; the names of the checks that fail."""
    MUTATIONS[mutation](rank)
    ctx = context(rank)
    lab.run(ctx, params)
    return [check.name for check in ctx.checks if not check.passed]


def params(**values: Any) -> PipelineParams:
    return PipelineParams(**{"pace_ms": 0.0, "micro_batch_size": 4, "dim": 16, "steps": 2, **values})


def names(checks: list[Check]) -> list[str]:
    return [check.name for check in checks]


def test_every_schedule_proves_itself() -> None:
    runs = [params(schedule=name, stage_dims="16,12") for name in NAMES]
    first, *others = on_ranks(4, checks_of, runs)
    assert not any(any(checks) for checks in others)
    for run, checks in zip(runs, first, strict=True):
        assert [check for check in checks if not check.passed] == [], run.schedule
        assert len(checks) == 7


def test_torchs_engine_proves_itself() -> None:
    runs = [params(schedule=name, engine="torch") for name in NAMES if name not in ("naive", "zb_h1")]
    for run, checks in zip(runs, on_ranks(2, checks_of, runs)[0], strict=True):
        assert [check for check in checks if not check.passed] == [], run.schedule


def test_checkpointing_proves_itself() -> None:
    runs = [params(schedule=name, checkpoint="full") for name in ("1f1b", "zbv")]
    for checks in on_ranks(2, checks_of, runs)[0]:
        assert [check for check in checks if not check.passed] == []
        assert names(checks)[-2:] == ["checkpointing keeps less", "checkpointing costs a third more compute"]


def test_the_paced_bubble_is_the_simulated_one() -> None:
    runs = [params(schedule=name, pace_ms=20.0, steps=3) for name in ("1f1b", "zb_h1")]
    for checks in on_ranks(4, checks_of, runs)[0]:
        assert [check for check in checks if not check.passed] == []
        assert "measured bubble is the simulated one" in names(checks)


def _swap_micro_batches(rank: int) -> None:
    """The first stage takes the micro-batches in another order than the last one takes the targets."""
    given = pipeline.Pipeline._given

    def swapped(self: pipeline.Pipeline, name: str, values: Any, stage: int) -> Any:
        found = list(given(self, name, values, stage))
        return found[::-1] if name == "inputs" else found

    setattr(pipeline.Pipeline, "_given", swapped)  # noqa: B010


def _skip_w(rank: int) -> None:
    """One rank does no weight gradients for its first micro-batch."""
    accumulate, calls = WeightGradients.accumulate, [0]

    def skipping(self: WeightGradients) -> None:
        calls[0] += 1
        if rank != 1 or calls[0] > 1:
            accumulate(self)

    setattr(WeightGradients, "accumulate", skipping)  # noqa: B010


def _sum_gradients(rank: int) -> None:
    """The loss is the micro-batches' sum instead of their mean."""
    setattr(torch, "full_like", lambda tensor, _: torch.ones_like(tensor))  # noqa: B010


def _another_order(rank: int) -> None:
    """The engine runs GPipe where 1F1B was planned."""
    start = pipeline.Pipeline.__init__

    def other(self: pipeline.Pipeline, schedule: Any, *rest: Any, **named: Any) -> None:
        start(self, build("gpipe", schedule.num_ranks, schedule.num_micro_batches), *rest, **named)

    setattr(pipeline.Pipeline, "__init__", other)  # noqa: B010


def _hoard(rank: int) -> None:
    """Activations are kept to the end of the step."""
    graph, kept = pipeline.Pipeline._graph, []

    def hoarding(self: pipeline.Pipeline, *rest: Any) -> Any:
        found = graph(self, *rest)
        kept.append(torch.autograd.graph.get_gradient_edge(found[0].output.exp()))
        return found

    setattr(pipeline.Pipeline, "_graph", hoarding)  # noqa: B010


def _dawdle(rank: int) -> None:
    """One rank takes half as long again for everything."""
    if rank == 2:
        stretch = pipeline.Pipeline._stretch

        def slow(self: pipeline.Pipeline, action: Any, start: int) -> None:
            stretch(self, action, start)
            stretch(self, action, start + (time.monotonic_ns() - start) // 2)

        setattr(pipeline.Pipeline, "_stretch", slow)  # noqa: B010


MUTATIONS: dict[str, Callable[[int], None]] = {
    "swap": _swap_micro_batches,
    "skip W": _skip_w,
    "sum": _sum_gradients,
    "order": _another_order,
    "hoard": _hoard,
    "dawdle": _dawdle,
}


@pytest.mark.parametrize(
    ("mutation", "schedule", "expected"),
    [
        ("swap", "1f1b", "losses equal one process"),
        ("skip W", "zb_h1", "gradients equal one process"),
        ("sum", "1f1b", "gradients equal one process"),
        ("order", "1f1b", "measured order is the planned order"),
        ("order", "1f1b", "peak activations equal theory"),
    ],
)
def test_a_broken_engine_turns_a_check_red(mutation: str, schedule: str, expected: str) -> None:
    assert expected in on_ranks(3, red, mutation, params(schedule=schedule))[0]


def test_a_slow_rank_turns_the_bubble_red() -> None:
    failed = on_ranks(4, red, "dawdle", params(pace_ms=10.0, steps=2))[0]
    assert failed == ["measured bubble is the simulated one"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"micro_batches": "6", "schedule": "interleaved"}, "--micro-batches: interleaved needs a multiple"),
        ({"schedule": "zbv", "chunks": "3"}, "--chunks: zbv has exactly 2 chunks a rank, not 3"),
        ({"chunks": "2"}, "--chunks: 1f1b has exactly 1 chunk a rank, not 2"),
        ({"layers": "6"}, "--layers: 6 layers do not divide into 4 stages; 4 or 8 would fit"),
        ({"layers": "3"}, "--layers: 3 layers do not divide into 4 stages; 4 would fit"),
        ({"stage_dims": "16,x"}, "--stage-dims: '16,x' is not auto or whole numbers"),
        ({"engine": "torch", "schedule": "zb_h1"}, "--engine: torch has no zb_h1; use own, or one of"),
        ({"engine": "torch", "checkpoint": "full"}, "--checkpoint: full needs --engine own"),
        ({"schedule": "1f2b"}, "--schedule: '1f2b' is not allowed; did you mean 1f1b?"),
    ],
)
def test_bad_input_is_one_line_that_says_what_fits(given: dict[str, str | bool], words: str) -> None:
    with pytest.raises(ParameterError) as caught:
        parse(SPEC, given, 4)
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)
