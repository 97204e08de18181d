"""Wrong ways to start equal."""

from __future__ import annotations

import torch
from torch import nn

from labs.comms import Comms


def buffers_forgotten(module: nn.Module, comms: Comms) -> None:
    """The parameters are equal, the buffers are not: a BatchNorm's running mean is no parameter, but a
    replica computes with it. Broadcast module.buffers() as well."""
    for parameter in module.parameters():
        comms.broadcast(parameter.data)


def frozen_parameters_forgotten(module: nn.Module, comms: Comms) -> None:
    """Frozen parameters are not trained, so nothing will ever make them equal: broadcast those too."""
    for tensor in [*(each for each in module.parameters() if each.requires_grad), *module.buffers()]:
        comms.broadcast(tensor.data)


def averaged_instead_of_broadcast(module: nn.Module, comms: Comms) -> None:
    """All ranks agree, but not on rank 0's numbers: you averaged them. The mean of random weights has a
    smaller variance than the initialisation was made for."""
    for tensor in [*module.parameters(), *module.buffers()]:
        mean = tensor.detach().double()
        comms.all_reduce(mean)
        tensor.data.copy_((mean / comms.world_size).to(tensor.dtype))


def every_rank_names_itself_as_the_source(module: nn.Module, comms: Comms) -> None:
    """`src` is the rank whose tensor everyone gets, so all ranks must name the same one: 0, not their own."""
    for tensor in [*module.parameters(), *module.buffers()]:
        comms.broadcast(tensor.data, src=comms.rank)


def broadcast_into_a_copy(module: nn.Module, comms: Comms) -> None:
    """Rank 0's numbers arrived in copies that nobody keeps: state_dict(), clone() and detach().clone() give
    other tensors than those of the module. Broadcast into the parameter's own data."""
    for tensor in [*module.parameters(), *module.buffers()]:
        comms.broadcast(torch.clone(tensor.detach()))
