"""What ZeRO-1 must come to: one process's parameters, a W-th of its state, the traffic of data
parallelism."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.exercise_comms import WatchedComms

FUNCTIONS = ("zero_step",)
N, LR, BETA = 8, 0.1, 0.9
CASES = {"one step": 1, "three steps": 3}
USUALLY = "Each rank steps its own shard with the mean gradient of that shard; then all get all shards."


def run(yours: Any, comms: WatchedComms, case: int) -> dict[str, Any]:
    """Some steps of the learner's function."""
    parameters, momentum = start(), torch.zeros(N // comms.world_size)
    for step in range(case):
        yours.zero_step(parameters, gradient_of(comms.rank, step), momentum, comms, LR, BETA)
    return {"parameters": parameters, "momentum of this shard": momentum, "the calls": comms.journal.ops()}


def expected(rank: int, world_size: int, case: int) -> dict[str, Any]:
    """The same steps in one process that has every rank's gradient."""
    parameters, momentum = start(), torch.zeros(N)
    for step in range(case):
        mean = torch.stack([gradient_of(each, step) for each in range(world_size)]).mean(0)
        momentum = BETA * momentum + mean
        parameters -= LR * momentum
    size = N // world_size
    return {
        "parameters": parameters,
        "momentum of this shard": momentum[rank * size : (rank + 1) * size],
        "the calls": ["reduce_scatter", "all_gather"] * case,
    }


def start() -> Tensor:
    """The parameters before the first step."""
    return torch.linspace(-1.0, 1.0, N)


def gradient_of(rank: int, step: int) -> Tensor:
    """What a rank's backward gives in a step."""
    return torch.randn(N, generator=torch.Generator().manual_seed(10 * step + rank))
