"""What a ring all-reduce must come to: the sum everywhere, by neighbours alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.exercise_comms import WatchedComms

FUNCTIONS = ("ring_all_reduce",)
CASES = {"8 elements": 8, "10 elements": 10, "3 elements": 3}
USUALLY = (
    "Each piece has to pass every rank once to be summed and once more to be handed out: write down which "
    "piece a rank sends in each step."
)


def run(yours: Any, comms: WatchedComms, case: int) -> dict[str, Any]:
    """Call the learner's function on this rank's tensor."""
    tensor = tensor_of(comms.rank, case)
    yours.ring_all_reduce(comms, tensor)
    neighbours = {
        f"send to rank {(comms.rank + 1) % comms.world_size}",
        f"recv from rank {(comms.rank - 1) % comms.world_size}",
    }
    return {
        "the result": tensor,
        "calls to others than the neighbours": sorted(set(comms.journal.calls) - neighbours),
        "elements sent": comms.journal.elements["send"],
    }


def expected(rank: int, world_size: int, case: int) -> dict[str, Any]:
    """The sum, computed in one process."""
    total = torch.stack([tensor_of(each, case) for each in range(world_size)]).sum(0)
    wanted: dict[str, Any] = {"the result": total, "calls to others than the neighbours": []}
    if case % world_size == 0:
        wanted["elements sent"] = 2 * (world_size - 1) * case // world_size
    return wanted


def tensor_of(rank: int, numel: int) -> Tensor:
    """What a rank brings: every element tells rank and place."""
    return torch.arange(1.0, numel + 1) * 10.0**rank
