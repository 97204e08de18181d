"""Wrong backwards of a column-parallel layer."""

from __future__ import annotations

import torch
from torch import Tensor

from labs.comms import Comms
from labs.tensor_parallel.exercises.column_backward.solution import column_backward as _right


def x_not_summed_over_the_ranks(
    x: Tensor, weight: Tensor, grad_output: Tensor, comms: Comms
) -> tuple[Tensor, Tensor]:
    """Each rank's gradient of x is only the term of its own columns. x went into every rank's product, so the
    terms have to be summed: one all-reduce, the one that Megatron calls f."""
    width = weight.shape[1]
    mine = grad_output[:, comms.rank * width : (comms.rank + 1) * width]
    return mine @ weight.T, x.T @ mine


def x_averaged_over_the_ranks(
    x: Tensor, weight: Tensor, grad_output: Tensor, comms: Comms
) -> tuple[Tensor, Tensor]:
    """The gradient of x is W times too small: its terms belong to different columns and are summed. An
    average is for replicas that did the same work on different rows."""
    grad_x, grad_weight = _right(x, weight, grad_output, comms)
    return grad_x / comms.world_size, grad_weight


def weight_summed_over_the_ranks(
    x: Tensor, weight: Tensor, grad_output: Tensor, comms: Comms
) -> tuple[Tensor, Tensor]:
    """You all-reduced the weight's gradient: but each rank holds other columns, and nobody else's gradient
    belongs to them."""
    grad_x, grad_weight = _right(x, weight, grad_output, comms)
    comms.all_reduce(grad_weight)
    return grad_x, grad_weight


def output_summed_before_it_was_cut(
    x: Tensor, weight: Tensor, grad_output: Tensor, comms: Comms
) -> tuple[Tensor, Tensor]:
    """Everything is W times too large: every rank has the same gradient of the whole output already, so
    summing it over the ranks (a reduce-scatter, as for partial sums) counts it W times."""
    total = grad_output.clone()
    comms.all_reduce(total)
    return _right(x, weight, total, comms)


def every_wth_column(x: Tensor, weight: Tensor, grad_output: Tensor, comms: Comms) -> tuple[Tensor, Tensor]:
    """The slices are neighbouring columns, r n/W to (r+1) n/W; you took every W-th one."""
    turned = torch.cat([grad_output[:, rank :: comms.world_size] for rank in range(comms.world_size)], 1)
    return _right(x, weight, turned, comms)
