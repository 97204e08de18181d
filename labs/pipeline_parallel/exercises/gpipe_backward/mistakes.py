"""Wrong pipelines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from labs.comms import Comms
from labs.pipeline_parallel.exercises.gpipe_backward.solution import receive as _receive

_Loss = Callable[[Tensor, Tensor], Tensor]


def no_gradient_sent_back(
    stage: nn.Module,
    inputs: list[Tensor],
    targets: list[Tensor],
    m: int,
    shape: Any,
    loss: _Loss,
    comms: Comms,
) -> list[float]:
    """The last stage has its gradients and the one before waits for them without end: after each backward
    send the gradient of the stage's input to the rank before."""
    return _run(stage, inputs, targets, m, shape, loss, comms, send_back=False)


def loss_not_divided(
    stage: nn.Module,
    inputs: list[Tensor],
    targets: list[Tensor],
    m: int,
    shape: Any,
    loss: _Loss,
    comms: Comms,
) -> list[float]:
    """Your gradients are m times too large: the micro-batches' losses were summed. Divide each by m before
    its backward."""
    return _run(stage, inputs, targets, m, shape, loss, comms, divide=False)


def received_without_requires_grad(
    stage: nn.Module,
    inputs: list[Tensor],
    targets: list[Tensor],
    m: int,
    shape: Any,
    loss: _Loss,
    comms: Comms,
) -> list[float]:
    """The received activation collects no gradient, so there is none to send back: call requires_grad_() on
    it before the stage runs."""
    return _run(stage, inputs, targets, m, shape, loss, comms, leaf=False)


def gradients_in_another_order(
    stage: nn.Module,
    inputs: list[Tensor],
    targets: list[Tensor],
    m: int,
    shape: Any,
    loss: _Loss,
    comms: Comms,
) -> list[float]:
    """The last stage goes backward through the micro-batches from the last to the first and the others from
    the first to the last: each gets another micro-batch's gradient. Agree on one order."""
    return _run(stage, inputs, targets, m, shape, loss, comms, turn_last=True)


def only_the_last_micro_batch_counts(
    stage: nn.Module,
    inputs: list[Tensor],
    targets: list[Tensor],
    m: int,
    shape: Any,
    loss: _Loss,
    comms: Comms,
) -> list[float]:
    """The gradients are those of the last micro-batch alone: they were set to zero between the backwards, and
    have to add up."""
    return _run(stage, inputs, targets, m, shape, loss, comms, reset=True)


def each_micro_batch_to_its_end(
    stage: nn.Module,
    inputs: list[Tensor],
    targets: list[Tensor],
    m: int,
    shape: Any,
    loss: _Loss,
    comms: Comms,
) -> list[float]:
    """The numbers are right, but each micro-batch goes forward and back before the next begins: one rank
    works and all others wait, as without micro-batches."""
    losses = []
    for number in range(m):
        mine = [targets[number]] if targets else []
        scaled = _scale(loss, m)
        losses += _run(stage, inputs[number : number + 1], mine, 1, shape, scaled, comms)
    return [value * m for value in losses]


def _scale(loss: _Loss, m: int) -> _Loss:
    return lambda output, target: loss(output, target) / m


def _run(
    stage: nn.Module,
    inputs: list[Tensor],
    targets: list[Tensor],
    m: int,
    shape: Any,
    loss: _Loss,
    comms: Comms,
    *,
    send_back: bool = True,
    divide: bool = True,
    leaf: bool = True,
    turn_last: bool = False,
    reset: bool = False,
) -> list[float]:
    first, last = comms.rank == 0, comms.rank == comms.world_size - 1
    entered, left, losses = [], [], []
    for number in range(m):
        x = inputs[number] if first else _receive(shape, comms, comms.rank - 1).requires_grad_(leaf)
        entered.append(x)
        left.append(stage(x))
        if not last:
            comms.send(left[-1].detach(), comms.rank + 1)
    for number in reversed(range(m)) if turn_last and last else range(m):
        if reset:
            stage.zero_grad()
        if last:
            value = loss(left[number], targets[number])
            losses.append(value.item())
            torch.autograd.backward(value / m if divide else value)
        else:
            torch.autograd.backward(left[number], _receive(shape, comms, comms.rank + 1))
        if send_back and not first:
            comms.send(entered[number].grad, comms.rank - 1)  # type: ignore[arg-type]
    return losses[::-1] if turn_last else losses
