"""What 1F1B is, on each rank: the order of the pipeline lab's own schedule."""

from __future__ import annotations

from typing import Any

from labs.exercise_comms import WatchedComms
from labs.parallel.schedules import build

FUNCTIONS = ("one_f_one_b",)
CASES = {"8 micro-batches": 8, "4 micro-batches": 4, "2 micro-batches": 2}
USUALLY = "Count the forwards before the first backward on each rank: the last rank has one, the first p."


def run(yours: Any, comms: WatchedComms, case: int) -> dict[str, Any]:
    """The learner's actions of this rank."""
    return {"actions": yours.one_f_one_b(comms.rank, comms.world_size, case)}


def expected(rank: int, world_size: int, case: int) -> dict[str, Any]:
    """The row of the lab's schedule."""
    return {"actions": [str(action) for action in build("1f1b", world_size, case).rows[rank]]}
