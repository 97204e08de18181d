"""What the backward of a column-parallel layer must be: that of the whole layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.exercise_comms import WatchedComms

FUNCTIONS = ("column_backward",)
CASES = {"3 rows, 2 inputs, 8 outputs": (3, 2, 8)}
USUALLY = "The weight's gradient needs this rank's columns only; that of x is a sum over all ranks' columns."


def run(yours: Any, comms: WatchedComms, case: tuple[int, int, int]) -> dict[str, Any]:
    """The learner's backward on this rank's slice."""
    x, weight, grad_output = whole(case)
    width = weight.shape[1] // comms.world_size
    mine = weight[:, comms.rank * width : (comms.rank + 1) * width].contiguous()
    got = yours.column_backward(x, mine, grad_output, comms)
    if not isinstance(got, tuple) or len(got) != 2:
        return {"gradient of x": got}
    return {"gradient of x": got[0], "gradient of this rank's columns": got[1]}


def expected(rank: int, world_size: int, case: tuple[int, int, int]) -> dict[str, Any]:
    """Autograd's gradients of the whole layer, and a rank's columns of them."""
    x, weight, grad_output = whole(case)
    x.requires_grad_()
    weight.requires_grad_()
    torch.autograd.backward(x @ weight, grad_output)
    assert x.grad is not None
    assert weight.grad is not None
    width = weight.shape[1] // world_size
    mine = weight.grad[:, rank * width : (rank + 1) * width]
    return {"gradient of x": x.grad, "gradient of this rank's columns": mine}


def whole(case: tuple[int, int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Input, whole weight and gradient of the whole output; the same on every rank."""
    rows, inputs, outputs = case
    generator = torch.Generator().manual_seed(3)
    shapes = ((rows, inputs), (inputs, outputs), (rows, outputs))
    x, weight, grad_output = (torch.randn(shape, generator=generator) for shape in shapes)
    return x, weight, grad_output
