"""Wrong ways to put the two halves together."""

from __future__ import annotations

from torch import Tensor

from labs.comms import Comms


def averaged_instead_of_summed(comms: Comms, tensor: Tensor) -> None:
    """The result is W times too small: the reduce-scatter averaged, and a sum was asked for."""
    _halves(comms, tensor, "avg")


def gathered_what_was_never_reduced(comms: Comms, tensor: Tensor) -> None:
    """Each piece of the result is one rank's own: the pieces were gathered, but nobody had summed them."""
    size = -(-tensor.numel() // comms.world_size)
    whole = tensor.new_zeros(size * comms.world_size)
    whole[: tensor.numel()] = tensor
    piece = whole[comms.rank * size : (comms.rank + 1) * size].clone()
    comms.all_gather(whole, piece)
    tensor.copy_(whole[: tensor.numel()])


def cut_off_instead_of_padded(comms: Comms, tensor: Tensor) -> None:
    """The last elements stay as they were: n // W elements a piece leave a rest that no piece holds. Pad the
    tensor with zeros up to the next multiple of W."""
    _halves(comms, tensor[: tensor.numel() // comms.world_size * comms.world_size], "sum")


def the_library_call(comms: Comms, tensor: Tensor) -> None:
    """The sum is right, but it came from all_reduce itself: the exercise is to do it by its two halves."""
    comms.all_reduce(tensor)


def pieces_of_the_whole_length(comms: Comms, tensor: Tensor) -> None:
    """The pieces are as long as the tensor: a reduce-scatter wants a total of W pieces and leaves one of
    them."""
    piece = tensor.new_empty(tensor.numel())
    comms.reduce_scatter(piece, tensor)
    comms.all_gather(tensor, piece)


def _halves(comms: Comms, tensor: Tensor, op: str) -> None:
    size = -(-tensor.numel() // comms.world_size)
    whole = tensor.new_zeros(size * comms.world_size)
    whole[: tensor.numel()] = tensor
    piece = tensor.new_empty(size)
    comms.reduce_scatter(piece, whole, op)
    comms.all_gather(whole, piece)
    tensor.copy_(whole[: tensor.numel()])
