"""The zero lab on real ranks: green at every stage, red where its algorithm is broken."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import AdamW

from labs.parallel.clipping import clip_sharded_gradients
from labs.parallel.flat_layout import FlatLayout
from labs.parallel.fully_sharded import FullyShardedDataParallel, Group
from labs.parallel.shard_unit import ShardUnit
from labs.parallel.sharded_optimizer import ShardedOptimizer
from labs.params import ParameterError, parse
from labs.zero import theory
from labs.zero.spec import SPEC
from launcher.events import Shard
from tests.labs_data import broken_dp
from tests.ranks import run_lab

SMALL: dict[str, Any] = {"steps": 3, "batch": 10, "dim": 32, "layers": 3}
TEXT: dict[str, Any] = {**SMALL, "model": "lm", "layers": 2, "context": 8}


READS = {"each example is read once an epoch", "examples come in another order each epoch"}


def run(stage: str, world_size: int = 3, broken: Any = None, **more: Any) -> Any:
    """Run the lab small."""
    return run_lab("zero", world_size, {"stage": stage, **SMALL, **more}, broken=broken, timeout_s=30.0)


@pytest.mark.parametrize(
    ("stage", "world_size", "more"),
    [
        ("0", 3, {"clip": 0.001}),
        ("1", 3, {"clip": 0.001, "accumulate": 2}),
        ("2", 3, {"clip": 0.001, "accumulate": 2}),
        ("3", 3, {"clip": 0.001, "accumulate": 3}),
        ("fsdp2", 3, {"clip": 0.001, "accumulate": 2}),
        ("hsdp", 4, {"clip": 0.001, "accumulate": 2}),
        ("0", 2, {**TEXT, "precision": "bf16", "clip": 0.5}),
        ("2", 2, {**TEXT, "precision": "bf16", "clip": 0.5, "accumulate": 2}),
        ("3", 2, {**TEXT, "precision": "bf16", "offload": True}),
        ("fsdp2", 2, {**TEXT, "precision": "bf16", "accumulate": 2, "clip": 0.5, "offload": True}),
    ],
)
def test_every_stage_passes(stage: str, world_size: int, more: dict[str, Any]) -> None:
    """Also on three ranks, whose number divides neither the rows nor the elements."""
    result = run(stage, world_size, unpinned if stage == "fsdp2" and "offload" in more else None, **more)
    assert not result.failures
    assert not result.red
    assert len(result.checks) >= 15
    assert ("gradient norm equals one process" in result.checks) == ("clip" in more)
    assert (set(result.checks) >= READS) == (more.get("model") == "lm")


def unpinned() -> None:
    """Offload as ever, but to pageable memory: without a GPU there is no driver that could pin it."""
    from torch.distributed.fsdp import CPUOffloadPolicy

    from labs.zero import twin

    vars(twin)["CPUOffloadPolicy"] = partial(CPUOffloadPolicy, pin_memory=False)


def test_a_person_s_text_is_dealt_out(tmp_path: Path) -> None:
    """Each rank tells, once an epoch, which examples it reads; no other rank reads any of them."""
    (tmp_path / "mine.txt").write_text("to be or not to be, " * 100)
    result = run("1", 2, **TEXT, data=str(tmp_path))
    assert not result.red
    told = [
        [s.note for s in rank.events if isinstance(s, Shard) and s.kind == "data"] for rank in result.ranks
    ]
    for notes in told:
        assert [note.split(":")[0] for note in notes] == [f"epoch {n}, 10 of 20 examples" for n in range(2)]
    assert set(told[0]).isdisjoint(told[1])
    for kind in ("parameter", "gradient"):
        # Whole on every rank in stage 1, also the norms' few elements, which one rank optimizes alone.
        held = [[s for s in rank.events if isinstance(s, Shard) and s.kind == kind] for rank in result.ranks]
        assert [len({shard.tensor for shard in shards}) for shards in held] == [9 * TEXT["layers"] + 3] * 2
        assert all(shard.slices == ((0, *shard.global_shape),) for shards in held for shard in shards)


def test_shards_cover_each_element_once_and_layers_come_and_go() -> None:
    """Stage 3: slices meet end to end; a layer is gathered twice a step, and for the loss afterwards."""
    shards = [shard for shard in run("3").of(Shard) if shard.tensor == "layers.1.weight"]
    states = sorted(shard.slices[0] for shard in shards if shard.kind == "optimizer")
    assert [start for start, _ in states] == [0, *(stop for _, stop in states[:-1])]
    assert states[-1][1] == 32 * 32
    moves = [s.state for s in shards if s.kind == "parameter" and s.rank == 0]
    assert moves == ["held"] + ["gathered", "held"] * (2 * SMALL["steps"] + 1)


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


def clip_by_own_part() -> None:
    """Take the norm of this rank's shard for that of the gradient."""
    from labs.parallel import fully_sharded

    def alone(sharded: Any, max_norm: float, comms: Any, whole: Any = ()) -> Any:
        return clip_sharded_gradients(sharded, max_norm, None, whole)

    fully_sharded.__dict__["clip_sharded_gradients"] = alone


def keep_the_last_micro_batch() -> None:
    """Let each reduction take the place of the one before it."""
    original = ShardUnit.end_reduce

    def only(self: ShardUnit) -> None:
        self.reduced = None
        original(self)

    ShardUnit.end_reduce = only  # type: ignore[method-assign]


def replicas_apart() -> None:
    """Hybrid sharding whose replicas do not talk to each other."""
    original = ShardUnit.__init__

    def without(self: ShardUnit, *args: Any) -> None:
        original(self, *args)
        self.replicate.clear()

    ShardUnit.__init__ = without  # type: ignore[method-assign, assignment]


def keep_what_was_cut() -> None:
    """Remember the whole parameters beside the shards."""
    original = ShardUnit.__init__

    def remember(self: ShardUnit, owned: Any, *args: Any) -> None:
        self.before = owned  # type: ignore[attr-defined]
        original(self, owned, *args)

    ShardUnit.__init__ = remember  # type: ignore[method-assign, assignment]


def state_elsewhere() -> None:
    """Optimizer state on another device than the CPU, when it should be offloaded."""
    from labs.zero.stages import FullySharded

    FullySharded.state = lambda self: [torch.empty(1, device="meta")]  # type: ignore[method-assign]


def twin_sums() -> None:
    """fully_shard with a reduce-scatter that adds where it should average."""
    from labs.zero import twin

    twin.OPS.update(dict.fromkeys(twin.OPS, "sum"))


def uphill() -> None:
    """The sharded optimizer maximises."""
    from labs.zero import stages

    vars(stages)["AdamW"] = partial(AdamW, maximize=True)


@pytest.mark.parametrize(
    ("stage", "broken", "red", "more"),
    [
        ("1", uphill, "loss falls", {}),
        ("2", broken_dp.no_set_epoch, "examples come in another order each epoch", TEXT),
        ("3", clip_by_own_part, "gradient norm equals one process", {"clip": 0.001}),
        ("3", keep_the_last_micro_batch, "gradients equal one process", {"accumulate": 2}),
        ("hsdp", replicas_apart, "traffic of a step over replicate", {"shard_group": 1}),
        ("3", keep_what_was_cut, "memory: whole parameters let go", {}),
        ("3", state_elsewhere, "memory: shards live on the CPU", {"offload": True}),
        ("fsdp2", twin_sums, "gradients equal one process", {}),
    ],
)
def test_a_broken_option_turns_a_check_red(stage: str, broken: Any, red: str, more: dict[str, Any]) -> None:
    """A check says so, not an exception."""
    result = run(stage, 2, broken, **more)
    assert not result.failures
    assert red in result.red


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


def setting(stage: str, **more: Any) -> theory.Setting:
    """100 elements on 4 ranks, 80 of them in layers."""
    group = more.pop("shard_group", 4)
    return theory.Setting(stage, 80, 20, part=100 / group, world_size=4, shard_group=group, **more)


def test_memory_is_the_table_of_the_paper() -> None:
    """16 bytes a parameter; on 4 ranks, a quarter of what a stage shards; 2 + 2 + 12 in mixed precision."""
    totals = [sum(theory.memory(setting(stage), "before step").values()) for stage in "0123"]
    assert totals == [1600, 400 + 400 + 200, 400 + 100 + 200, 400]
    mixed = [theory.memory(setting(stage, mixed=True), "before step") for stage in "0123"]
    assert mixed[0] == {"parameters": 200, "gradients": 200, "optimizer": 1200}
    assert [sum(kinds.values()) for kinds in mixed] == [1600, 200 + 200 + 300, 200 + 50 + 300, 400]
    assert theory.memory(setting("2", mixed=True), "init")["optimizer"] == 100
    hybrid = theory.memory(setting("hsdp", shard_group=2), "after step")
    assert hybrid == {"parameters": 200, "gradients": 0, "optimizer": 400}


def test_traffic_is_two_or_three_psi() -> None:
    """The root is gathered once a step; micro-batches repeat what is sharded; replicas exchange parts."""
    assert [theory.moves(setting(stage))["world"] for stage in "012"] == [2, 2, 2]
    assert theory.moves(setting("3"))["world"] == pytest.approx(3 * 0.8 + 2 * 0.2)
    assert [theory.moves(setting(stage, accumulate=4))["world"] for stage in "012"] == [2, 2, 5]
    assert theory.moves(setting("fsdp2", accumulate=2))["world"] == pytest.approx(6 * 0.8 + 4 * 0.2)
    first = theory.moves(setting("3", accumulate=2, first=40))["world"]
    assert first == pytest.approx(6 * 0.8 - 0.4 + 2 * 0.2)
    hybrid = theory.moves(setting("hsdp", shard_group=2))
    assert hybrid == pytest.approx({"shard": 3 * 0.8 + 2 * 0.2, "replicate": 1.0})
    assert theory.unit(setting("0"), "world") == 400 * 3 / 4
    assert theory.unit(setting("hsdp", shard_group=2, mixed=True), "replicate") == 200 / 2


def test_rows_are_dealt_like_chunks() -> None:
    """Beside torch.chunk itself, also where some ranks get none."""
    for rows, ranks in ((7, 3), (4, 4), (5, 4), (1, 3)):
        chunks = torch.arange(rows * 2).view(rows, 2).chunk(ranks)
        for rank in range(ranks):
            start, stop = theory.rows_held((rows, 2), rank, ranks)
            there = chunks[rank].flatten().tolist() if rank < len(chunks) else []
            assert list(range(start, stop)) == there
    assert theory.rows_part([(7, 2), (4,)], 3) == 3 * 2 + 2


def test_what_does_not_fit_is_refused() -> None:
    """Naming the flag and what is allowed."""
    refused: list[tuple[dict[str, str | bool], int, str]] = [
        ({"batch": "2"}, 4, r"--batch.*give --batch 4"),
        ({"batch": "10", "accumulate": "4"}, 4, r"--batch.*4 micro-batches.*give --batch 16"),
        ({"dim": "16", "batch": "64"}, 64, r"--dim.*give --dim 64"),
        ({"stage": "4"}, 4, r"--stage.*fsdp2"),
        ({"stage": "hsdp"}, 3, r"--nproc.*--shard-group 3"),
        ({"stage": "hsdp", "shard_group": "3"}, 4, r"--shard-group.*allowed: 1, 2, 4"),
        ({"stage": "3", "shard_group": "2"}, 4, r"--shard-group.*--stage hsdp"),
        ({"model": "lm", "heads": "3"}, 4, r"--dim.*3 heads"),
        ({"stage": "2", "offload": True}, 4, r"--offload.*--stage 3"),
        ({"data": "x"}, 4, r"--data: means nothing with --model mlp"),
        ({"heads": "2"}, 4, r"--heads: means nothing with --model mlp"),
        ({"model": "lm", "batch": "10"}, 4, r"--batch: 10 does not divide.*--batch 8 or --batch 12"),
        ({"model": "lm", "data": "/nowhere"}, 4, r"--data: '/nowhere' does not exist"),
        ({"model": "lm", "batch": "65536", "context": "4096"}, 4, r"--batch: a step reads 268435457 bytes"),
        ({"precision": "fp16"}, 4, r"--precision.*bf16"),
        ({"clip": "-1"}, 4, r"--clip"),
    ]
    for given, world_size, message in refused:
        with pytest.raises(ParameterError, match=message):
            parse(SPEC, given, world_size)


def test_offload_wants_a_gpu() -> None:
    """On the CPU the shards are where they would go."""
    params = parse(SPEC, {"offload": True}, 4)
    assert SPEC.validate_device is not None
    SPEC.validate_device(params, "cuda")
    with pytest.raises(ParameterError, match=r"--offload.*one GPU a rank"):
        SPEC.validate_device(params, "cpu")
