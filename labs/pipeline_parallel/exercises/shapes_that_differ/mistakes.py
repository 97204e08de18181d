"""Wrong ways to send what the other side does not know."""

from __future__ import annotations

import torch
from torch import Tensor

from labs.comms import Comms
from labs.pipeline_parallel.exercises.shapes_that_differ.solution import KINDS as _KINDS


class a_buffer_of_a_fixed_shape:  # noqa: N801
    """The receiver's buffer has a shape of its own, whatever is sent. With as many elements it works by
    luck, and the shape is lost; with another number gloo gives wrong data or ends the process."""

    @staticmethod
    def send_tensor(tensor: Tensor, comms: Comms, dst: int) -> None:
        """Send the elements only."""
        comms.send(tensor.contiguous(), dst)

    @staticmethod
    def recv_tensor(comms: Comms, src: int) -> Tensor:
        """Receive into four elements."""
        tensor = torch.empty(4)
        comms.recv(tensor, src)
        return tensor


class only_the_number_of_elements:  # noqa: N801
    """The receiver learns how many elements come, and not in which shape: all tensors arrive flat."""

    @staticmethod
    def send_tensor(tensor: Tensor, comms: Comms, dst: int) -> None:
        """Send the count, then the elements."""
        comms.send(torch.tensor([tensor.numel()]), dst)
        comms.send(tensor.contiguous(), dst)

    @staticmethod
    def recv_tensor(comms: Comms, src: int) -> Tensor:
        """Receive the count, then so many."""
        count = torch.zeros(1, dtype=torch.int64)
        comms.recv(count, src)
        tensor = torch.empty(int(count))
        comms.recv(tensor, src)
        return tensor


class a_header_as_long_as_the_shape:  # noqa: N801
    """The header is as long as the shape, so its own size is what the receiver does not know: give it a
    fixed size with room for four dimensions, or send the number of dimensions first."""

    @staticmethod
    def send_tensor(tensor: Tensor, comms: Comms, dst: int) -> None:
        """Send the shape, then the elements."""
        comms.send(torch.tensor(tensor.shape), dst)
        comms.send(tensor.contiguous(), dst)

    @staticmethod
    def recv_tensor(comms: Comms, src: int) -> Tensor:
        """Receive one size, then so many elements."""
        shape = torch.zeros(1, dtype=torch.int64)
        comms.recv(shape, src)
        tensor = torch.empty(shape.tolist())
        comms.recv(tensor, src)
        return tensor


class the_type_not_told:  # noqa: N801
    """The shape is told and the type is not: int64 words are received into float32, half their bytes wide."""

    @staticmethod
    def recv_tensor(comms: Comms, src: int) -> Tensor:
        """Receive the header, and float32 whatever it says."""
        header = torch.zeros(6, dtype=torch.int64)
        comms.recv(header, src)
        _kind, dimensions, *sizes = header.tolist()
        tensor = torch.empty(sizes[:dimensions])
        comms.recv(tensor, src)
        return tensor


class elements_in_the_order_of_memory:  # noqa: N801
    """The shape is right and the elements of a transposed tensor are out of place: it was sent as it lies in
    memory. Make it contiguous first."""

    @staticmethod
    def send_tensor(tensor: Tensor, comms: Comms, dst: int) -> None:
        """Send the header, then the storage."""
        header = torch.zeros(6, dtype=torch.int64)
        header[0], header[1] = _KINDS.index(tensor.dtype), tensor.dim()
        header[2 : 2 + tensor.dim()] = torch.tensor(tensor.shape)
        comms.send(header, dst)
        comms.send(torch.as_strided(tensor, (tensor.numel(),), (1,)), dst)


class the_header_is_never_received:  # noqa: N801
    """The sender sends two messages and the receiver takes one: it has the header in place of the tensor,
    or waits where nobody sends."""

    @staticmethod
    def recv_tensor(comms: Comms, src: int) -> Tensor:
        """Receive once."""
        tensor = torch.empty(6, dtype=torch.int64)
        comms.recv(tensor, src)
        return tensor
