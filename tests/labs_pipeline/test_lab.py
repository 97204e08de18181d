"""The lab on real ranks: its checks pass for every schedule, and each turns red when the engine is broken."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch

from labs.comms import Traffic
from labs.context import Context
from labs.parallel import pipeline
from labs.parallel.backward_split import WeightGradients
from labs.parallel.pipeline_mail import Mail
from labs.parallel.schedule_actions import Schedule
from labs.parallel.schedules import NAMES, build
from labs.params import ParameterError, parse
from labs.pipeline_parallel import lab
from labs.pipeline_parallel.spec import SPEC, PipelineParams
from launcher.events import Check
from tests.ranks import on_ranks, run_lab, values


def prove(ctx: Context, runs: list[PipelineParams]) -> list[list[Check]]:
    """Run the lab once for each params on this rank; the checks that this rank emitted."""
    counts = [0]
    for params in runs:
        lab.run(ctx, params)
        counts.append(len(ctx.checks))
    return [ctx.checks[start:stop] for start, stop in pairwise(counts)]


def checks_of(world_size: int, runs: list[PipelineParams]) -> list[list[Check]]:
    """Rank 0's checks of each run; the other ranks leave the judging to it."""
    first: list[list[Check]]
    first, *others = values(on_ranks(world_size, prove, runs, lab="pp"))
    assert not any(any(checks) for checks in others)
    return first


def red(mutation: Callable[[], None], **given: Any) -> set[str]:
    """The checks that fail when every rank runs the mutation first."""
    return run_lab("pp", 3, {"pace_ms": 0.0, "steps": 2, **given}, broken=mutation).red


def params(**values: Any) -> PipelineParams:
    return PipelineParams(**{"pace_ms": 0.0, "micro_batch_size": 4, "dim": 16, "steps": 2, **values})


def names(checks: list[Check]) -> list[str]:
    return [check.name for check in checks]


def is_bubble(name: str) -> bool:
    """The check's name says so where the machine missed the pace."""
    return name.startswith("measured bubble is the simulated one")


def test_every_schedule_proves_itself() -> None:
    # One of them in a single step: that too moves no other bytes than its own.
    runs = [params(schedule=name, stage_dims="16,12", steps=1 + (name != "1f1b")) for name in NAMES]
    for run, checks in zip(runs, checks_of(4, runs), strict=True):
        assert [check for check in checks if not check.passed] == [], run.schedule
        assert len(checks) == 7


def test_torchs_engine_proves_itself() -> None:
    runs = [params(schedule=name, engine="torch") for name in NAMES if name not in ("naive", "zb_h1")]
    for run, checks in zip(runs, checks_of(2, runs), strict=True):
        assert [check for check in checks if not check.passed] == [], run.schedule


def test_checkpointing_proves_itself() -> None:
    runs = [params(schedule=name, checkpoint="full") for name in ("1f1b", "zbv")]
    for checks in checks_of(2, runs):
        assert [check for check in checks if not check.passed] == []
        assert names(checks)[-2:] == ["checkpointing keeps less", "checkpointing costs a third more compute"]


def test_the_paced_bubble_is_the_simulated_one() -> None:
    """Other work on the machine may disturb a run, but hardly three in a row."""
    runs = [params(schedule=name, micro_batches=4, pace_ms=60.0, steps=3) for name in ("1f1b", "zb_h1")]
    for _ in range(3):
        found = checks_of(3, runs)
        assert all(any(map(is_bubble, names(checks))) for checks in found)
        wrong = [check for checks in found for check in checks if not check.passed]
        if not wrong:
            return
    raise AssertionError(wrong)


def swap_micro_batches() -> None:
    """The first stage takes the micro-batches in another order than the last one takes the targets."""
    given = pipeline.Pipeline._given

    def swapped(self: pipeline.Pipeline, name: str, values: Any, stage: int) -> Any:
        found = list(given(self, name, values, stage))
        return found[::-1] if name == "inputs" else found

    setattr(pipeline.Pipeline, "_given", swapped)  # noqa: B010


def skip_a_weight_gradient() -> None:
    """One rank does no weight gradients for its first micro-batch."""
    accumulate, calls = WeightGradients.accumulate, [0]

    def skipping(self: WeightGradients) -> None:
        calls[0] += 1
        if os.environ["RANK"] != "1" or calls[0] > 1:
            accumulate(self)

    setattr(WeightGradients, "accumulate", skipping)  # noqa: B010


def sum_the_losses() -> None:
    """The gradients are those of the micro-batches' sum instead of their mean."""
    setattr(torch, "full_like", lambda tensor, _: torch.ones_like(tensor))  # noqa: B010


def run_another_order() -> None:
    """The engine runs GPipe where 1F1B was planned."""
    start = pipeline.Pipeline.__init__

    def other(self: pipeline.Pipeline, schedule: Schedule, *rest: Any, **named: Any) -> None:
        start(self, build("gpipe", schedule.num_ranks, schedule.num_micro_batches), *rest, **named)

    setattr(pipeline.Pipeline, "__init__", other)  # noqa: B010


def dawdle() -> None:
    """One rank waits before each action for half as long as a forward takes."""
    take = Mail.take

    def late(self: Mail, action: Any) -> Any:
        if os.environ["RANK"] == "1":
            time.sleep(0.01)
        return take(self, action)

    setattr(Mail, "take", late)  # noqa: B010


def count_twice() -> None:
    """The bytes on the wire are not those of the messages."""
    total = Traffic.total

    def doubled(self: Traffic, op: str, group: str | None = None) -> int:
        return 2 * total(self, op, group)

    setattr(Traffic, "total", doubled)  # noqa: B010


@pytest.mark.parametrize(
    ("mutation", "schedule", "expected"),
    [
        (swap_micro_batches, "1f1b", "losses equal one process"),
        (skip_a_weight_gradient, "zb_h1", "gradients equal one process"),
        (sum_the_losses, "1f1b", "gradients equal one process"),
        (run_another_order, "1f1b", "measured order is the planned order"),
        (run_another_order, "1f1b", "peak activations equal theory"),
        (count_twice, "1f1b", "bytes sent equal theory"),
    ],
)
def test_a_broken_engine_turns_a_check_red(
    mutation: Callable[[], None], schedule: str, expected: str
) -> None:
    assert expected in red(mutation, schedule=schedule)


def test_a_late_rank_turns_the_bubble_red() -> None:
    (found,) = red(dawdle, pace_ms=20.0, micro_batches=4)
    assert is_bubble(found)


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
        ({"pace_ms": "-0.5"}, "--pace-ms: -0.5 is no time; give -1 (automatic), 0 (off) or more"),
        ({"schedule": "1f2b"}, "--schedule: '1f2b' is not allowed; did you mean 1f1b?"),
    ],
)
def test_bad_input_is_one_line_that_says_what_fits(given: dict[str, str | bool], words: str) -> None:
    with pytest.raises(ParameterError) as caught:
        parse(SPEC, given, 4)
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)
