"""Wrong ways to average what only some ranks have."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labs.comms import Comms


def only_what_this_rank_has(module: nn.Module, comms: Comms) -> None:
    """Each rank lays only its own gradients end to end, so the ranks bring different numbers of elements,
    or the same number of different parameters. Give every parameter its place in the buffer."""
    there = [parameter for parameter in module.parameters() if parameter.grad is not None]
    flat = torch.cat([_gradient(parameter).reshape(-1) for parameter in there])
    comms.all_reduce(flat)
    for parameter, piece in zip(there, torch.split(flat, [p.numel() for p in there]), strict=True):
        parameter.grad = piece.view_as(parameter) / comms.world_size


def zeros_in_place_of_none(module: nn.Module, comms: Comms) -> None:
    """A parameter that nobody used got a gradient of zeros in place of None: AdamW would decay its weight,
    and momentum would go on moving it. Find out whether any rank used it."""
    parameters = list(module.parameters())
    flat = torch.cat([_gradient(parameter).reshape(-1) for parameter in parameters])
    comms.all_reduce(flat)
    for parameter, piece in zip(parameters, torch.split(flat, [p.numel() for p in parameters]), strict=True):
        parameter.grad = piece.view_as(parameter) / comms.world_size


def ranks_without_a_gradient_get_none(module: nn.Module, comms: Comms) -> None:
    """The ranks that did not use a parameter kept None while the others stepped: from here on the replicas
    differ. Who steps must not depend on what this rank used."""
    used = [parameter.grad is not None for parameter in module.parameters()]
    zeros_in_place_of_none(module, comms)
    for parameter, mine in zip(module.parameters(), used, strict=True):
        if not mine:
            parameter.grad = None


def divided_by_those_who_used_it(module: nn.Module, comms: Comms) -> None:
    """You divided each gradient by the number of ranks that used it. One process with the whole batch would
    divide by all rows, those that did not reach the expert too: divide by W."""
    parameters = list(module.parameters())
    counts = torch.tensor([float(p.grad is not None) for p in parameters])
    flat = torch.cat([*(_gradient(parameter).reshape(-1) for parameter in parameters), counts])
    comms.all_reduce(flat)
    *pieces, counts = torch.split(flat, [*(p.numel() for p in parameters), len(parameters)])
    for parameter, piece, count in zip(parameters, pieces, counts, strict=True):
        if count > 0:
            parameter.grad = piece.view_as(parameter) / count


def one_all_reduce_a_parameter(module: nn.Module, comms: Comms) -> None:
    """The means are right, but each parameter has collectives of its own: lay them end to end."""
    for parameter in module.parameters():
        used = torch.tensor(float(parameter.grad is not None))
        gradient = _gradient(parameter)
        comms.all_reduce(gradient)
        comms.all_reduce(used)
        if used > 0:
            parameter.grad = gradient / comms.world_size


def summed_not_averaged(module: nn.Module, comms: Comms) -> None:
    """Your gradients are W times too large: summed, not averaged."""
    parameters = list(module.parameters())
    flat = torch.cat([_gradient(parameter).reshape(-1) for parameter in parameters])
    comms.all_reduce(flat)
    for parameter, piece in zip(parameters, torch.split(flat, [p.numel() for p in parameters]), strict=True):
        parameter.grad = piece.view_as(parameter)


def _gradient(parameter: nn.Parameter) -> Tensor:
    return parameter.grad if parameter.grad is not None else torch.zeros_like(parameter.detach())
