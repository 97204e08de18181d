"""Wrong steps on three axes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from labs.comms import Comms
from labs.parallel.tensor_ops import copy_in as _f
from labs.parallel.tensor_ops import sum_out as _g

_Block = Callable[[Tensor, Tensor, Tensor, Comms], Tensor]


def never_averaged_over_dp(
    x: Tensor, column: Tensor, row: Tensor, shape: tuple[int, ...], tp: Comms, pp: Comms, dp: Comms
) -> float:
    """Each replica has the gradients of its own rows: the average over dp is missing, and the replicas will
    part."""
    return _step(x, column, row, shape, tp, pp, [])


def averaged_over_tp(
    x: Tensor, column: Tensor, row: Tensor, shape: tuple[int, ...], tp: Comms, pp: Comms, dp: Comms
) -> float:
    """The gradients were averaged over tp. These ranks hold other columns and rows of the matrices, so their
    gradients have nothing to do with each other; replicas are the ranks of dp."""
    return _step(x, column, row, shape, tp, pp, [tp])


def averaged_over_tp_as_well(
    x: Tensor, column: Tensor, row: Tensor, shape: tuple[int, ...], tp: Comms, pp: Comms, dp: Comms
) -> float:
    """The gradients were averaged over dp, which is right, and over tp, where each rank holds other columns
    and rows."""
    return _step(x, column, row, shape, tp, pp, [dp, tp])


def summed_over_dp(
    x: Tensor, column: Tensor, row: Tensor, shape: tuple[int, ...], tp: Comms, pp: Comms, dp: Comms
) -> float:
    """Your gradients are twice too large: summed over dp, not averaged."""
    loss = _step(x, column, row, shape, tp, pp, [dp])
    for parameter in (column, row):
        assert parameter.grad is not None
        parameter.grad *= dp.world_size
    return loss


def f_left_out(
    x: Tensor, column: Tensor, row: Tensor, shape: tuple[int, ...], tp: Comms, pp: Comms, dp: Comms
) -> float:
    """The second stage is right and the first is not: without f the gradient that goes back is one tp
    rank's term only. Enter the block by f."""
    return _step(x, column, row, shape, tp, pp, [dp], lambda x, c, r, t: _g(torch.relu(x @ c) @ r, t))


def g_left_out(
    x: Tensor, column: Tensor, row: Tensor, shape: tuple[int, ...], tp: Comms, pp: Comms, dp: Comms
) -> float:
    """Each tp rank goes on with its own term of the sum: leave the block by g."""
    return _step(x, column, row, shape, tp, pp, [dp], lambda x, c, r, t: torch.relu(_f(x, t) @ c) @ r)


def no_gradient_sent_back(
    x: Tensor, column: Tensor, row: Tensor, shape: tuple[int, ...], tp: Comms, pp: Comms, dp: Comms
) -> float:
    """The last stage never sends the gradient of what it received: the first one waits for it without end."""
    return _step(x, column, row, shape, tp, pp, [dp], send_back=False)


def _step(
    x: Tensor,
    column: Tensor,
    row: Tensor,
    shape: tuple[int, ...],
    tp: Comms,
    pp: Comms,
    averaged: list[Comms],
    block: _Block = lambda x, c, r, t: _g(torch.relu(_f(x, t) @ c) @ r, t),
    *,
    send_back: bool = True,
) -> float:
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
        if send_back:
            pp.send(x.grad, 0)  # type: ignore[arg-type]
    for comms in averaged:
        for parameter in (column, row):
            assert parameter.grad is not None
            comms.all_reduce(parameter.grad)
            parameter.grad /= comms.world_size
    return loss
