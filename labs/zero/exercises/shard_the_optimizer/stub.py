"""Shard the optimizer (ZeRO-1)."""

from __future__ import annotations

from torch import Tensor

from labs.comms import Comms


def zero_step(
    parameters: Tensor, gradient: Tensor, momentum: Tensor, comms: Comms, lr: float, beta: float
) -> None:
    """Do one step of SGD with momentum, its state sharded over the ranks.

    Args:
        parameters: all of them, shape (n,), the same on every rank; W divides n. Changed in place.
        gradient: of this rank's part of the batch, shape (n,); may be overwritten.
        momentum: of this rank's shard only, shape (n/W,): elements rank n/W to (rank+1) n/W. Changed in
        place. comms: has `rank`, `world_size`, `reduce_scatter(output, total)` and `all_gather(output,
        piece)`. lr: learning rate.
        beta: how much of the old momentum stays: momentum = beta momentum + mean gradient.
    """
    raise NotImplementedError
