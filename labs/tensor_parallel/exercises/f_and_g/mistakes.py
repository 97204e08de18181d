"""Wrong pairs; each class replaces f, g or both."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.comms import Comms
from labs.tensor_parallel.exercises.f_and_g.solution import summed as _summed


class _Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comms: Comms) -> Tensor:
        ctx.comms = comms
        return _summed(x, comms)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _summed(gradients[0], ctx.comms), None


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comms: Comms) -> Tensor:
        ctx.comms = comms
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _summed(gradients[0], ctx.comms) / ctx.comms.world_size, None


class g_sums_in_backward_too:  # noqa: N801
    """Your gradients are W times too large: g also sums in backward, where the gradient is whole already.
    That is what an all-reduce that knows of autograd does by itself."""

    @staticmethod
    def g(x: Tensor, comms: Comms) -> Tensor:
        """All-reduce both ways."""
        out: Tensor = _Both.apply(x, comms)  # type: ignore[no-untyped-call]
        return out


class f_does_nothing:  # noqa: N801
    """The output and the weights' gradients are right, but the gradient of x is one rank's term only: f has
    to sum it in backward."""

    @staticmethod
    def f(x: Tensor, comms: Comms) -> Tensor:
        """The identity, backward too."""
        return x


class g_does_nothing:  # noqa: N801
    """Each rank's output is only its own term of the sum: g has to all-reduce in forward."""

    @staticmethod
    def g(x: Tensor, comms: Comms) -> Tensor:
        """The identity."""
        return x


class f_sums_in_forward:  # noqa: N801
    """f summed its input over the ranks. x is the same on every rank, so that makes it W times too large: f
    is the identity in forward."""

    @staticmethod
    def f(x: Tensor, comms: Comms) -> Tensor:
        """All-reduce both ways."""
        out: Tensor = _Both.apply(x, comms)  # type: ignore[no-untyped-call]
        return out


class f_averages:  # noqa: N801
    """The gradient of x is W times too small: f averaged the ranks' terms. They belong to different
    columns, so they are summed."""

    @staticmethod
    def f(x: Tensor, comms: Comms) -> Tensor:
        """The mean in backward."""
        out: Tensor = _Scaled.apply(x, comms)  # type: ignore[no-untyped-call]
        return out
