"""What a device mesh must be, from its shape alone: coordinates, groups and links. Pure, torch-free.

A mesh lays ranks 0 .. W-1 on a grid in row-major order: the last axis varies fastest, so its groups are runs
of neighbouring ranks and stay inside a node as long as they fit. An axis's process groups are the lines of
the grid along that axis: all ranks that agree in every other coordinate.
(Deep Learning with PyTorch, 2nd ed., chapter 16; `torch.distributed.device_mesh`.)
"""

from __future__ import annotations

import itertools
import math

Groups = list[list[int]]


def parse_shape(text: str) -> tuple[int, ...]:
    """Read `2x4` as (2, 4).

    Raises:
        ValueError: the text is not whole numbers >= 1 joined by `x`.
    """
    parts = text.lower().split("x")
    if not all(part.isdecimal() and int(part) >= 1 for part in parts):
        raise ValueError(
            f"{text!r} is not a shape; allowed: whole numbers >= 1 joined by x, such as 2x4 or 2x2x2"
        )
    return tuple(int(part) for part in parts)


def parse_names(text: str) -> tuple[str, ...]:
    """Read `replicate,model_parallel` as two axis names.

    Raises:
        ValueError: a name is empty, not an identifier, or stands twice.
    """
    names = tuple(name.strip() for name in text.split(","))
    if not all(name.isidentifier() for name in names):
        raise ValueError(f"{text!r} is not a list of names; allowed: words joined by commas, such as dp,tp")
    if len(set(names)) != len(names):
        raise ValueError(f"{text!r} names an axis twice; every axis needs its own name")
    return names


def default_shape(world_size: int, num_axes: int = 2) -> tuple[int, ...]:
    """Return a shape for `world_size` ranks whose axes grow towards the last: 8 ranks give 2x4."""
    shape: list[int] = []
    rest = world_size
    for axes_left in range(num_axes, 1, -1):
        bound = int(round(rest ** (1 / axes_left), 9))
        size = max(divisor for divisor in range(1, bound + 1) if rest % divisor == 0)
        shape.append(size)
        rest //= size
    return (*shape, rest)


def coordinates(rank: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the place of `rank` on the grid, one coordinate an axis (row-major)."""
    place: list[int] = []
    for size in reversed(shape):
        rank, coordinate = divmod(rank, size)
        place.append(coordinate)
    return tuple(reversed(place))


def rank_at(place: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Return the rank at a place on the grid: the inverse of `coordinates`."""
    rank = 0
    for coordinate, size in zip(place, shape, strict=True):
        rank = rank * size + coordinate
    return rank


def groups_along(axis: int, shape: tuple[int, ...]) -> Groups:
    """Return the process groups of one axis: every line of the grid along it, each in rising rank order.

    An axis of size n on W ranks makes W/n groups of n ranks; 2x4 makes the rows [0-3] [4-7] along its last
    axis and the columns [0,4] [1,5] [2,6] [3,7] along its first: six groups in all.
    """
    others = [range(size) for index, size in enumerate(shape) if index != axis]
    return [
        [rank_at((*rest[:axis], step, *rest[axis:]), shape) for step in range(shape[axis])]
        for rest in itertools.product(*others)
    ]


def group_of(rank: int, axis: int, shape: tuple[int, ...]) -> list[int]:
    """Return the one group along `axis` that `rank` belongs to."""
    return next(group for group in groups_along(axis, shape) if rank in group)


def flattened_groups(axes: tuple[int, ...], shape: tuple[int, ...]) -> Groups:
    """Return the groups of several axes flattened into one: ranks that agree in all the other axes."""
    world = range(math.prod(shape))
    by_rest: dict[tuple[int, ...], list[int]] = {}
    for rank in world:
        place = coordinates(rank, shape)
        rest = tuple(c for index, c in enumerate(place) if index not in axes)
        by_rest.setdefault(rest, []).append(rank)
    return list(by_rest.values())


def num_groups(shape: tuple[int, ...]) -> int:
    """Return how many process groups all the axes make together: the sum of W/n."""
    return sum(math.prod(shape) // size for size in shape)


def crosses_nodes(group: list[int], ranks_per_node: int) -> bool:
    """Whether the group's ranks lie on more than one node, ranks being dealt to nodes in order."""
    return len({rank // ranks_per_node for rank in group}) > 1


def axes_that_cross(shape: tuple[int, ...], ranks_per_node: int) -> tuple[int, ...]:
    """Return the axes of which at least one group leaves its node: those pay for the slower link."""
    return tuple(
        axis
        for axis in range(len(shape))
        if any(crosses_nodes(group, ranks_per_node) for group in groups_along(axis, shape))
    )
