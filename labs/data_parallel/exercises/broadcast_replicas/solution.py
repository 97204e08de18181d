"""Broadcast the replicas."""

from __future__ import annotations

import torch
from torch import nn

from labs.comms import Comms


def start_equal(module: nn.Module, comms: Comms) -> None:
    """Make every rank's module that of rank 0: parameters, frozen ones too, and buffers."""
    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            comms.broadcast(tensor.data, src=0)
