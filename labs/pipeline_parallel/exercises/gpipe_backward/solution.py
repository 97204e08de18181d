"""GPipe, with the backward."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from labs.comms import Comms


def gpipe(
    stage: nn.Module,
    inputs: list[Tensor],
    targets: list[Tensor],
    m: int,
    shape: tuple[int, ...],
    loss_function: Callable[[Tensor, Tensor], Tensor],
    comms: Comms,
) -> list[float]:
    """Run m micro-batches forward, then backward (Huang et al. 2019, GPipe)."""
    first, last = comms.rank == 0, comms.rank == comms.world_size - 1
    entered, left, losses = [], [], []
    for number in range(m):
        x = inputs[number] if first else receive(shape, comms, comms.rank - 1).requires_grad_()
        entered.append(x)
        left.append(stage(x))
        if not last:
            comms.send(left[-1].detach(), comms.rank + 1)
    for number in range(m):
        if last:
            loss = loss_function(left[number], targets[number])
            losses.append(loss.item())
            torch.autograd.backward(loss / m)
        else:
            torch.autograd.backward(left[number], receive(shape, comms, comms.rank + 1))
        gradient = entered[number].grad
        if gradient is not None:
            comms.send(gradient, comms.rank - 1)
    return losses


def receive(shape: tuple[int, ...], comms: Comms, src: int) -> Tensor:
    """Return what rank `src` sends, of an agreed shape."""
    tensor = torch.empty(shape)
    comms.recv(tensor, src)
    return tensor
