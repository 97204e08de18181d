"""Wrong groups of a mesh."""

from __future__ import annotations

import math

from labs.mesh.exercises.mesh_groups.solution import groups as _right


def the_first_axis_fastest(shape: tuple[int, ...], axis: int) -> list[list[int]]:
    """You let the first axis vary fastest; the ranks lie on the grid in row-major order, the last axis
    fastest, so that its groups are neighbours."""
    return _right(shape[::-1], len(shape) - 1 - axis)


def the_axes_swapped(shape: tuple[int, ...], axis: int) -> list[list[int]]:
    """The groups of one axis are those of another: along axis 1 of a 2x4 mesh there are two rows of four."""
    return _right(shape, len(shape) - 1 - axis)


def runs_of_neighbours_for_every_axis(shape: tuple[int, ...], axis: int) -> list[list[int]]:
    """Every axis's groups are runs of neighbouring ranks; that holds for the last axis only. Along the
    others the ranks are apart by the product of the sizes behind."""
    size, world = shape[axis], math.prod(shape)
    return [list(range(first, first + size)) for first in range(0, world, size)]


def only_the_first_group(shape: tuple[int, ...], axis: int) -> list[list[int]]:
    """Only the group of rank 0 is there; an axis of size n makes W/n groups, and every rank is in one."""
    return _right(shape, axis)[:1]


def the_step_counts_one_axis_only(shape: tuple[int, ...], axis: int) -> list[list[int]]:
    """In two dimensions it is right, in three it is not: the step along an axis is the product of all the
    sizes behind it, and you took the next one only."""
    size, world = shape[axis], math.prod(shape)
    stride = shape[axis + 1] if axis + 1 < len(shape) else 1
    firsts = [rank for rank in range(world) if rank // stride % size == 0]
    return [[first + step * stride for step in range(size)] for first in firsts]
