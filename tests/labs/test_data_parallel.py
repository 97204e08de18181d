"""`NaiveDataParallel` and `FlatDataParallel` on a module with everything awkward, beside one process."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from labs.context import Context
from labs.parallel.data import FlatDataParallel, NaiveDataParallel
from tests.labs_zero import cases
from tests.ranks import on_ranks, values

Kind = type[NaiveDataParallel] | type[FlatDataParallel]
KINDS: tuple[Kind, ...] = (NaiveDataParallel, FlatDataParallel)


def farthest(left: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    """The largest difference of two states with the same names."""
    assert left.keys() == right.keys()
    return max(float((left[name] - right[name]).abs().max()) for name in left)


def train(ctx: Context, kind: Kind) -> dict[str, Tensor]:
    """Four steps, seeded by rank; weights are tied, frozen, unused in some steps, never used."""
    torch.manual_seed(ctx.rank)
    replica = kind(cases.Awkward(), ctx.comms)
    optimizer = cases.adamw(replica)
    for step in range(4):
        optimizer.zero_grad()
        x, y = cases.part(ctx.comms, step)
        torch.autograd.backward(cases.loss_of(replica, x, y, cases.uses_branch(step)))
        replica.finish()
        optimizer.step()
    return dict(replica.state_dict())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_equals_one_process(kind: Kind, world_size: int) -> None:
    """Parameters and buffers, under the wrapped module's names, from rank 0's start."""
    expected, _ = cases.one_process(world_size)
    states = values(on_ranks(world_size, train, kind))
    for state in states:
        assert farthest(state, expected) < 2e-6
        assert farthest(state, states[0]) == 0.0


def uneven(ctx: Context, kind: Kind) -> tuple[list[bool], dict[str, Tensor]]:
    """Only rank 0 uses the branch. Returns who of branch, never, frozen has a gradient; the branch's."""
    torch.manual_seed(ctx.rank)
    module = cases.Awkward()
    replica = kind(module, ctx.comms)
    x, y = cases.part(ctx.comms, 0)
    torch.autograd.backward(cases.loss_of(replica, x, y, ctx.rank == 0))
    mine = module.branch.weight.grad
    alone = torch.zeros(5, 5) if mine is None else mine.clone()
    replica.finish()
    layers = (module.branch, module.never, module.frozen)
    assert module.branch.weight.grad is not None
    has = [layer.weight.grad is not None for layer in layers]
    return has, {"alone": alone, "averaged": module.branch.weight.grad}


@pytest.mark.parametrize("kind", KINDS)
def test_a_branch_that_only_one_rank_uses_holds_nobody_up(kind: Kind) -> None:
    """Every rank gets that rank's share of its gradient; what nobody used has none, as in one process."""
    results = values(on_ranks(3, uneven, kind))
    for has, gradients in results:
        assert has == [True, False, False]
        torch.testing.assert_close(gradients["averaged"], results[0][1]["alone"] / 3)


def strange(ctx: Context, kind: Kind) -> list[Tensor]:
    """Two dtypes, a gradient that is not contiguous, and one of no dimension."""
    module = nn.Module()
    module.register_parameter("wide", nn.Parameter(torch.zeros(3, 2, dtype=torch.float64)))
    module.register_parameter("crooked", nn.Parameter(torch.zeros(4, 3)))
    module.register_parameter("single", nn.Parameter(torch.zeros(())))
    replica = kind(module, ctx.comms)
    for index, parameter in enumerate(module.parameters()):
        parameter.grad = torch.full_like(parameter, float(ctx.rank + index))
    crooked = module.get_parameter("crooked")
    crooked.grad = (torch.arange(12.0) * ctx.rank).view(3, 4).t()
    replica.finish()
    return [p.grad for p in module.parameters() if p.grad is not None]


@pytest.mark.parametrize("kind", KINDS)
def test_dtypes_and_strides(kind: Kind) -> None:
    """The mean over ranks 0 and 1, element by element."""
    for wide, crooked, single in values(on_ranks(2, strange, kind)):
        assert wide.dtype == torch.float64
        assert wide.tolist() == [[0.5] * 2] * 3
        assert crooked.tolist() == (torch.arange(12.0) / 2).view(3, 4).t().tolist()
        assert single.item() == 2.5


def nothing_to_train(ctx: Context, kind: Kind) -> int:
    """Everything is frozen; returns how many all-reduces there were."""
    kind(nn.Linear(2, 2).requires_grad_(False), ctx.comms).finish()
    return ctx.comms.traffic.calls["all_reduce", "world"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_module_needs_no_communication(kind: Kind) -> None:
    """And does not fail."""
    assert values(on_ranks(2, nothing_to_train, kind)) == [0, 0]


def checkpoint(ctx: Context, kind: Kind) -> tuple[list[str], list[str], bool]:
    """Names of the replica and of the module it wraps; whether the plain module's state fits back."""
    module = cases.Awkward()
    replica = kind(module, ctx.comms)
    torch.manual_seed(5)
    other = cases.Awkward()
    replica.load_state_dict(other.state_dict())
    same = farthest(module.state_dict(), other.state_dict()) == 0.0
    return list(replica.state_dict()), list(module.state_dict()), same


@pytest.mark.parametrize("kind", KINDS)
def test_checkpoints_fit_the_plain_module(kind: Kind) -> None:
    """No prefix in the names, either way."""
    for ours, plain, same in values(on_ranks(2, checkpoint, kind)):
        assert ours == plain
        assert same
