"""Flat buckets with unused parameters."""

from __future__ import annotations

from torch import nn

from labs.comms import Comms


def average_flat(module: nn.Module, comms: Comms) -> None:
    """Put the mean over the ranks into each parameter's `.grad`, with at most two collectives in all.

    Args:
        module: after backward; a parameter that this rank did not use has `.grad` None, and other ranks may
        have
            used it. One that no rank used keeps None everywhere.
        comms: has `rank`, `world_size` and `all_reduce(tensor)`, which sums in place.
    """
    raise NotImplementedError
