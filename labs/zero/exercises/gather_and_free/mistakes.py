"""Wrong ways to gather and free."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.comms import Comms
from labs.zero.exercises.gather_and_free.solution import forward_backward as _right
from labs.zero.exercises.gather_and_free.solution import gather as _gather


def every_weight_stays_whole(shards: list[Tensor], x: Tensor, layer: Any, comms: Comms) -> list[Tensor]:
    """The gradients are right, but all gathered weights are alive at once: something still refers to them,
    such as a list. Then nothing was saved."""
    wholes = []

    class _Keeping:
        def forward(self, x: Tensor, whole: Tensor) -> Tensor:
            wholes.append(whole)
            return layer.forward(x, whole)  # type: ignore[no-any-return]

        def backward(self, *arguments: Tensor) -> Any:
            return layer.backward(*arguments)

    return _right(shards, x, _Keeping(), comms)


def gathered_once_for_both(shards: list[Tensor], x: Tensor, layer: Any, comms: Comms) -> list[Tensor]:
    """The weights gathered in forward are used again in backward, so all of them stayed whole in between: let
    each go after its forward and gather it again."""
    return _kept(shards, x, layer, comms)


def summed_not_averaged(shards: list[Tensor], x: Tensor, layer: Any, comms: Comms) -> list[Tensor]:
    """Your gradients are W times too large: the reduce-scatter sums, and the sum was not divided by W."""
    return [gradient * comms.world_size for gradient in _right(shards, x, layer, comms)]


def gradients_last_layer_first(shards: list[Tensor], x: Tensor, layer: Any, comms: Comms) -> list[Tensor]:
    """The gradients come in the order of backward, the last layer first; they are asked for in the order of
    the shards."""
    return _right(shards, x, layer, comms)[::-1]


def all_reduced_and_cut(shards: list[Tensor], x: Tensor, layer: Any, comms: Comms) -> list[Tensor]:
    """The gradients are right, but each was all-reduced whole and then cut: a reduce-scatter leaves the piece
    you need at half the traffic."""
    inputs = []
    for shard in shards:
        inputs.append(x)
        x = layer.forward(x, _gather(shard, comms))
    gradients: list[Tensor] = []
    grad = x / x.numel()
    for shard, entered in zip(reversed(shards), reversed(inputs), strict=True):
        grad, whole = layer.backward(entered, _gather(shard, comms), grad)
        comms.all_reduce(whole)
        gradients.insert(0, whole[comms.rank * shard.numel() :][: shard.numel()] / comms.world_size)
    return gradients


def the_output_kept_in_place_of_the_input(
    shards: list[Tensor], x: Tensor, layer: Any, comms: Comms
) -> list[Tensor]:
    """A layer's backward needs what went into it; you kept what came out."""
    outputs = []
    for shard in shards:
        x = layer.forward(x, _gather(shard, comms))
        outputs.append(x)
    gradients: list[Tensor] = []
    grad = x / x.numel()
    for shard, left in zip(reversed(shards), reversed(outputs), strict=True):
        grad, whole = layer.backward(left, _gather(shard, comms), grad)
        mine = torch.empty_like(shard)
        comms.reduce_scatter(mine, whole)
        gradients.insert(0, mine / comms.world_size)
    return gradients


def _kept(shards: list[Tensor], x: Tensor, layer: Any, comms: Comms) -> list[Tensor]:
    inputs, wholes = [], []
    for shard in shards:
        inputs.append(x)
        wholes.append(_gather(shard, comms))
        x = layer.forward(x, wholes[-1])
    gradients: list[Tensor] = []
    grad = x / x.numel()
    for shard, whole, entered in zip(reversed(shards), reversed(wholes), reversed(inputs), strict=True):
        grad, whole_gradient = layer.backward(entered, whole, grad)
        mine = torch.empty_like(shard)
        comms.reduce_scatter(mine, whole_gradient)
        gradients.insert(0, mine / comms.world_size)
    return gradients
