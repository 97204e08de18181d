"""Ring all-reduce from send and recv."""

from __future__ import annotations

from torch import Tensor

from labs.comms import Comms


def ring_all_reduce(comms: Comms, tensor: Tensor) -> None:
    """Sum all ranks' tensors into everyone's, in place.

    Args:
        comms: has `rank`, `world_size`, `send(tensor, dst)`, `recv(tensor, src)`, and `isend`, `irecv`, which
            return a handle with `wait()`.
        tensor: shape (n,), float32; n is the same on every rank and need not be divisible by the world size.

    Send only to rank + 1, receive only from rank - 1 (round the ring), and send no more than 2(W-1)/W n
    elements where W divides n.
    """
    raise NotImplementedError
