"""What equal replicas are: each parameter and each buffer is rank 0's."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from labs.exercise_comms import WatchedComms

FUNCTIONS = ("start_equal",)
CASES = {"a layer, a frozen layer and a BatchNorm": 0}
USUALLY = "Rank 0 has the right numbers and the others get them: parameters, frozen ones too, and buffers."


def run(yours: Any, comms: WatchedComms, case: int) -> dict[str, Any]:
    """Make this rank's module and let the learner's function make it rank 0's."""
    module = module_of(comms.rank)
    yours.start_equal(module, comms)
    return state_of(module)


def expected(rank: int, world_size: int, case: int) -> dict[str, Any]:
    """Rank 0's module."""
    return state_of(module_of(0))


def state_of(module: nn.Module) -> dict[str, Any]:
    """Copies of all that a module holds, by name."""
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def module_of(rank: int) -> nn.Module:
    """A module whose numbers all differ from rank to rank."""
    module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3), nn.BatchNorm1d(3))
    generator = torch.Generator().manual_seed(rank + 1)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if "num_batches" not in name:
                tensor.copy_(torch.rand(tensor.shape, generator=generator))
        module.state_dict()["2.num_batches_tracked"].fill_(rank + 5)
    module[1].requires_grad_(False)
    return module
