"""Find the straggler."""

from __future__ import annotations

from torch import Tensor

from labs.comms import Comms


def find_the_straggler(computed: Tensor, comms: Comms) -> tuple[int, float]:
    """Return the rank that holds the others up, and what that costs; the same on every rank.

    Args:
        computed: seconds that this rank computed in each step before the all-reduce, shape (steps,).
        comms: has `rank`, `world_size` and `all_gather(output, piece)`.

    Returns:
        the rank that was slowest in most of the steps; and the seconds that all ranks together waited for the
        slowest of a step, on average over the steps.
    """
    raise NotImplementedError
