"""What arrives must be what was sent, whatever its shape and type."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.exercise_comms import WatchedComms

FUNCTIONS = ("send_tensor", "recv_tensor")
CASES = {
    "one shape for all, float32": ((4,), (4,), (4,)),
    "(1, 2) where (2,) would fit as well": ((1, 2), (2, 1), (1, 1, 2)),
    "shapes that grow": ((2,), (2, 3), (2, 1, 2, 2)),
    "int64 words and a transposed matrix": ((-3,), (2, 3, -1), (3, -2)),
}
"""A negative last size marks int64 (of that many elements); matrices are sent transposed."""
USUALLY = "The receiver needs type and shape before its buffer can be made: send them first, in a fixed size."


def run(yours: Any, comms: WatchedComms, case: tuple[tuple[int, ...], ...]) -> dict[str, Any]:
    """Down the line: each rank but the first receives, each but the last sends."""
    got = yours.recv_tensor(comms, comms.rank - 1) if comms.rank > 0 else None
    if comms.rank < comms.world_size - 1:
        yours.send_tensor(tensor_of(case[comms.rank]), comms, comms.rank + 1)
    return {"what arrived": got}


def expected(rank: int, world_size: int, case: tuple[tuple[int, ...], ...]) -> dict[str, Any]:
    """What the rank before sends."""
    return {"what arrived": tensor_of(case[rank - 1]) if rank > 0 else None}


def tensor_of(shape: tuple[int, ...]) -> Tensor:
    """A tensor that tells its elements apart; two dimensions: a transposed view."""
    kind = torch.int64 if shape[-1] < 0 else torch.float32
    sizes = [abs(size) for size in shape]
    if len(sizes) == 2:
        return torch.arange(1, sizes[0] * sizes[1] + 1, dtype=kind).view(sizes[1], sizes[0]).T
    return torch.arange(1, torch.Size(sizes).numel() + 1, dtype=kind).view(sizes)
