"""Column parallel, backward."""

from __future__ import annotations

from torch import Tensor

from labs.comms import Comms


def column_backward(x: Tensor, weight: Tensor, grad_output: Tensor, comms: Comms) -> tuple[Tensor, Tensor]:
    """Return the gradients of a column-parallel layer whose output was all-gathered.

    Args:
        x: the layer's input, shape (B, m), the same on every rank.
        weight: this rank's columns, shape (m, n/W).
        grad_output: gradient of the whole output, shape (B, n), the same on every rank.
        comms: has `rank`, `world_size` and `all_reduce(tensor)`, which sums in place.

    Returns:
        the gradient of x, shape (B, m), whole on every rank; and of this rank's weight, shape (m, n/W).
    """
    raise NotImplementedError
