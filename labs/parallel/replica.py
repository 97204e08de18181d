"""What the data-parallel wrappers share: they start equal to rank 0 and keep the wrapped module's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from labs.comms import Comms
from labs.recorder import Mark


def broadcast_module(module: nn.Module, comms: Comms) -> None:
    """Copy rank 0's parameters and buffers to all, so that replicas seeded differently start equal."""
    _broadcast((*module.parameters(), *module.buffers()), comms)


def broadcast_buffers(module: nn.Module, comms: Comms) -> None:
    """Copy rank 0's buffers to all."""
    _broadcast(tuple(module.buffers()), comms)


def _broadcast(tensors: Sequence[Tensor], comms: Comms) -> None:
    for tensor in tensors:
        # A buffer may be an expanded view; a collective needs memory of its own.
        whole = tensor.detach().contiguous()
        comms.broadcast(whole, src=0)
        if whole.data_ptr() != tensor.data_ptr():
            with torch.no_grad():
                tensor.copy_(whole)


class Replica(nn.Module):
    """A replicated module. Its state dict is the wrapped module's own, so checkpoints fit either."""

    blocks_in_backward = False
    """Whether backward() returns only when all gradients are averaged."""

    def __init__(self, module: nn.Module, comms: Comms) -> None:
        super().__init__()
        self.module = module
        self.comms = comms
        broadcast_module(module, comms)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the wrapped module."""
        return self.module(*args, **kwargs)

    def no_sync(self) -> AbstractContextManager[None]:
        """Backwards inside only add to the local gradients. Here all do: nothing is sent before `finish`."""
        return nullcontext()

    def computed(self) -> Mark | None:
        """Return the moment in backward when the last gradients were sent off, None where none were then."""
        return None

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the wrapped module's state dict, under its names."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load a state dict with the wrapped module's names."""
        return self.module.load_state_dict(state_dict, strict, assign)
