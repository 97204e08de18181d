"""Wrong ring all-reduces, each named by what goes wrong."""

from __future__ import annotations

import torch
from torch import Tensor

from labs.collectives.exercises.ring_all_reduce.solution import pass_on
from labs.comms import Comms


def everyone_sends_first(comms: Comms, tensor: Tensor) -> None:
    """Every rank sends before it receives. A send returns only when the other side receives, and nobody gets
    there: begin the send with isend, receive, then wait for the send."""
    pieces = tensor.tensor_split(comms.world_size)
    for step in range(comms.world_size - 1):
        arriving = torch.empty_like(pieces[(comms.rank - step - 1) % comms.world_size])
        comms.send(pieces[(comms.rank - step) % comms.world_size], (comms.rank + 1) % comms.world_size)
        comms.recv(arriving, (comms.rank - 1) % comms.world_size)


def only_the_first_half(comms: Comms, tensor: Tensor) -> None:
    """Only the reduce-scatter was done: each rank holds one complete piece, and the all-gather that hands the
    pieces out is missing."""
    pieces = tensor.tensor_split(comms.world_size)
    for step in range(comms.world_size - 1):
        theirs = (comms.rank - step - 1) % comms.world_size
        pieces[theirs].add_(pass_on(comms, pieces, comms.rank - step, theirs))


def added_in_the_second_half(comms: Comms, tensor: Tensor) -> None:
    """In the second half the pieces that arrive are complete: they replace what is there, and you added
    them."""
    only_the_first_half(comms, tensor)
    pieces = tensor.tensor_split(comms.world_size)
    for step in range(comms.world_size - 1):
        theirs = (comms.rank - step) % comms.world_size
        pieces[theirs].add_(pass_on(comms, pieces, comms.rank - step + 1, theirs))


def second_half_from_the_wrong_piece(comms: Comms, tensor: Tensor) -> None:
    """After the first half the complete piece on rank r is r + 1, not r: the second half hands out pieces
    that are not complete."""
    only_the_first_half(comms, tensor)
    pieces = tensor.tensor_split(comms.world_size)
    for step in range(comms.world_size - 1):
        theirs = (comms.rank - step - 1) % comms.world_size
        pieces[theirs].copy_(pass_on(comms, pieces, comms.rank - step, theirs))


def whole_tensors_round_the_ring(comms: Comms, tensor: Tensor) -> None:
    """The sum is right, but you send the whole tensor W-1 times. Cut it into W pieces: each rank then sends
    2(W-1)/W of it, and no more with more ranks."""
    total, passing = tensor.clone(), (tensor,)
    for _ in range(comms.world_size - 1):
        passing = (pass_on(comms, passing * comms.world_size, 0, 0),)
        total += passing[0]
    tensor.copy_(total)


def one_step_short(comms: Comms, tensor: Tensor) -> None:
    """A ring of W ranks needs W-1 steps in each half; you do one less, so the sums lack the farthest rank."""
    pieces = tensor.tensor_split(comms.world_size)
    for step in range(comms.world_size - 2):
        theirs = (comms.rank - step - 1) % comms.world_size
        pieces[theirs].add_(pass_on(comms, pieces, comms.rank - step, theirs))
    for step in range(comms.world_size - 2):
        theirs = (comms.rank - step) % comms.world_size
        pieces[theirs].copy_(pass_on(comms, pieces, comms.rank - step + 1, theirs))


def the_library_call(comms: Comms, tensor: Tensor) -> None:
    """The sum is right, but it came from all_reduce itself: the exercise is to do it by sends to the
    right and receives from the left."""
    comms.all_reduce(tensor)
