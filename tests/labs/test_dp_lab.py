"""The dp lab on real ranks: all checks pass, and each mistake turns the check red that is about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from labs.data_parallel import theory
from launcher.events import Scalar, Shard, Span, Tensor
from tests.labs import broken_dp
from tests.ranks import Run, run_lab

SMALL: dict[str, Any] = {"steps": broken_dp.STEPS, "dim": 16, "layers": 3, "batch": 12, "pace_ms": 0.0}
CHECKS = {
    "ranks are seeded differently",
    "replicas start equal",
    "losses differ by rank",
    "parameters equal across ranks",
    "parameters moved",
    "precision of forward and of gradients",
    "bytes all-reduced",
    "initial loss",
    "loss falls",
    "communication hidden behind backward",
    "averaged gradients equal one process",
    "losses equal one process",
    f"parameters equal one process after {broken_dp.STEPS} steps",
    "same collectives on every rank",
}


def healthy(run: Run) -> None:
    """All checks are there and passed, and every rank came to its end."""
    assert not run.failures
    assert [rank.exit_code for rank in run.ranks] == [0] * len(run.ranks)
    assert set(run.checks) == CHECKS
    assert not run.red


@pytest.mark.parametrize("variant", ["naive", "flat"])
@pytest.mark.parametrize(("world_size", "batch"), [(2, 12), (3, 11), (4, 13)])
def test_proves_itself(variant: str, world_size: int, batch: int) -> None:
    """Also where the rows do not divide evenly among the ranks."""
    healthy(run_lab("dp", world_size, {**SMALL, "variant": variant, "batch": batch}))


@pytest.mark.parametrize(
    ("broken", "red", "green"),
    [
        (broken_dp.no_broadcast, "replicas start equal", "ranks are seeded differently"),
        (broken_dp.no_division, "averaged gradients equal one process", "parameters equal across ranks"),
        (broken_dp.no_sync, "parameters equal across ranks", "bytes all-reduced"),
        (broken_dp.twice_the_bytes, "bytes all-reduced", "averaged gradients equal one process"),
        (broken_dp.optimizer_of_another_instance, "parameters moved", "parameters equal across ranks"),
        (broken_dp.uphill, "loss falls", "averaged gradients equal one process"),
        (broken_dp.same_rows, "losses differ by rank", "parameters equal across ranks"),
        (broken_dp.same_seed, "ranks are seeded differently", "replicas start equal"),
        (broken_dp.unscaled_weights, "initial loss", "averaged gradients equal one process"),
        (broken_dp.same_weight, "averaged gradients equal one process", "parameters equal across ranks"),
    ],
)
def test_a_mistake_turns_its_check_red(broken: Callable[[], None], red: str, green: str) -> None:
    """By the check, not by an exception: the run comes to its end."""
    run = run_lab("dp", 2, {**SMALL, "batch": 13}, broken=broken)
    assert not run.failures
    assert red in run.red
    assert run.checks[green].passed


def test_flat_gradients_off_by_one_are_seen() -> None:
    """The flat variant has its own way to go wrong."""
    run = run_lab("dp", 2, {**SMALL, "variant": "flat"}, broken=broken_dp.flat_off_by_one)
    assert not run.failures
    assert "averaged gradients equal one process" in run.red


def test_a_rank_that_skips_a_collective_is_named_by_a_check() -> None:
    """Its next collective meets the others' previous one; torch raises, and the check says who."""
    run = run_lab("dp", 3, SMALL, broken=broken_dp.one_rank_skips)
    check = run.checks["same collectives on every rank"]
    assert not check.passed
    assert "rank 1" in str(check.measured)
    assert run.failures


def test_a_rank_that_skips_the_last_collective_is_named_by_a_check() -> None:
    """Nothing follows that could raise in it: it waits for rank 0 alone, until that one gives up."""
    run = run_lab("dp", 3, SMALL, broken=broken_dp.one_rank_skips_the_last, timeout_s=5)
    check = run.checks["same collectives on every rank"]
    assert not check.passed
    assert str(check.measured).endswith("rank 1 skipped 1")
    assert {f.rank: f.victim for f in run.failures} == dict.fromkeys(range(3), True)


def test_tells_what_a_person_watches() -> None:
    """Losses a rank and their mean, spans of each part of a step, rows and parameters, a hash a step."""
    run = run_lab("dp", 2, SMALL)
    steps = range(1, SMALL["steps"] + 1)
    for rank in run.ranks:
        losses = [e for e in rank.events if isinstance(e, Scalar) and e.name == "loss"]
        assert [e.step for e in losses] == list(steps)
        hashes = [e for e in rank.events if isinstance(e, Tensor) and e.name == "parameters"]
        assert [e.step for e in hashes] == list(steps)
        assert all(e.hash and e.values is None for e in hashes)
        spans = [e for e in rank.events if isinstance(e, Span)]
        for name in ("forward", "backward", "AdamW"):
            assert sum(e.name == name for e in spans) == len(steps)
    means = [e for e in run.ranks[0].events if isinstance(e, Scalar) and e.name == "mean loss"]
    assert [e.step for e in means] == list(steps)
    rows = [e.slices[0] for e in run.of(Shard) if e.kind == "data"]
    assert rows == [(0, 6), (6, 12)]
    assert sum(e.kind == "parameter" for e in run.of(Shard)) == 2 * SMALL["layers"]


@pytest.mark.parametrize(("variant", "calls"), [("naive", 1 + SMALL["layers"]), ("flat", 2)])
def test_all_reduces_a_step(variant: str, calls: int) -> None:
    """The same bytes in one collective a parameter or one for all; one more carries the flags."""
    run = run_lab("dp", 2, {**SMALL, "variant": variant})
    spans = [e for e in run.ranks[0].events if isinstance(e, Span) and e.name == "all_reduce" and e.step == 2]
    assert len(spans) == calls
    sizes = theory.mlp_size(SMALL["dim"], SMALL["layers"])
    assert sum(e.bytes for e in spans) == theory.all_reduced_bytes(*sizes, steps=1)
