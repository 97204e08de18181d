"""`FullyShardedDataParallel` equals one process; a layer is whole only while it runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from labs.parallel.fully_sharded import FullyShardedDataParallel, Group
from tests.labs_zero import cases, layered
from tests.labs_zero.test_bucketed import farthest
from tests.ranks import with_comms


def through(comms: Any, options: dict[str, Any]) -> Any:
    """Call `train` by keyword."""
    return layered.train(comms, **options)


ACCUMULATIONS: list[dict[str, Any]] = [{}, {"accumulate": "no_sync"}, {"accumulate": "sync"}]
FORMS: list[dict[str, Any]] = [
    {"recompute": True},
    {"prefetch": False},
    {"replicate_below": 8},
    {"layers": []},
    {"clip": 0.05},
    {"clip": 0.05, "replicate_below": 8},
]
HYBRIDS: list[dict[str, Any]] = [
    {"hybrid": True},
    {"hybrid": True, "replicate_below": 8},
    {"hybrid": True, "clip": 0.05},
]


@pytest.mark.parametrize(
    ("world_size", "every"),
    [(2, ACCUMULATIONS), (3, ACCUMULATIONS), (4, ACCUMULATIONS), (3, FORMS), (4, HYBRIDS)],
    ids=["2", "3", "4", "forms", "hybrid"],
)
def test_equals_one_process(world_size: int, every: list[dict[str, Any]]) -> None:
    """Seeds differ by rank; weights are tied across layers, frozen, unused for a step or for ever.

    Also accumulated, checkpointed, without prefetch, small parameters whole, one single unit, clipped, and as
    two replicas of two shards.
    """
    for results in with_comms(world_size, through_each, every):
        for options, (state, _, _) in zip(every, results, strict=True):
            expected = layered.one_process(world_size, options.get("clip", 0.0))
            assert farthest(state, expected) < 5e-6, options


def test_each_rank_holds_its_share() -> None:
    """Even within a few elements of padding; small parameters kept whole cost their size everywhere."""
    total = sum(value.numel() for value in layered.one_process(1).values())
    results = with_comms(4, through_each, [{}, {"replicate_below": 10**6}])
    held = [held for (_, held, _), _ in results]
    assert sum(held) == total
    assert max(held) - min(held) <= 4 * 5
    assert [whole for _, (_, whole, _) in results] == [total] * 4


def test_computes_in_bf16_and_keeps_fp32_masters() -> None:
    """Close to fp32, not equal; the masters are no bf16 numbers; all ranks agree bitwise."""
    expected = layered.one_process(2)
    results = with_comms(2, through, {"compute_dtype": torch.bfloat16})
    for state, _, inferred in results:
        assert 1e-6 < farthest(state, expected) < 0.05
        assert farthest(state, results[0][0]) == 0.0
        assert inferred["inferred"].dtype == torch.bfloat16
        weight = state["head.weight"]
        assert weight.dtype == torch.float32
        assert not torch.equal(weight, weight.bfloat16().float())


class Unreduced(FullyShardedDataParallel):
    """Broken: one layer's gradients are not waited for."""

    def _settle(self) -> None:
        group = self._reducing
        super()._settle()
        if group is self.groups[2]:
            for shard in group.shards:
                if shard.reduced is not None:
                    shard.reduced = torch.zeros_like(shard.reduced)


class Stale(FullyShardedDataParallel):
    """Broken: the first layer is never freed, so it computes with the parameters of the first step."""

    def _release(self, group: Group) -> None:
        if group is not self.groups[1]:
            super()._release(group)

    def finish(self) -> None:
        """Leave the first layer whole, but let the optimizer find its pieces."""
        super().finish()
        for shard in self.groups[1].shards:
            shard._refer([piece for _, piece in shard.pieces])


class Shifted(FullyShardedDataParallel):
    """Broken: gradients land one element late."""

    def finish(self) -> None:
        """Shift each piece."""
        super().finish()
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad = parameter.grad.roll(1)


def through_each(comms: Any, every: list[dict[str, Any]]) -> list[Any]:
    """Call `train` with each of the options, one after another on the same ranks."""
    return [layered.train(comms, **options) for options in every]


BROKEN = (Unreduced, Stale, Shifted)


def test_a_broken_wrapper_is_seen() -> None:
    """The comparison with one process must be able to fail."""
    expected = layered.one_process(2)
    by_kind = zip(*with_comms(2, broken_each), strict=True)
    for kind, results in zip(BROKEN, by_kind, strict=True):
        assert max(farthest(state, expected) for state, _, _ in results) > 1e-3, kind


def broken_each(comms: Any) -> list[Any]:
    """Train under each broken class, one after another on the same ranks."""
    return [broken(comms, kind) for kind in BROKEN]


def broken(comms: Any, kind: type[FullyShardedDataParallel]) -> Any:
    """Train under the class given; a rank that is left whole is part of the mutation."""
    sharded = kind
    try:
        return layered.train(comms, kind=sharded)
    except AssertionError as error:
        return {name: torch.full_like(v, 9.0) for name, v in layered.one_process(2).items()}, 0, str(error)


def events(comms: Any) -> list[tuple[str, str]]:
    """What an observer is told in two steps: (unit's first parameter, what happened)."""
    seen: list[tuple[str, str]] = []
    torch.manual_seed(0)
    sharded = FullyShardedDataParallel(
        layered.Layered(), comms, observer=lambda unit, what: seen.append((unit.names[0], what))
    )
    for step in range(2):
        torch.autograd.backward(cases.loss_of(sharded, *cases.part(comms, step), True))
        sharded.finish()
    return seen


def test_a_layer_is_whole_only_while_it_runs() -> None:
    """Gathered before forward, freed after, and again in backward; the root stays till the end."""
    for seen in with_comms(2, events):
        middle = [what for name, what in seen if name == "layers.1.never"]
        assert middle == ["gathered", "freed"] * 4
        root = [what for name, what in seen if name == "layers.0.down.weight"]
        assert root == ["gathered", "freed"] * 2
        for place, (name, what) in enumerate(seen):
            if what == "gathered" and name == "layers.2.never":
                assert ("layers.0.never", "freed") in seen[:place]
