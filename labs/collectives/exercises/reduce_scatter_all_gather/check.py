"""What the two halves must come to: the sum everywhere, by one reduce-scatter and one all-gather."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.exercise_comms import WatchedComms

FUNCTIONS = ("all_reduce",)
CASES = {"8 elements": 8, "10 elements": 10}
USUALLY = "After the reduce-scatter this rank's piece is summed; after the all-gather all have all pieces."


def run(yours: Any, comms: WatchedComms, case: int) -> dict[str, Any]:
    """Call the learner's function on this rank's tensor."""
    tensor = tensor_of(comms.rank, case)
    yours.all_reduce(comms, tensor)
    return {"the result": tensor, "the calls": comms.journal.ops()}


def expected(rank: int, world_size: int, case: int) -> dict[str, Any]:
    """The sum, computed in one process."""
    total = torch.stack([tensor_of(each, case) for each in range(world_size)]).sum(0)
    return {"the result": total, "the calls": ["reduce_scatter", "all_gather"]}


def tensor_of(rank: int, numel: int) -> Tensor:
    """What a rank brings: every element tells rank and place."""
    return torch.arange(1.0, numel + 1) * 10.0**rank
