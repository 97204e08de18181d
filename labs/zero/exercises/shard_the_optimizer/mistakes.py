"""Wrong steps with a sharded optimizer."""

from __future__ import annotations

import torch
from torch import Tensor

from labs.comms import Comms


def summed_not_averaged(
    parameters: Tensor, gradient: Tensor, momentum: Tensor, comms: Comms, lr: float, beta: float
) -> None:
    """The step is W times too large: the reduce-scatter sums, and the sum was not divided by W."""
    mine = torch.empty_like(momentum)
    comms.reduce_scatter(mine, gradient)
    _step(parameters, mine, momentum, comms, lr, beta)


def the_whole_gradient_everywhere(
    parameters: Tensor, gradient: Tensor, momentum: Tensor, comms: Comms, lr: float, beta: float
) -> None:
    """The parameters are right, but the gradient was all-reduced and then a W-th of it used: that sends
    half as much again as data parallelism. A reduce-scatter leaves just the piece you need."""
    comms.all_reduce(gradient)
    size = momentum.numel()
    mine = gradient[comms.rank * size : (comms.rank + 1) * size] / comms.world_size
    _step(parameters, mine, momentum, comms, lr, beta)


def the_new_parameters_not_handed_out(
    parameters: Tensor, gradient: Tensor, momentum: Tensor, comms: Comms, lr: float, beta: float
) -> None:
    """Only this rank's own shard moved: the others' shards are new on their ranks and old here. The
    all-gather at the end is missing."""
    mine = torch.empty_like(momentum)
    comms.reduce_scatter(mine, gradient)
    momentum.mul_(beta).add_(mine / comms.world_size)
    size = momentum.numel()
    parameters[comms.rank * size : (comms.rank + 1) * size] -= lr * momentum


def stepped_with_this_ranks_own_gradient(
    parameters: Tensor, gradient: Tensor, momentum: Tensor, comms: Comms, lr: float, beta: float
) -> None:
    """Each shard was stepped with one rank's gradient, the owner's: the other ranks' rows never counted."""
    size = momentum.numel()
    mine = gradient[comms.rank * size : (comms.rank + 1) * size].clone()
    _step(parameters, mine, momentum, comms, lr, beta)


def the_old_momentum_was_lost(
    parameters: Tensor, gradient: Tensor, momentum: Tensor, comms: Comms, lr: float, beta: float
) -> None:
    """The first step is right and the later ones are not: the momentum has to be changed in place, so that it
    is there in the next step."""
    mine = torch.empty_like(momentum)
    comms.reduce_scatter(mine, gradient)
    momentum.copy_(mine / comms.world_size)
    size = momentum.numel()
    shard = parameters[comms.rank * size : (comms.rank + 1) * size]
    shard -= lr * momentum
    comms.all_gather(parameters, shard.clone())


def _step(parameters: Tensor, mine: Tensor, momentum: Tensor, comms: Comms, lr: float, beta: float) -> None:
    momentum.mul_(beta).add_(mine)
    size = momentum.numel()
    shard = parameters[comms.rank * size : (comms.rank + 1) * size]
    shard -= lr * momentum
    comms.all_gather(parameters, shard.clone())
