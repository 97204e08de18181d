"""What the groups of a mesh are: those of the mesh lab; those of a 4x1 mesh are used."""

from __future__ import annotations

from typing import Any

import torch

from labs.exercise_comms import WatchedComms
from labs.mesh.theory import groups_along

FUNCTIONS = ("groups",)
IN_USE = (4, 1)
CASES = {
    "a 4x1 mesh, in use": IN_USE,
    "a 2x4 mesh": (2, 4),
    "a 2x2x2 mesh": (2, 2, 2),
    "a 2x3x4 mesh": (2, 3, 4),
}
USUALLY = "A group holds the ranks that differ in this one coordinate only: work out the step between them."


def run(yours: Any, comms: WatchedComms, case: tuple[int, ...]) -> dict[str, Any]:
    """The learner's groups of every axis; on a mesh of these ranks, what an all-reduce over them makes."""
    groups = {axis: yours.groups(case, axis) for axis in range(len(case))}
    if case != IN_USE:
        return {f"groups of axis {axis}": found for axis, found in groups.items()}
    sums = {}
    for axis, found in groups.items():
        sums[axis] = torch.tensor(float(comms.rank))
        comms.split(found, f"axis {axis}").all_reduce(sums[axis])
    return {f"sum of the ranks along axis {axis}": total for axis, total in sums.items()}


def expected(rank: int, world_size: int, case: tuple[int, ...]) -> dict[str, Any]:
    """The groups by definition; on a mesh of these ranks, this rank's sums over them."""
    groups = {axis: groups_along(axis, case) for axis in range(len(case))}
    if case != IN_USE:
        return {f"groups of axis {axis}": wanted for axis, wanted in groups.items()}
    mine = {axis: next(g for g in found if rank in g) for axis, found in groups.items()}
    return {f"sum of the ranks along axis {axis}": float(sum(group)) for axis, group in mine.items()}
