"""Mixed precision on one rank: parameters in a small dtype, and the optimizer steps master copies in fp32.

A step of Adam is often smaller than bf16 can add to a weight: the sum would round back to what it was. So the
optimizer keeps its own copy of each parameter in fp32, and the model gets it rounded (Micikevicius et al.
2018, "Mixed Precision Training", section 3.1). With Adam that is 2 + 2 + 12 bytes a parameter: weights and
gradients in bf16, masters and two moments in fp32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class MasterWeights:
    """Turns the parameters into `dtype` and steps masters in the dtype they had.

    Args:
        parameters: what the model computes with; their `.data` is replaced.
        make: builds the optimizer over the masters.
        dtype: what the model computes in.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        make: Callable[[list[nn.Parameter]], Optimizer],
        dtype: torch.dtype,
    ) -> None:
        self.parameters = list(parameters)
        self.masters = [nn.Parameter(p.detach().clone(), p.requires_grad) for p in self.parameters]
        for parameter in self.parameters:
            parameter.data = parameter.data.to(dtype)
        self.inner = make(self.masters)

    def step(self) -> None:
        """Give the masters their gradients in full precision, step them, round them into the parameters."""
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            gradient: Tensor | None = parameter.grad
            master.grad = None if gradient is None else gradient.to(master.dtype)
        self.inner.step()
        with torch.no_grad():
            for parameter, master in zip(self.parameters, self.masters, strict=True):
                parameter.copy_(master)
        self.inner.zero_grad()

    def zero_grad(self) -> None:
        """Let the parameters' gradients go."""
        for parameter in self.parameters:
            parameter.grad = None
