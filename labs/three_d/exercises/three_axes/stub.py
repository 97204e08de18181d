"""Put TP, PP and DP together."""

from __future__ import annotations

from torch import Tensor

from labs.comms import Comms
from labs.parallel.tensor_ops import copy_in, sum_out

f, g = copy_in, sum_out
"""f(tensor, comms) and g(tensor, comms) of the tensor-parallel exercises."""


def train_step(
    x: Tensor, column: Tensor, row: Tensor, shape: tuple[int, ...], tp: Comms, pp: Comms, dp: Comms
) -> float:
    """Do one forward and backward on three axes; the averaged gradients are left in `column` and `row`.

    Args:
        x: this replica's rows, of the given shape; used by the first stage (`pp.rank` 0) only.
        column: this rank's columns of the stage's first matrix, (dim, inner/2), a leaf with requires_grad.
        row: this rank's rows of the stage's second matrix, (inner/2, dim), a leaf with requires_grad.
        shape: of x, of the activation between the stages, and of its gradient.
        tp, pp, dp: communicators of the three axes, two ranks each, with `rank`, `world_size`, `send`, `recv`
            and `all_reduce`; ranks are counted inside of each.

    Returns:
        this replica's loss, the mean of the squared output, on the last stage; 0.0 on the first.
    """
    raise NotImplementedError
