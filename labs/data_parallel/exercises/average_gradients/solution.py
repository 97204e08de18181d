"""Average the gradients."""

from __future__ import annotations

from torch import nn

from labs.comms import Comms


def average_gradients(module: nn.Module, comms: Comms) -> None:
    """Put the mean over the ranks into each parameter's `.grad`: one all-reduce a parameter."""
    for parameter in module.parameters():
        if parameter.grad is not None:
            comms.all_reduce(parameter.grad)
            parameter.grad /= comms.world_size
