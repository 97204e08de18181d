"""The communication inside tensor-parallel layers, as autograd functions: each with the backward it needs.

One rule gives every backward. Write the loss as a function of what all ranks hold. A tensor is *whole* when
every rank holds the same value and the same gradient; *split* when each rank holds its own slice and that
slice's gradient; *partial* when the true value (or gradient) is the sum over ranks of what they hold. Then:

| operation | forward | used by | gradient arrives | backward |
|---|---|---|---|---|
| `copy_in` (f) | nothing: whole | each rank for its own part | partial | all-reduce |
| `sum_out` (g) | all-reduce: partial to whole | all alike | whole | nothing |
| `gather_for_parts` | all-gather: split to whole | each rank for its own part | partial | reduce-scatter |
| `gather_for_all` | all-gather: split to whole | all alike (the loss) | whole | own slice |
| `scatter_sum` | reduce-scatter: partial to split | each rank its slice | split | all-gather |

f and g are those of Shoeybi et al. 2019, "Megatron-LM", section 3. `gather_for_parts` over the sequence and
`scatter_sum` are g and its conjugate of Korthikanti et al. 2022, section 4.2. With `copy_in` behind
`gather_for_all` one gets the same gradient as by `gather_for_parts`: an all-reduce and a slice are a
reduce-scatter, at twice the bytes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

from labs.comms import Comms


def gather_along(piece: Tensor, dim: int, comms: Comms) -> Tensor:
    """All-gather slices along `dim`: (..., n/W, ...) on each rank to (..., n, ...) on all."""
    front = piece.movedim(dim, 0).contiguous()
    whole = front.new_empty(front.shape[0] * comms.world_size, *front.shape[1:])
    comms.all_gather(whole, front)
    return whole.movedim(0, dim)


def reduce_scatter_along(total: Tensor, dim: int, comms: Comms) -> Tensor:
    """Sum all ranks' tensors and keep this rank's slice along `dim`: (..., n, ...) to (..., n/W, ...)."""
    front = total.movedim(dim, 0).contiguous()
    piece = front.new_empty(front.shape[0] // comms.world_size, *front.shape[1:])
    comms.reduce_scatter(piece, front)
    return piece.movedim(0, dim)


def slice_along(whole: Tensor, dim: int, comms: Comms) -> Tensor:
    """Return this rank's slice along `dim`; moves no bytes."""
    size = whole.shape[dim] // comms.world_size
    return whole.narrow(dim, comms.rank * size, size)


class _CopyIn(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comms: Comms) -> Tensor:
        ctx.comms = comms
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        whole = gradients[0].contiguous().clone()
        ctx.comms.all_reduce(whole)
        return whole, None


class _SumOut(Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, comms: Comms) -> Tensor:
        whole = x.contiguous().clone()
        comms.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


class _GatherForParts(Function):
    @staticmethod
    def forward(ctx: Any, piece: Tensor, dim: int, comms: Comms) -> Tensor:
        ctx.dim, ctx.comms = dim, comms
        return gather_along(piece, dim, comms)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return reduce_scatter_along(gradients[0], ctx.dim, ctx.comms), None, None


class _GatherForAll(Function):
    @staticmethod
    def forward(ctx: Any, piece: Tensor, dim: int, comms: Comms) -> Tensor:
        ctx.dim, ctx.comms = dim, comms
        return gather_along(piece, dim, comms)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return slice_along(gradients[0], ctx.dim, ctx.comms).contiguous(), None, None


class _ScatterSum(Function):
    @staticmethod
    def forward(ctx: Any, total: Tensor, dim: int, comms: Comms) -> Tensor:
        ctx.dim, ctx.comms = dim, comms
        return reduce_scatter_along(total, dim, comms)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gather_along(gradients[0], ctx.dim, ctx.comms), None, None


def copy_in(x: Tensor, comms: Comms) -> Tensor:
    """f: hand a replicated tensor to this rank's part of the work; its gradient is summed over ranks."""
    out: Tensor = _CopyIn.apply(x, comms)  # type: ignore[no-untyped-call]
    return out


def sum_out(x: Tensor, comms: Comms) -> Tensor:
    """g: sum the ranks' partial results into one replicated tensor."""
    out: Tensor = _SumOut.apply(x, comms)  # type: ignore[no-untyped-call]
    return out


def gather_for_parts(piece: Tensor, dim: int, comms: Comms) -> Tensor:
    """All-gather slices along `dim` for ranks that each use the whole for their own part."""
    out: Tensor = _GatherForParts.apply(piece, dim, comms)  # type: ignore[no-untyped-call]
    return out


def gather_for_all(piece: Tensor, dim: int, comms: Comms) -> Tensor:
    """All-gather slices along `dim` for a computation that every rank repeats alike (the loss)."""
    out: Tensor = _GatherForAll.apply(piece, dim, comms)  # type: ignore[no-untyped-call]
    return out


def scatter_sum(total: Tensor, dim: int, comms: Comms) -> Tensor:
    """Reduce-scatter partial results along `dim`: each rank goes on with its slice of the sum."""
    out: Tensor = _ScatterSum.apply(total, dim, comms)  # type: ignore[no-untyped-call]
    return out


def split_cross_entropy(logits: Tensor, targets: Tensor, comms: Comms) -> Tensor:
    """Return the mean cross entropy (nats) of logits whose vocabulary is split over the ranks.

    Args:
        logits: this rank's columns, (N, V/W); rank r holds the words from r V/W on.
        targets: words, (N,), replicated.
        comms: the ranks that share the vocabulary.

    The logits are never gathered: two all-reduces of N numbers (the maximum; then the sum of exponentials and
    the target's own logit, 2 N) take the place of N V (Shoeybi et al. 2019, section 3, output embedding).
    The maximum only shifts, so it carries no gradient; the sums are g, whose backward moves nothing.
    """
    width = logits.shape[-1]
    local = targets - comms.rank * width
    mine = (local >= 0) & (local < width)
    with torch.no_grad():
        peak = logits.max(dim=-1).values
        comms.all_reduce(peak, op="max")
    shifted = logits - peak.unsqueeze(-1)
    own = shifted.gather(-1, local.clamp(0, width - 1).unsqueeze(-1)).squeeze(-1) * mine
    sums = sum_out(torch.stack((shifted.exp().sum(-1), own)), comms)
    return (sums[0].log() - sums[1]).mean()
