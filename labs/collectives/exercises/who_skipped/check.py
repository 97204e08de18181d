"""Who skipped what, in runs made up so that the obvious answers are wrong."""

from __future__ import annotations

from typing import Any

from labs.exercise_comms import WatchedComms

FUNCTIONS = ("who_skipped",)
PROGRAM = ["all_reduce 64", "broadcast 8", "all_reduce 64", "all_gather 32", "all_reduce 64", "barrier 0"]
CASES = {
    "rank 1 skipped the broadcast": (1, 1, (5, 5, 5, 5)),
    "rank 0 skipped the all-gather": (0, 3, (5, 5, 5, 5)),
    "rank 2 skipped the last call": (2, 5, (6, 6, 6, 6)),
    "rank 3 skipped the broadcast and got farthest": (3, 1, (3, 2, 3, 6)),
    "rank 3 skipped the all-gather, rank 1 lags": (3, 3, (4, 2, 4, 6)),
}
"""The rank, the place, and how far in the program each rank got."""
USUALLY = "Find the first place where one rank's call differs from what the majority called there."


def run(yours: Any, comms: WatchedComms, case: tuple[int, int, tuple[int, ...]]) -> dict[str, Any]:
    """The learner's answer; every rank asks for itself."""
    got = yours.who_skipped(lists_of(case))
    if not isinstance(got, tuple) or len(got) != 2:
        return {"the rank that skipped": got}
    return {"the rank that skipped": got[0], "the place of the call": got[1]}


def expected(rank: int, world_size: int, case: tuple[int, int, tuple[int, ...]]) -> dict[str, Any]:
    """What was left out when the lists were made."""
    return {"the rank that skipped": case[0], "the place of the call": case[1]}


def lists_of(case: tuple[int, int, tuple[int, ...]]) -> list[list[str]]:
    """What each rank has called."""
    culprit, skipped, reached = case
    lists = [PROGRAM[:end] for end in reached]
    lists[culprit] = [call for place, call in enumerate(lists[culprit]) if place != skipped]
    return lists
