"""Put TP, PP and DP together."""

from __future__ import annotations

import torch
from torch import Tensor

from labs.comms import Comms
from labs.parallel.tensor_ops import copy_in, sum_out


def train_step(
    x: Tensor, column: Tensor, row: Tensor, shape: tuple[int, ...], tp: Comms, pp: Comms, dp: Comms
) -> float:
    """Do one forward and backward on three axes: TP in the block, PP around it, DP for the gradients."""
    loss = 0.0
    if pp.rank == 0:
        y = block(x, column, row, tp)
        pp.send(y.detach(), 1)
        gradient = torch.empty(shape)
        pp.recv(gradient, 1)
        torch.autograd.backward(y, gradient)
    else:
        x = torch.empty(shape)
        pp.recv(x, 0)
        value = block(x.requires_grad_(), column, row, tp).square().mean()
        loss = value.item()
        torch.autograd.backward(value)
        assert x.grad is not None
        pp.send(x.grad, 0)
    average(column, dp)
    average(row, dp)
    return loss


def block(x: Tensor, column: Tensor, row: Tensor, tp: Comms) -> Tensor:
    """Megatron's block: columns, then rows, f before and g behind."""
    return sum_out(torch.relu(copy_in(x, tp) @ column) @ row, tp)


def average(parameter: Tensor, comms: Comms) -> None:
    """Put the mean of a gradient over a group into its place."""
    assert parameter.grad is not None
    comms.all_reduce(parameter.grad)
    parameter.grad /= comms.world_size
