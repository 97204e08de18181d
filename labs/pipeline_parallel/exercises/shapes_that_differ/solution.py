"""Send and receive shapes that differ."""

from __future__ import annotations

import torch
from torch import Tensor

from labs.comms import Comms

KINDS = (torch.float32, torch.int64)
MOST_DIMENSIONS = 4


def send_tensor(tensor: Tensor, comms: Comms, dst: int) -> None:
    """Send a header of type, number of dimensions and sizes, then the elements."""
    header = torch.zeros(2 + MOST_DIMENSIONS, dtype=torch.int64)
    header[0] = KINDS.index(tensor.dtype)
    header[1] = tensor.dim()
    header[2 : 2 + tensor.dim()] = torch.tensor(tensor.shape)
    comms.send(header, dst)
    comms.send(tensor.contiguous(), dst)


def recv_tensor(comms: Comms, src: int) -> Tensor:
    """Receive the header, make the buffer that it describes, receive into that."""
    header = torch.zeros(2 + MOST_DIMENSIONS, dtype=torch.int64)
    comms.recv(header, src)
    kind, dimensions, *sizes = header.tolist()
    tensor = torch.empty(sizes[:dimensions], dtype=KINDS[kind])
    comms.recv(tensor, src)
    return tensor
