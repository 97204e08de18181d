"""Shard the optimizer (ZeRO-1)."""

from __future__ import annotations

import torch
from torch import Tensor

from labs.comms import Comms


def zero_step(
    parameters: Tensor, gradient: Tensor, momentum: Tensor, comms: Comms, lr: float, beta: float
) -> None:
    """Do one step of SGD with momentum, its state sharded: reduce-scatter, step this shard, all-gather."""
    size = parameters.numel() // comms.world_size
    shard = parameters[comms.rank * size : (comms.rank + 1) * size]
    mine = torch.empty_like(momentum)
    comms.reduce_scatter(mine, gradient)
    mine /= comms.world_size
    momentum.mul_(beta).add_(mine)
    shard -= lr * momentum
    comms.all_gather(parameters, shard.clone())
