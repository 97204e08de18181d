"""What the groups of a mesh are: those of the mesh lab; of a 2x2 mesh they are used as well."""

from __future__ import annotations

from typing import Any

import torch

from labs.exercise_comms import WatchedComms
from labs.mesh.theory import groups_along

FUNCTIONS = ("groups",)
CASES = {
    "a 2x4 mesh": (2, 4),
    "a 2x2x2 mesh": (2, 2, 2),
    "a 2x3x4 mesh": (2, 3, 4),
    "a 2x2 mesh, in use": (2, 2),
}
USUALLY = "A group holds the ranks that differ in this one coordinate only: work out the step between them."


def run(yours: Any, comms: WatchedComms, case: tuple[int, ...]) -> dict[str, Any]:
    """The learner's groups of every axis; on a mesh of these ranks, the sums over them too."""
    found: dict[str, Any] = {f"groups of axis {axis}": yours.groups(case, axis) for axis in range(len(case))}
    if case == (2, 2) and list(found.values()) == [groups_along(axis, case) for axis in range(2)]:
        for axis in range(2):
            total = torch.tensor(float(comms.rank))
            comms.split(found[f"groups of axis {axis}"], f"axis {axis}").all_reduce(total)
            found[f"sum of the ranks along axis {axis}"] = total
    return found


def expected(rank: int, world_size: int, case: tuple[int, ...]) -> dict[str, Any]:
    """The groups by definition, and this rank's sums over them."""
    every = {axis: groups_along(axis, case) for axis in range(len(case))}
    wanted: dict[str, Any] = {f"groups of axis {axis}": groups for axis, groups in every.items()}
    if case == (2, 2):
        for axis, groups in every.items():
            mine = next(group for group in groups if rank in group)
            wanted[f"sum of the ranks along axis {axis}"] = torch.tensor(float(sum(mine)))
    return wanted
