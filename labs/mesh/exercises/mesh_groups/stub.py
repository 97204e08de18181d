"""The groups of a 2x4 and of a 3D mesh."""

from __future__ import annotations


def groups(shape: tuple[int, ...], axis: int) -> list[list[int]]:
    """Return the process groups of one axis of a mesh.

    Args:
        shape: sizes of the axes; the last axis varies fastest, so a (2, 4) mesh has rows of neighbouring
        ranks. axis: the axis along which the groups lie, from 0.

    Returns:
        the groups by their smallest rank, each in rising order.
    """
    raise NotImplementedError
