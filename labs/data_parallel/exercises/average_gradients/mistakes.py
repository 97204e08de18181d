"""Wrong averages of gradients."""

from __future__ import annotations

from torch import nn

from labs.comms import Comms


def summed_not_averaged(module: nn.Module, comms: Comms) -> None:
    """Your gradients are W times too large: summed, not averaged. Training goes on with W times the learning
    rate you set."""
    for parameter in module.parameters():
        if parameter.grad is not None:
            comms.all_reduce(parameter.grad)


def divided_but_never_summed(module: nn.Module, comms: Comms) -> None:
    """Each rank still has its own gradient, divided by W: nothing was added up over the ranks."""
    for parameter in module.parameters():
        if parameter.grad is not None:
            parameter.grad /= comms.world_size


def only_rank_0_has_the_mean(module: nn.Module, comms: Comms) -> None:
    """Rank 0 has the mean and the others do not: reduce leaves the result on one rank, all_reduce on all."""
    for parameter in module.parameters():
        if parameter.grad is not None:
            total = parameter.grad.clone()
            comms.reduce(total, dst=0)
            if comms.rank == 0:
                parameter.grad.copy_(total / comms.world_size)


def averaged_the_parameters(module: nn.Module, comms: Comms) -> None:
    """The gradients are untouched: you averaged the parameters, which are equal already."""
    for parameter in module.parameters():
        comms.all_reduce(parameter.data)
        parameter.data /= comms.world_size


def divided_twice(module: nn.Module, comms: Comms) -> None:
    """Your gradients are W times too small: averaged by the all-reduce (op avg) and divided by W once
    more."""
    for parameter in module.parameters():
        if parameter.grad is not None:
            comms.all_reduce(parameter.grad, op="avg")
            parameter.grad /= comms.world_size


def zeros_in_place_of_none(module: nn.Module, comms: Comms) -> None:
    """A parameter that no rank used got a gradient of zeros. That is not the same as None: AdamW would decay
    its weight, and momentum would go on moving it."""
    for parameter in module.parameters():
        if parameter.grad is None:
            parameter.grad = parameter.detach() * 0
        comms.all_reduce(parameter.grad)
        parameter.grad /= comms.world_size
