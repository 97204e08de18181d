"""The f and g pair."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.comms import Comms


class _F(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comms: Comms) -> Tensor:
        """Keep `comms` in `ctx` for the backward and return x as it is (`x.view_as(x)`)."""
        raise NotImplementedError

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """`gradients[0]` is this rank's gradient of f's output; return that of x, and None for comms."""
        raise NotImplementedError


class _G(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comms: Comms) -> Tensor:
        """x is this rank's partial result; return the whole one."""
        raise NotImplementedError

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """`gradients[0]` is the gradient of g's output; return that of this rank's partial result, and
        None."""
        raise NotImplementedError


def f(x: Tensor, comms: Comms) -> Tensor:
    """Enter a tensor-parallel region: x, shape (B, m), the same on every rank."""
    out: Tensor = _F.apply(x, comms)  # type: ignore[no-untyped-call]
    return out


def g(x: Tensor, comms: Comms) -> Tensor:
    """Leave a tensor-parallel region: x, shape (B, n), is this rank's partial result; returns the whole
    one."""
    out: Tensor = _G.apply(x, comms)  # type: ignore[no-untyped-call]
    return out
