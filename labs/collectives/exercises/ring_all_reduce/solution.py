"""Ring all-reduce from send and recv."""

from __future__ import annotations

import torch
from torch import Tensor

from labs.comms import Comms


def ring_all_reduce(comms: Comms, tensor: Tensor) -> None:
    """Sum all ranks' tensors into everyone's, in place: a reduce-scatter and an all-gather round the ring."""
    pieces = tensor.tensor_split(comms.world_size)
    for step in range(comms.world_size - 1):
        theirs = (comms.rank - step - 1) % comms.world_size
        pieces[theirs].add_(pass_on(comms, pieces, comms.rank - step, theirs))
    for step in range(comms.world_size - 1):
        theirs = (comms.rank - step) % comms.world_size
        pieces[theirs].copy_(pass_on(comms, pieces, comms.rank - step + 1, theirs))


def pass_on(comms: Comms, pieces: tuple[Tensor, ...], mine: int, theirs: int) -> Tensor:
    """Send piece `mine` to the right and return piece `theirs`, which comes from the left."""
    arriving = torch.empty_like(pieces[theirs])
    sending = comms.isend(pieces[mine % comms.world_size], (comms.rank + 1) % comms.world_size)
    comms.recv(arriving, (comms.rank - 1) % comms.world_size)
    sending.wait()
    return arriving
