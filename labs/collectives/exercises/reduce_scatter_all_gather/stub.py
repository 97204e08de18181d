"""All-reduce from reduce-scatter and all-gather."""

from __future__ import annotations

from torch import Tensor

from labs.comms import Comms


def all_reduce(comms: Comms, tensor: Tensor) -> None:
    """Sum all ranks' tensors into everyone's, in place.

    Args:
        comms: has `rank`, `world_size`, `reduce_scatter(output, total)`: total of W pieces, output one piece;
            and `all_gather(output, piece)`: piece of this rank, output of W pieces.
        tensor: shape (n,), float32; n is the same on every rank and need not be divisible by the world size.
    """
    raise NotImplementedError
