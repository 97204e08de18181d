"""Tensor-parallel layers on real ranks against whole layers: biases, frozen and tied weights, the loss."""

from __future__ import annotations

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from labs.context import Context
from labs.language_model import LanguageModel, LanguageModelConfig, next_byte_loss
from labs.parallel.replica import broadcast_module
from labs.parallel.tensor import ColumnParallelLinear, RowParallelLinear, slices_of
from labs.parallel.tensor_models import split_language_loss, split_language_model
from labs.parallel.tensor_ops import slice_along, split_cross_entropy
from tests.ranks import on_ranks, values


def _there(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor


def _apart(left: Tensor | None, right: Tensor | None) -> float:
    """The largest difference of two gradients that must both be there."""
    return float((_there(left) - _there(right)).abs().max())


def _pair(ctx: Context) -> tuple[float, float, float, bool]:
    """A column-row pair with biases, the first weight frozen: output, input gradient and bias gradients."""
    torch.manual_seed(ctx.rank)
    first, second = nn.Linear(6, 8), nn.Linear(8, 6)
    for full in (first, second):
        broadcast_module(full, ctx.comms)
    first.weight.requires_grad_(False)
    column = ColumnParallelLinear(copy.deepcopy(first), ctx.comms)
    row = RowParallelLinear(copy.deepcopy(second), ctx.comms)
    x = torch.arange(12.0).view(2, 6).div(12)
    inputs = [x.clone().requires_grad_(), x.clone().requires_grad_()]
    outputs = [row(F.gelu(column(inputs[0]))), second(F.gelu(first(inputs[1])))]
    for output in outputs:
        torch.autograd.backward(output.square().sum())
    return (
        float((outputs[0] - outputs[1]).abs().max()),
        _apart(inputs[0].grad, inputs[1].grad),
        _apart(_there(column.bias).grad, slice_along(_there(first.bias.grad), 0, ctx.comms))
        + _apart(_there(row.bias).grad, second.bias.grad),
        column.weight.grad is None and not column.weight.requires_grad,
    )


def test_a_pair_with_biases_and_a_frozen_weight_equals_the_whole() -> None:
    for output, gradient, biases, frozen in values(on_ranks(2, _pair)):
        assert output < 1e-6
        assert gradient < 1e-5
        assert biases < 1e-5
        assert frozen


def _tied(ctx: Context, sequence: bool) -> tuple[float, float, int]:
    config = LanguageModelConfig(dim=32, layers=1, heads=4, context=8, tie_embeddings=True)
    torch.manual_seed(100 + ctx.rank)
    full = LanguageModel(config)
    broadcast_module(full, ctx.comms)
    split = split_language_model(copy.deepcopy(full), ctx.comms, sequence)
    tokens = torch.arange(32).view(4, 8) * 7 % 256
    losses = [
        split_language_loss(split(tokens), tokens.roll(1), ctx.comms),
        next_byte_loss(full(tokens), tokens.roll(1)),
    ]
    for loss in losses:
        torch.autograd.backward(loss)
    mine, whole = split.embedding.weight.grad, full.embedding.weight.grad
    assert mine is not None
    assert whole is not None
    apart = (mine - slice_along(whole, 0, ctx.comms)).abs().max() / whole.abs().max()
    return abs(float(losses[0] - losses[1])), float(apart), len(slices_of(split))


def test_tied_embeddings_stay_tied_and_get_both_gradients() -> None:
    for sequence in (False, True):
        for loss, gradient, _ in values(on_ranks(2, _tied, sequence)):
            assert loss < 1e-5
            assert gradient < 1e-4


def _cross_entropy(ctx: Context) -> tuple[float, float]:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(7, 12, generator=generator) * 30
    targets = torch.tensor([0, 3, 4, 8, 11, 5, 2])
    whole = logits.clone().requires_grad_()
    part = slice_along(logits, 1, ctx.comms).clone().requires_grad_()
    losses: list[Tensor] = [split_cross_entropy(part, targets, ctx.comms), F.cross_entropy(whole, targets)]
    for loss in losses:
        torch.autograd.backward(loss)
    assert part.grad is not None
    assert whole.grad is not None
    apart = (part.grad - slice_along(whole.grad, 1, ctx.comms)).abs().max()
    return abs(float(losses[0] - losses[1])), float(apart)


def test_cross_entropy_over_a_split_vocabulary_with_large_logits() -> None:
    for loss, gradient in values(on_ranks(3, _cross_entropy)):
        assert loss < 1e-5
        assert gradient < 1e-6


def _refusals(ctx: Context) -> list[str]:
    """What is said of features that do not divide, of tied weights, and of a group that nobody counts."""
    from torch.distributed._functional_collectives import all_reduce

    from labs.parallel.tensor_torch import Booked, parallelize_language_model

    mesh = init_device_mesh("cpu", (ctx.world_size,))
    config = LanguageModelConfig(dim=16, layers=1, heads=2, context=4, tie_embeddings=True)
    other = dist.new_group()

    def uncounted() -> None:
        with Booked(ctx.comms):
            all_reduce(torch.ones(1), "sum", other)

    messages = []
    for attempt in (
        lambda: ColumnParallelLinear(nn.Linear(4, 5), ctx.comms),
        lambda: parallelize_language_model(LanguageModel(config), mesh),
        uncounted,
    ):
        try:
            attempt()
        except (ValueError, RuntimeError) as error:
            messages.append(str(error))
    return messages


def test_what_cannot_be_split_or_counted_is_refused() -> None:
    for uneven, tied, uncounted in values(on_ranks(2, _refusals)):
        assert "5 along dimension 0 does not divide among 2 ranks" in uneven
        assert "tied embeddings" in tied
        assert "all_reduce over group" in uncounted
