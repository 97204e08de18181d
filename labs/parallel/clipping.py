"""Clip gradients by their global norm, also when each rank holds only a part of them.

The norm is that of all gradients of the model together. Where gradients are sharded, a rank's own sum of
squares is only its share: the shares are summed over the ranks (4 bytes) before the root is taken. Gradients
that every rank holds whole are counted once. Clipping by the local norm instead would scale each rank's shard
differently and bend the step.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from labs.comms import Comms


def global_norm(sharded: Iterable[Tensor], comms: Comms | None, replicated: Iterable[Tensor] = ()) -> Tensor:
    """Return the 2-norm over all parameters' gradients, a scalar in fp32, alike on every rank.

    Args:
        sharded: parameters whose `.grad` is this rank's shard (disjoint from the other ranks').
        comms: the ranks over which those are sharded; None where nothing is.
        replicated: parameters whose averaged `.grad` is whole on every rank.
    """
    squares = _squares(sharded)
    if comms is not None:
        # Shards may live on the CPU while the ranks talk from GPUs.
        squares = squares.to(comms.recorder.device)
        comms.all_reduce(squares)
    return (squares + _squares(replicated).to(squares.device)).sqrt()


def clip_sharded_gradients(
    sharded: Iterable[Tensor], max_norm: float, comms: Comms | None, replicated: Iterable[Tensor] = ()
) -> Tensor:
    """Scale every gradient by max_norm / norm where the global norm exceeds `max_norm`; return that norm.

    Raises:
        ValueError: `max_norm` is not positive.
    """
    if not max_norm > 0:
        raise ValueError(f"max_norm is {max_norm}; allowed: > 0")
    sharded, replicated = list(sharded), list(replicated)
    norm = global_norm(sharded, comms, replicated)
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for parameter in (*sharded, *replicated):
        if parameter.grad is not None:
            parameter.grad.mul_(factor.to(parameter.grad.device, parameter.grad.dtype))
    return norm


def _squares(parameters: Iterable[Tensor]) -> Tensor:
    parameters = list(parameters)
    device = parameters[0].device if parameters else torch.device("cpu")
    total = torch.zeros((), dtype=torch.float32, device=device)
    for parameter in parameters:
        if parameter.grad is not None:
            total += parameter.grad.float().square().sum().to(device)
    return total
