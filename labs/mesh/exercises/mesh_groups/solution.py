"""The groups of a 2x4 and of a 3D mesh."""

from __future__ import annotations

import math


def groups(shape: tuple[int, ...], axis: int) -> list[list[int]]:
    """Return the process groups of one axis: from each rank at its beginning, in steps of its stride."""
    stride = math.prod(shape[axis + 1 :])
    size = shape[axis]
    firsts = [rank for rank in range(math.prod(shape)) if rank // stride % size == 0]
    return [[first + step * stride for step in range(size)] for first in firsts]
