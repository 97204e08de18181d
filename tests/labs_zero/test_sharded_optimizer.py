"""`ShardedOptimizer`, stages 1 and 2, equals one process; its state is even and loads anywhere."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import AdamW

from labs.comms import Comms
from labs.parallel.clipping import clip_sharded_gradients
from labs.parallel.flat_layout import FlatLayout
from labs.parallel.sharded_optimizer import ShardedOptimizer
from tests.labs_zero import cases
from tests.labs_zero.test_bucketed import farthest
from tests.ranks import with_comms


def state_distance(left: dict[str, Any], right: dict[str, Any]) -> float:
    """The largest difference of two optimizers' states, which must cover the same parameters."""
    assert left["state"].keys() == right["state"].keys()
    return max(farthest(left["state"][key], right["state"][key]) for key in left["state"])


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_equals_one_process(world_size: int) -> None:
    """Parameters and the assembled state; a parameter that nobody used has no state either.

    In one bucket no rank holds more of the state than the total divided by the ranks, rounded up.
    """
    expected, expected_state = cases.one_process(world_size)
    every = list(itertools.product((1, 2), (1e-6, 1e-4, 25.0), (False, True)))
    all_results = with_comms(world_size, train_each, every)
    for results in all_results:
        for form, (state, assembled, _) in zip(every, results, strict=True):
            assert farthest(state, expected) < 5e-6, form
            assert state_distance(assembled, expected_state) < 2e-6, form
    held = [sum(results[every.index((1, 25.0, False))][2]) for results in all_results]
    with_state = 35 + 5 + 35 + 25 + 5 + 15 + 3
    never = 12
    assert sum(held) == with_state
    assert max(held) <= -(-(with_state + never) // world_size)


def train_each(comms: Comms, every: list[tuple[int, float, bool]]) -> list[Any]:
    """Train with each (stage, bucket size, accumulate), one after another on the same ranks."""
    return [cases.train_sharded(comms, *form) for form in every]


def both_stages(comms: Comms, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `function(comms, stage, ...)` returns for stages 1 and 2, on the same ranks."""
    return [function(comms, stage, *arguments) for stage in (1, 2)]


def test_clips_by_the_global_norm() -> None:
    """A rank's own norm is smaller, so clipping by it would change the result."""
    expected, _ = cases.one_process(3, clip=0.05)
    unclipped, _ = cases.one_process(3)
    assert farthest(expected, unclipped) > 1e-3
    for results in with_comms(3, both_stages, cases.train_sharded, 1e-4, False, 0.05):
        for state, _, _ in results:
            assert farthest(state, expected) < 5e-6


def test_groups_and_schedulers() -> None:
    """Rates differ by group, a group comes later, and a scheduler changes them all."""
    for results in with_comms(2, both_stages, cases.sharded_groups):
        for sharded, plain in results:
            assert farthest(sharded, plain) < 2e-6


@pytest.mark.parametrize("world_size", [2, 3])
def test_state_loads_into_any_number_of_ranks(world_size: int) -> None:
    """One process's state resumes on W ranks, options included (the rate of 9 given there is replaced)."""
    state, saved = cases.one_process(world_size)
    expected, _ = cases.one_process(world_size, steps=5)
    module = cases.Awkward()
    module.load_state_dict(state)
    plain = AdamW(module.parameters(), lr=9.0)
    plain.load_state_dict(copy.deepcopy(saved))
    torch.autograd.backward(cases.loss_of(module, *cases.batch(4, world_size), True))
    plain.step()
    resumed = {name: value.clone() for name, value in module.state_dict().items()}
    assert farthest(resumed, expected) > 0.0, "step 4 uses the branch here and not there"
    for results in with_comms(world_size, both_stages, cases.resume, saved, state):
        for mine in results:
            assert farthest(mine, resumed) < 5e-6


def test_assembled_state_loads_into_the_plain_optimizer() -> None:
    """The format is the unsharded optimizer's own."""
    _, assembled, _ = with_comms(3, cases.train_sharded, 1, 1e-4, False)[1]
    module = cases.Awkward()
    plain = AdamW(module.parameters(), lr=9.0)
    plain.load_state_dict(assembled)
    assert plain.param_groups[0]["lr"] == 0.01
    assert plain.state[module.first.weight]["exp_avg"].shape == (5, 7)


class Shifted(ShardedOptimizer):
    """Broken: each rank takes its gradients one element late."""

    def finish(self) -> None:
        """Shift the parts."""
        super().finish()
        for shard in self.shards:
            if shard.gradient is not None:
                shard.gradient.copy_(shard.gradient.roll(1))


class Undivided(ShardedOptimizer):
    """Broken: sums instead of averaging."""

    @property
    def _scale(self) -> float:
        return 1.0


class Unrefreshed(ShardedOptimizer):
    """Broken: nobody hears of the others' parameters."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Step the part alone."""
        self.finish()
        assert self.inner is not None
        self.inner.step()


def train_broken(comms: Comms, kind: type[ShardedOptimizer], stage: int) -> cases.State:
    """Four steps under an optimizer of the class given."""
    torch.manual_seed(comms.rank)
    module = cases.Awkward()
    comms.broadcast(module.shift)
    options: dict[str, Any] = {"lr": 0.01, "weight_decay": 0.1}
    optimizer = kind(module.parameters(), AdamW, comms, stage=2 if stage == 2 else 1, **options)
    for step in range(4):
        optimizer.zero_grad()
        torch.autograd.backward(cases.loss_of(module, *cases.part(comms, step), cases.uses_branch(step)))
        optimizer.step()
    return dict(module.state_dict())


BROKEN = [(kind, stage) for kind in (Shifted, Unrefreshed) for stage in (1, 2)]


def train_each_broken(comms: Comms) -> list[cases.State]:
    """Train under each of the broken optimizers, one after another on the same ranks."""
    return [train_broken(comms, kind, stage) for kind, stage in BROKEN]


def test_a_broken_optimizer_is_seen() -> None:
    """The comparison with one process must be able to fail."""
    expected, _ = cases.one_process(2)
    by_case = zip(*with_comms(2, train_each_broken), strict=True)
    for case, states in zip(BROKEN, by_case, strict=True):
        assert max(farthest(state, expected) for state in states) > 1e-3, case


def undivided_gradients(comms: Comms, kind: type[ShardedOptimizer]) -> float:
    """The first piece's gradient norm; AdamW would hide a factor, so it is looked at directly."""
    torch.manual_seed(0)
    module = cases.Awkward()
    optimizer = kind(module.parameters(), AdamW, comms, lr=0.01)
    torch.autograd.backward(cases.loss_of(module, *cases.batch(0, 1), False))
    return float(optimizer.clip_grad_norm(1e9))


def both_norms(comms: Comms) -> list[float]:
    """The norm under the optimizer and under one that does not divide."""
    return [undivided_gradients(comms, kind) for kind in (ShardedOptimizer, Undivided)]


def test_a_sum_in_place_of_the_mean_is_seen() -> None:
    """All ranks have the same batch, so the mean's norm is one process's."""
    torch.manual_seed(0)
    module = cases.Awkward()
    torch.autograd.backward(cases.loss_of(module, *cases.batch(0, 1), False))
    alone = float(nn.utils.get_total_norm([p.grad for p in module.parameters() if p.grad is not None]))
    mean, total = with_comms(2, both_norms)[0]
    assert mean == pytest.approx(alone, rel=1e-5)
    assert total == pytest.approx(2 * alone, rel=1e-5)


def off_by_one(comms: Comms) -> cases.State:
    """Training with parts that begin one element late."""
    original = FlatLayout.bounds

    def late(layout: FlatLayout, part: int) -> tuple[int, int]:
        low, high = original(layout, part)
        shift = 1 if part and layout.part > 1 else 0
        return low - shift, high - shift

    FlatLayout.bounds = late  # type: ignore[method-assign, assignment]
    return train_broken(comms, ShardedOptimizer, 1)


def test_a_shard_off_by_one_is_seen() -> None:
    """The gathered parameters are then shifted where the parts meet."""
    expected, _ = cases.one_process(2)
    assert max(farthest(state, expected) for state in with_comms(2, off_by_one)) > 1e-3


def whole_gradients(comms: Comms) -> tuple[float, float]:
    """The norm of what is sharded together with what every rank holds whole."""
    sharded = torch.zeros(2)
    sharded.grad = torch.tensor([3.0, 0.0]) if comms.rank == 0 else torch.tensor([0.0, 4.0])
    whole = torch.zeros(1)
    whole.grad = torch.tensor([12.0])
    norm = clip_sharded_gradients([sharded], 1.3, comms, [whole])
    return float(norm), float(whole.grad)


def test_whole_gradients_count_once() -> None:
    """3, 4 and 12 have the norm 13, on every rank; clipped to 1.3 they shrink tenfold."""
    for norm, clipped in with_comms(2, whole_gradients):
        assert norm == pytest.approx(13.0)
        assert clipped == pytest.approx(1.2)
    with pytest.raises(ValueError, match="max_norm"):
        clip_sharded_gradients([], 0.0, None)
