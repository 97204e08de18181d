"""What averaged gradients are: those of one process on the whole batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from labs.exercise_comms import WatchedComms

FUNCTIONS = ("average_gradients",)
ROWS = 2
CASES = {"two layers": False, "two layers, one of them unused": True}
USUALLY = "The gradient on every rank should be the sum over the ranks, divided by the number of ranks."


def run(yours: Any, comms: WatchedComms, case: bool) -> dict[str, Any]:
    """Backward on this rank's rows, then the learner's function."""
    module = model()
    rows = slice(comms.rank * ROWS, (comms.rank + 1) * ROWS)
    backward(module, batch(comms.world_size)[rows], case)
    yours.average_gradients(module, comms)
    return gradients_of(module)


def expected(rank: int, world_size: int, case: bool) -> dict[str, Any]:
    """Backward on the whole batch in one process."""
    module = model()
    backward(module, batch(world_size), case)
    return gradients_of(module)


def model() -> nn.Sequential:
    """Two layers, the same on every rank."""
    layers = nn.Sequential(nn.Linear(3, 2), nn.Linear(3, 2))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in layers.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return layers


def batch(world_size: int) -> Tensor:
    """The whole batch, (W x rows, 3)."""
    return torch.randn(world_size * ROWS, 3, generator=torch.Generator().manual_seed(2))


def backward(module: nn.Sequential, x: Tensor, one_unused: bool) -> None:
    """Mean loss over the rows, and its gradients."""
    out = module[0](x) if one_unused else module[0](x) + 2 * module[1](x)
    torch.autograd.backward(out.square().mean())


def gradients_of(module: nn.Module) -> dict[str, Any]:
    """The gradients by name; None where there is none."""
    return {f"{name}.grad": parameter.grad for name, parameter in module.named_parameters()}
