"""Gather and free (FSDP)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from labs.comms import Comms


def forward_backward(shards: list[Tensor], x: Tensor, layer: Any, comms: Comms) -> list[Tensor]:
    """Run a forward and a backward of a model whose weights are sharded; return the shards' gradients.

    Args:
        shards: for each layer this rank's part of its flat weight, shape (n/W,); n = dim x dim.
        x: this rank's rows, shape (rows, dim).
        layer: has `forward(x, whole) -> output` and `backward(x, whole, grad_output) -> (grad_x,
        grad_whole)`,
            where `whole` is the flat weight, shape (n,), and x the layer's input.
        comms: has `rank`, `world_size`, `all_gather(output, piece)` and `reduce_scatter(output, total)`.

    Returns:
        for each shard the mean over the ranks of its gradient, shape (n/W,), in the order of `shards`.
    """
    raise NotImplementedError
