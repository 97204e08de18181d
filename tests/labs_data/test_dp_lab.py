"""The dp lab's variants, models, precision, accumulation on real ranks, and mistakes that checks see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.events import Scalar, Shard, Span
from tests.labs_data import broken_dp
from tests.labs_data.idx import write_set
from tests.ranks import Run, run_lab

MLP: dict[str, Any] = {"steps": 4, "dim": 16, "layers": 3, "batch": 12, "pace_ms": 0.0}
LM: dict[str, Any] = {**MLP, "model": "lm", "layers": 2, "heads": 2, "context": 8}
BUCKETED = {"variant": "bucketed", "bucket_mb": 0.001}
DDP = {"variant": "ddp", "bucket_mb": 0.001}
READS = {"each example is read once an epoch", "examples come in another order each epoch"}
HIDDEN = "communication hidden behind backward"
GRADIENTS = "averaged gradients equal one process"


def healthy(run: Run) -> None:
    """Every check is there and passed, and every rank came to its end."""
    assert not run.failures, run.failures
    assert not run.red, [run.checks[name] for name in run.red]
    assert len(run.checks) >= 14


@pytest.mark.parametrize(
    ("world_size", "params"),
    [
        (3, {**MLP, **BUCKETED, "batch": 13, "accumulate": 2}),
        (2, {**MLP, **DDP, "batch": 13, "accumulate": 3}),
        (4, {**MLP, "batch": 13, "accumulate": 2, "precision": "bf16", "pace_ms": 3.0}),
        (2, {**LM, "variant": "flat", "precision": "bf16", "accumulate": 2}),
        (4, {**LM, **BUCKETED, "epochs": 3}),
    ],
)
def test_proves_itself(world_size: int, params: dict[str, Any]) -> None:
    """Also where batches do not divide evenly; examples are dealt out where there are any."""
    run = run_lab("dp", world_size, params)
    healthy(run)
    assert (set(run.checks) >= READS) is (params.get("model") == "lm")


def test_images_of_a_person_s_folder(tmp_path: Path) -> None:
    """A classifier learns which row is bright: below what knowing the classes' frequencies would give."""
    data = str(write_set(tmp_path, 60, packed=True))
    run = run_lab("dp", 2, {**MLP, "model": "classifier", "data": data, "steps": 60, "lr": 0.003})
    healthy(run)
    assert set(run.checks) >= READS
    assert "what frequencies alone would give" in str(run.checks["loss falls"].expected)
    # 60 images make epochs of 5 steps of 12, though two epochs were asked for.
    assert [e.value for e in run.of(Scalar) if e.name == "epochs_begun"] == [12.0]


def test_a_person_s_text_and_what_is_told_of_it(tmp_path: Path) -> None:
    """What each rank reads, once an epoch; the number of hidden communication; a bucket a span."""
    (tmp_path / "mine.txt").write_text("to be or not to be, " * 100)
    run = run_lab("dp", 2, {**LM, **BUCKETED, "data": str(tmp_path)})
    healthy(run)
    for rank in range(2):
        told = [e for e in run.of(Shard) if e.kind == "data" and e.rank == rank]
        assert [e.note.split(":")[0] for e in told] == [f"epoch {n}, 12 of 24 examples" for n in range(2)]
        assert [e.slices[0] for e in told] == [(6 * rank, 6 * rank + 6)] * 2
        spans = [e for e in run.ranks[rank].events if isinstance(e, Span) and e.step == 2]
        (backward,) = [e for e in spans if e.name == "backward"]
        sent = [e for e in spans if e.name == "all_reduce"]
        assert len(sent) > 3
        assert all(backward.t < e.t <= backward.t1 for e in sent)
        assert sum(e.name == "wait all_reduce" for e in spans) == len(sent)
    (share,) = [e.value for e in run.of(Scalar) if e.name == "hidden_communication"]
    assert 0 < share <= 1
    assert run.checks[HIDDEN].measured == share


@pytest.mark.parametrize(
    ("broken", "params", "red", "green"),
    [
        (broken_dp.no_set_epoch, LM, "examples come in another order each epoch", GRADIENTS),
        (broken_dp.everyone_is_rank_0, LM, "each example is read once an epoch", "bytes all-reduced"),
        (broken_dp.one_bucket_unwaited, {**MLP, **BUCKETED}, GRADIENTS, "bytes all-reduced"),
        (
            broken_dp.undivided,
            {**LM, **BUCKETED, "precision": "bf16"},
            GRADIENTS,
            "parameters equal across ranks",
        ),
        (broken_dp.all_at_the_end, {**MLP, **BUCKETED}, HIDDEN, GRADIENTS),
        (broken_dp.syncs_each_batch, {**MLP, **DDP, "accumulate": 2}, "bytes all-reduced", GRADIENTS),
        (broken_dp.all_batches_weigh_whole, {**MLP, "accumulate": 2}, GRADIENTS, "bytes all-reduced"),
        (
            broken_dp.no_autocast,
            {**MLP, "precision": "bf16"},
            "precision of forward and of gradients",
            GRADIENTS,
        ),
        (broken_dp.large_weights, LM, "initial loss", GRADIENTS),
    ],
)
def test_a_mistake_turns_its_check_red(
    broken: Callable[[], None], params: dict[str, Any], red: str, green: str
) -> None:
    """By the check, not by an exception: the run comes to its end."""
    run = run_lab("dp", 2, params, broken=broken)
    assert not run.failures
    assert red in run.red
    assert run.checks[green].passed


def test_a_run_that_learns_too_little_is_told() -> None:
    """Its loss falls, but not below what the bytes' frequencies alone would give."""
    run = run_lab("dp", 2, {**LM, "steps": 60, "lr": 1e-4})
    assert run.red == {"loss falls"}
    initial, again = (run.checks[name].measured for name in ("initial loss", "loss falls"))
    assert isinstance(initial, float)
    assert isinstance(again, float)
    assert again < initial
