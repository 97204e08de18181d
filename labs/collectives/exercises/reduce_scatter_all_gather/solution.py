"""All-reduce from reduce-scatter and all-gather."""

from __future__ import annotations

from torch import Tensor

from labs.comms import Comms


def all_reduce(comms: Comms, tensor: Tensor) -> None:
    """Sum all ranks' tensors into everyone's, in place, padded with zeros to W equal pieces."""
    size = -(-tensor.numel() // comms.world_size)
    whole = tensor.new_zeros(size * comms.world_size)
    whole[: tensor.numel()] = tensor
    piece = tensor.new_empty(size)
    comms.reduce_scatter(piece, whole)
    comms.all_gather(whole, piece)
    tensor.copy_(whole[: tensor.numel()])
