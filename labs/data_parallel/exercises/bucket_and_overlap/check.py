"""What buckets that overlap are: the means of one process, in the buckets asked for, begun before backward
ended."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from labs.exercise_comms import WatchedComms

FUNCTIONS = ("overlap",)
DIM, LAYERS, ROWS = 3, 4, 2
CASES = {"buckets of 20 elements": 20, "buckets of 12 elements": 12}
USUALLY = "Each bucket should be begun when its last gradient arrives and waited for in finish()."


def run(yours: Any, comms: WatchedComms, case: int) -> dict[str, Any]:
    """Two backwards with the learner's function; what is compared is of the second, and of the calls."""
    module = model()
    finish = yours.overlap(module, comms, case)
    begun = 0
    for step in range(2):
        module.zero_grad()
        rows = slice(comms.rank * ROWS, (comms.rank + 1) * ROWS)
        before = len(comms.journal.calls)
        backward(module, batch(comms.world_size, step)[rows])
        begun = len(comms.journal.calls) - before
        finish()
    sizes = [handle.elements for handle in comms.journal.handles]
    return {
        "elements of the all-reduces of two backwards": sizes,
        "all-reduces begun before backward ended": begun,
        **gradients_of(module),
    }


def expected(rank: int, world_size: int, case: int) -> dict[str, Any]:
    """The second backward on the whole batch in one process, and the buckets by their rule."""
    module = model()
    backward(module, batch(world_size, 1))
    sizes = [0]
    for parameter in reversed(list(module.parameters())):
        if sizes[-1] >= case:
            sizes.append(0)
        sizes[-1] += parameter.numel()
    return {
        "elements of the all-reduces of two backwards": sizes * 2,
        "all-reduces begun before backward ended": len(sizes),
        **gradients_of(module),
    }


def model() -> nn.Sequential:
    """Layers of two parameters each, the same on every rank."""
    module = nn.Sequential(*(nn.Linear(DIM, DIM) for _ in range(LAYERS)))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module


def batch(world_size: int, step: int) -> Tensor:
    """The whole batch of a step."""
    return torch.randn(world_size * ROWS, DIM, generator=torch.Generator().manual_seed(step))


def backward(module: nn.Module, x: Tensor) -> None:
    """Mean loss over the rows, and its gradients."""
    torch.autograd.backward(module(x).square().mean())


def gradients_of(module: nn.Module) -> dict[str, Any]:
    """The gradients by name."""
    return {f"{name}.grad": parameter.grad for name, parameter in module.named_parameters()}
