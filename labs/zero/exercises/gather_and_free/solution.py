"""Gather and free (FSDP)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.comms import Comms


def forward_backward(shards: list[Tensor], x: Tensor, layer: Any, comms: Comms) -> list[Tensor]:
    """Gather each layer for its forward and again for its backward; keep the mean gradient of the own
    shard."""
    inputs = []
    for shard in shards:
        inputs.append(x)
        x = layer.forward(x, gather(shard, comms))
    grad = x / x.numel()
    gradients: list[Tensor] = []
    for shard, entered in zip(reversed(shards), reversed(inputs), strict=True):
        grad, whole_gradient = layer.backward(entered, gather(shard, comms), grad)
        mine = torch.empty_like(shard)
        comms.reduce_scatter(mine, whole_gradient)
        gradients.insert(0, mine / comms.world_size)
    return gradients


def gather(shard: Tensor, comms: Comms) -> Tensor:
    """Return the whole flat weight; it lives as long as the caller's name for it."""
    whole = shard.new_empty(shard.numel() * comms.world_size)
    comms.all_gather(whole, shard)
    return whole
