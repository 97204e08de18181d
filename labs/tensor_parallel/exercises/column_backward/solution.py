"""Column parallel, backward."""

from __future__ import annotations

from torch import Tensor

from labs.comms import Comms


def column_backward(x: Tensor, weight: Tensor, grad_output: Tensor, comms: Comms) -> tuple[Tensor, Tensor]:
    """Return the gradients of x (summed over the ranks' terms) and of this rank's columns."""
    width = weight.shape[1]
    mine = grad_output[:, comms.rank * width : (comms.rank + 1) * width]
    grad_x = mine @ weight.T
    comms.all_reduce(grad_x)
    return grad_x, x.T @ mine
