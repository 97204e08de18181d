"""The zero lab on real ranks: green at every stage, red where its algorithm is broken."""

from __future__ import annotations

from typing import Any

import pytest

from labs.parallel.flat_layout import FlatLayout
from labs.parallel.fully_sharded import FullyShardedDataParallel, Group
from labs.parallel.shard_unit import ShardUnit
from labs.parallel.sharded_optimizer import ShardedOptimizer
from labs.params import ParameterError, parse
from labs.zero import theory
from labs.zero.spec import SPEC
from launcher.events import Shard
from tests.ranks import run_lab

SMALL = {"steps": 3, "batch": 10, "dim": 32, "layers": 3}


def run(stage: str, world_size: int = 3, broken: Any = None) -> Any:
    """Run the lab small."""
    return run_lab("zero", world_size, {"stage": stage, **SMALL}, broken=broken, timeout_s=30.0)


@pytest.mark.parametrize("stage", ["0", "1", "2", "3"])
def test_every_stage_passes(stage: str) -> None:
    """On three ranks, whose number divides neither the rows nor the elements."""
    result = run(stage)
    assert not result.failures
    assert not result.red
    assert len(result.checks) >= 15


def test_shards_cover_each_element_once_and_layers_come_and_go() -> None:
    """Stage 3: the slices told of a parameter meet end to end; it is gathered twice a step and held again."""
    shards = [shard for shard in run("3").of(Shard) if shard.tensor == "layers.1.weight"]
    states = sorted(shard.slices[0] for shard in shards if shard.kind == "optimizer")
    assert [start for start, _ in states] == [0, *(stop for _, stop in states[:-1])]
    assert states[-1][1] == 32 * 32
    moves = [s.state for s in shards if s.kind == "parameter" and s.rank == 0]
    assert moves == ["held"] + ["gathered", "held"] * 2 * SMALL["steps"]


def sum_in_place_of_mean() -> None:
    """Break the division in stages 1, 2 and 3."""
    ShardedOptimizer._scale = property(lambda self: 1.0)  # type: ignore[assignment, method-assign]
    ShardUnit.ranks = property(lambda self: 1)  # type: ignore[assignment, method-assign]


def shard_off_by_one() -> None:
    """Let all parts but the first begin one element early."""
    original = FlatLayout.bounds

    def early(layout: FlatLayout, part: int) -> tuple[int, int]:
        low, high = original(layout, part)
        return (low - 1, high - 1) if part else (low, high)

    FlatLayout.bounds = early  # type: ignore[method-assign, assignment]


def never_free() -> None:
    """Keep layers whole after use."""

    def keep(self: FullyShardedDataParallel, group: Group) -> None:
        for shard in group.shards:
            shard._refer([piece for _, piece in shard.pieces])

    FullyShardedDataParallel._release = keep  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("stage", "broken", "red"),
    [
        ("1", sum_in_place_of_mean, "gradients equal one process"),
        ("3", sum_in_place_of_mean, "gradients equal one process"),
        ("2", shard_off_by_one, "parameters equal one process"),
        ("3", shard_off_by_one, "gradients equal one process"),
        ("3", never_free, "memory: parameters before step"),
    ],
)
def test_a_broken_stage_turns_a_check_red(stage: str, broken: Any, red: str) -> None:
    """A check says so, not an exception."""
    result = run(stage, broken=broken)
    assert not result.failures
    assert red in result.red


@pytest.mark.parametrize("variant", ["bucketed"])
def test_dp_passes_with_buckets(variant: str) -> None:
    """The dp lab on top of `BucketedDataParallel`, several buckets in flight."""
    params = {"variant": variant, "bucket_mb": 0.01, "steps": 4, "dim": 64, "batch": 9}
    result = run_lab("dp", 3, params, timeout_s=30.0)
    assert not result.failures
    assert not result.red


def test_theory_is_the_table_of_the_paper() -> None:
    """16 bytes a parameter on one rank; on 4, a quarter of what a stage shards."""
    totals = [sum(theory.memory(stage, 100, 4, "before step").values()) for stage in range(4)]
    assert totals == [1600, 400 + 400 + 200, 400 + 100 + 200, 400]
    assert [theory.traffic_factor(stage) for stage in range(4)] == [2, 2, 2, 3]
    assert theory.traffic(0, 100, 4) == 2 * 400 * 3 / 4


def test_what_does_not_fit_is_refused() -> None:
    """Naming the flag and what is allowed."""
    with pytest.raises(ParameterError, match="--batch"):
        parse(SPEC, {"batch": "2"}, 4)
    with pytest.raises(ParameterError, match=r"--dim.*give --dim 64"):
        parse(SPEC, {"dim": "16", "batch": "64"}, 64)
    with pytest.raises(ParameterError, match="--stage"):
        parse(SPEC, {"stage": "4"}, 4)
