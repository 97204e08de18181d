"""Collectives from sends and receives alone, step by step: the ring and the binomial tree.

On the ring every rank sends to its right neighbour and receives from its left one in every step, so all links
are busy all the time and each carries S/W a step (Patarasuk and Yuan 2009). In the tree the number of ranks
that have the data doubles every step, so few steps suffice, but each carries all of S.
`told` is called after each step with its number and this rank's buffer, so that the way can be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from labs.comms import Comms

Told = Callable[[int, Tensor], None]
_COMBINE: dict[str, Callable[..., Tensor]] = {
    "sum": torch.add,
    "avg": torch.add,
    "min": torch.minimum,
    "max": torch.maximum,
    "product": torch.multiply,
}


def ring_reduce_scatter(comms: Comms, total: Tensor, reduce_op: str, told: Told) -> Tensor:
    """Return piece `rank` of all ranks' `total`s combined; `total` is overwritten with partial results."""
    pieces = list(torch.tensor_split(total, comms.world_size))
    _reduce_round(comms, total, pieces, reduce_op, told)
    mine = pieces[comms.rank]
    return mine / comms.world_size if reduce_op == "avg" else mine.clone()


def ring_all_gather(comms: Comms, output: Tensor, piece: Tensor, told: Told) -> None:
    """Lay every rank's `piece` into `output`, handing on round the ring what came last."""
    pieces = list(torch.tensor_split(output, comms.world_size))
    pieces[comms.rank].copy_(piece)
    _gather_round(comms, output, pieces, told, first_step=0)


def ring_all_reduce(comms: Comms, tensor: Tensor, reduce_op: str, told: Told) -> None:
    """Combine all ranks' tensors in place: once round to combine the pieces, once round to hand them out.

    A piece may be one element longer than another, or empty, where W does not divide the tensor.
    """
    pieces = list(torch.tensor_split(tensor, comms.world_size))
    _reduce_round(comms, tensor, pieces, reduce_op, told)
    if reduce_op == "avg":
        pieces[comms.rank].div_(comms.world_size)
    _gather_round(comms, tensor, pieces, told, first_step=comms.world_size - 1)


def _reduce_round(comms: Comms, whole: Tensor, pieces: Sequence[Tensor], reduce_op: str, told: Told) -> None:
    """After W-1 steps rank r holds piece r of the combination: each piece visits all ranks, its own last."""
    rank, world_size = comms.rank, comms.world_size
    for step in range(world_size - 1):
        leaving = pieces[(rank - 1 - step) % world_size]
        place = pieces[(rank - 2 - step) % world_size]
        arriving = torch.empty_like(place)
        _swap(comms, leaving, arriving)
        _COMBINE[reduce_op](place, arriving, out=place)
        told(step, whole)


def _gather_round(comms: Comms, whole: Tensor, pieces: Sequence[Tensor], told: Told, first_step: int) -> None:
    rank, world_size = comms.rank, comms.world_size
    for step in range(world_size - 1):
        _swap(comms, pieces[(rank - step) % world_size], pieces[(rank - 1 - step) % world_size])
        told(first_step + step, whole)


def _swap(comms: Comms, leaving: Tensor, arriving: Tensor) -> None:
    """Send right and receive from the left at once: in order, every rank would wait for the next."""
    right, left = (comms.rank + 1) % comms.world_size, (comms.rank - 1) % comms.world_size
    handles = comms.exchange(
        [(leaving, right)] if leaving.numel() else [], [(arriving, left)] if arriving.numel() else []
    )
    for handle in handles:
        handle.wait()


def tree_broadcast(comms: Comms, tensor: Tensor, root: int, told: Told) -> None:
    """Copy the root's tensor to all: in step k the 2^k ranks that have it send it to 2^k that do not."""
    place = (comms.rank - root) % comms.world_size
    for step in range((comms.world_size - 1).bit_length()):
        have = 1 << step
        if place < have and place + have < comms.world_size:
            comms.send(tensor, (comms.rank + have) % comms.world_size)
        elif have <= place < 2 * have:
            comms.recv(tensor, (comms.rank - have) % comms.world_size)
        told(step, tensor)


def tree_reduce(comms: Comms, tensor: Tensor, root: int, reduce_op: str, told: Told) -> None:
    """Combine all tensors into the root's: the tree of `tree_broadcast`, walked from its leaves."""
    place = (comms.rank - root) % comms.world_size
    rounds = (comms.world_size - 1).bit_length()
    for step in range(rounds):
        half = 1 << (rounds - 1 - step)
        if half <= place < 2 * half:
            comms.send(tensor, (comms.rank - half) % comms.world_size)
        elif place < half and place + half < comms.world_size:
            arriving = torch.empty_like(tensor)
            comms.recv(arriving, (comms.rank + half) % comms.world_size)
            _COMBINE[reduce_op](tensor, arriving, out=tensor)
        told(step, tensor)
    if reduce_op == "avg" and place == 0:
        tensor.div_(comms.world_size)
