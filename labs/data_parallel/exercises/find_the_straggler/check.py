"""Who the straggler is and what it costs, from times made up so that one step misleads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.exercise_comms import WatchedComms

FUNCTIONS = ("find_the_straggler",)
STEPS = 8
Held = dict[int, tuple[float, tuple[int, ...]]]
CASES: dict[str, tuple[int, Held]] = {
    "rank 2 is slow": (2, {}),
    "rank 1 is slow, others hung once or twice": (1, {3: (0.9, (3,)), 2: (0.6, (1, 5))}),
}
"""The slow rank, and by rank how long others were held up, in which steps."""
USUALLY = "Compare the ranks step by step, all on the same times, and count."


def run(yours: Any, comms: WatchedComms, case: tuple[int, Held]) -> dict[str, Any]:
    """The learner's answer from this rank's times."""
    got = yours.find_the_straggler(times_of(comms.rank, case), comms)
    if not isinstance(got, tuple) or len(got) != 2:
        return {"the straggler": got}
    return {"the straggler": got[0], "seconds waited a step": got[1]}


def expected(rank: int, world_size: int, case: tuple[int, Held]) -> dict[str, Any]:
    """The rank that was made slow, and the waiting from everyone's times."""
    times = torch.stack([times_of(each, case) for each in range(world_size)])
    waited = (times.max(0).values - times).sum(0).mean()
    return {"the straggler": case[0], "seconds waited a step": float(waited)}


def times_of(rank: int, case: tuple[int, Held]) -> Tensor:
    """Seconds a step of a rank: about 0.1, half as much again where it is slow, more where it was held up."""
    slow, held_up = case
    times = 0.1 + 0.01 * torch.rand(STEPS, generator=torch.Generator().manual_seed(rank))
    times = times * (1.5 if rank == slow else 1.0)
    if rank in held_up:
        seconds, steps = held_up[rank]
        times[list(steps)] = seconds
    return times
