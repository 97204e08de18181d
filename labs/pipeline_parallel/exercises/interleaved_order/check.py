"""What interleaved 1F1B is, on each rank: the order of the pipeline lab's own schedule."""

from __future__ import annotations

from typing import Any

from labs.exercise_comms import WatchedComms
from labs.parallel.schedules import build

FUNCTIONS = ("interleaved",)
CASES = {"8 micro-batches, 2 chunks": (8, 2), "4 micro-batches, 3 chunks": (4, 3)}
USUALLY = "Check the k-th forward's chunk and micro-batch first, then the length of the warm-up."


def run(yours: Any, comms: WatchedComms, case: tuple[int, int]) -> dict[str, Any]:
    """The learner's actions of this rank."""
    return {"actions": yours.interleaved(comms.rank, comms.world_size, *case)}


def expected(rank: int, world_size: int, case: tuple[int, int]) -> dict[str, Any]:
    """The row of the lab's schedule."""
    schedule = build("interleaved", world_size, case[0], case[1])
    return {"actions": [str(action) for action in schedule.rows[rank]]}
