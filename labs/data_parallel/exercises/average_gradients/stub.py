"""Average the gradients."""

from __future__ import annotations

from torch import nn

from labs.comms import Comms


def average_gradients(module: nn.Module, comms: Comms) -> None:
    """Put the mean over the ranks into each parameter's `.grad`, in place.

    Args:
        module: after backward; the `.grad` of a parameter that was not used is None, on all ranks alike.
        comms: has `rank`, `world_size` and `all_reduce(tensor, op)` with op `sum` or `avg`, in place.
    """
    raise NotImplementedError
