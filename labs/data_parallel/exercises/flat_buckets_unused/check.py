"""What one flat all-reduce must come to where ranks use different parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from labs.exercise_comms import WatchedComms

FUNCTIONS = ("average_flat",)
ROWS, DIM = 2, 3
CASES = {
    "every rank uses everything": {0: (0, 1, 2), 1: (0, 1, 2), 2: (0, 1, 2), 3: (0, 1, 2)},
    "each rank uses another expert, nobody the last": {0: (0,), 1: (1,), 2: (0,), 3: (0, 1)},
}
USUALLY = "A rank without a gradient counts as zero, and the sum is divided by all W ranks."
MOST = 2


def run(yours: Any, comms: WatchedComms, case: dict[int, tuple[int, ...]]) -> dict[str, Any]:
    """Backward through this rank's experts, then the learner's function."""
    module = experts()
    rows = slice(comms.rank * ROWS, (comms.rank + 1) * ROWS)
    torch.autograd.backward(loss_of(module, batch(comms.world_size)[rows], case[comms.rank]))
    yours.average_flat(module, comms)
    return {**gradients_of(module), "more than two collectives": len(comms.journal.calls) > MOST}


def expected(rank: int, world_size: int, case: dict[int, tuple[int, ...]]) -> dict[str, Any]:
    """The mean of all ranks' losses in one process."""
    module = experts()
    x = batch(world_size)
    losses = [loss_of(module, x[each * ROWS : (each + 1) * ROWS], case[each]) for each in range(world_size)]
    torch.autograd.backward(torch.stack(losses).mean())
    return {**gradients_of(module), "more than two collectives": False}


def experts() -> nn.ModuleList:
    """Three experts, the same on every rank."""
    module = nn.ModuleList(nn.Linear(DIM, 2) for _ in range(3))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module


def batch(world_size: int) -> Tensor:
    """The whole batch."""
    return torch.randn(world_size * ROWS, DIM, generator=torch.Generator().manual_seed(2))


def loss_of(module: nn.ModuleList, x: Tensor, chosen: tuple[int, ...]) -> Tensor:
    """The mean loss of some rows by some of the experts."""
    return torch.stack([module[number](x) for number in chosen]).sum(0).square().mean()


def gradients_of(module: nn.Module) -> dict[str, Any]:
    """The gradients by name; None where there is none."""
    return {f"{name}.grad": parameter.grad for name, parameter in module.named_parameters()}
