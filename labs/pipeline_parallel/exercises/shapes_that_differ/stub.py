"""Send and receive shapes that differ."""

from __future__ import annotations

from torch import Tensor

from labs.comms import Comms


def send_tensor(tensor: Tensor, comms: Comms, dst: int) -> None:
    """Send a tensor of any shape to rank `dst`, which calls `recv_tensor`.

    Args:
        tensor: float32 or int64, with one to four dimensions; it need not be contiguous.
        comms: has `send(tensor, dst)`, for contiguous tensors.
        dst: the receiving rank.
    """
    raise NotImplementedError


def recv_tensor(comms: Comms, src: int) -> Tensor:
    """Return the tensor that rank `src` sends: its shape, its type, its elements.

    `comms.recv(tensor, src)` fills a tensor that must have the size and type of the one that was sent.
    """
    raise NotImplementedError
