"""Tensor parallelism: layers whose weight matrices are split over the ranks of a group.

Every layer here takes its slice out of one full layer, after rank 0's values have been broadcast, so the
split model is the same function as the full one whatever seeds the ranks had. Drawing each slice by itself
from one seed would make all slices equal, and a check would pass or fail for the wrong reason.

`ColumnParallelLinear` and `RowParallelLinear` are the pair of Shoeybi et al. 2019: columns first, so that a
nonlinearity acts on whole features, rows second, so that one sum at the end is all the communication.
With `sequence` they exchange the replicated activations between the pairs for slices of the sequence
(Korthikanti et al. 2022): the same bytes, activations 1/W in size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.comms import Comms
from labs.parallel.tensor_ops import copy_in, gather_for_parts, scatter_sum, slice_along, sum_out

SEQUENCE = 1
"""The dimension of activations (B, S, D) that sequence parallelism splits."""


def enter(x: Tensor, comms: Comms, sequence: bool = False) -> Tensor:
    """Bring activations, whole or (with `sequence`) slices (B, S/W, D), to column-parallel layers."""
    return gather_for_parts(x, SEQUENCE, comms) if sequence else copy_in(x, comms)


class Split(nn.Module):
    """A layer that holds a slice of a full one; `split_dims` says along which dimension, by parameter."""

    def __init__(self, comms: Comms) -> None:
        super().__init__()
        self.comms = comms
        self.split_dims: dict[str, int] = {}

    def take(self, name: str, full: Tensor | None, dim: int) -> None:
        """Register this rank's slice of `full` as the parameter `name`.

        Raises:
            ValueError: the dimension does not divide among the ranks.
        """
        if full is None:
            self.register_parameter(name, None)
            return
        if full.shape[dim] % self.comms.world_size:
            raise ValueError(
                f"{name}: {full.shape[dim]} along dimension {dim} does not divide among "
                f"{self.comms.world_size} ranks"
            )
        piece = slice_along(full.detach(), dim, self.comms).clone()
        requires_grad = full.requires_grad if isinstance(full, nn.Parameter) else True
        self.register_parameter(name, nn.Parameter(piece, requires_grad))
        self.split_dims[name] = dim


class ColumnParallelLinear(Split):
    """y_r = x W_r^T: each rank computes its own output features; (..., in) to (..., out/W).

    Args:
        full: the whole layer, equal on all ranks.
        comms: the ranks that share it.
        sequence: the input is this rank's slice of the sequence, gathered here.
        entered: the input has been through `enter` already, together with that of other layers.
    """

    def __init__(self, full: nn.Linear, comms: Comms, sequence: bool = False, entered: bool = False) -> None:
        super().__init__(comms)
        self.sequence = sequence
        self.entered = entered
        self.take("weight", full.weight, 0)
        self.take("bias", full.bias, 0)

    weight: nn.Parameter
    bias: nn.Parameter | None

    def forward(self, x: Tensor) -> Tensor:
        """Apply the slice; the input's gradient is summed over the ranks on its way back."""
        if not self.entered:
            x = enter(x, self.comms, self.sequence)
        return F.linear(x, self.weight, self.bias)


class RowParallelLinear(Split):
    """y = sum over ranks of x_r W_r^T: each rank has its own input features; (..., in/W) to (..., out).

    The bias is whole on every rank and added once, after the sum. With `sequence` the sum is scattered and
    each rank adds the bias to its slice alone: its gradient is then partial (see `partial_parameters`).
    """

    def __init__(self, full: nn.Linear, comms: Comms, sequence: bool = False) -> None:
        super().__init__(comms)
        self.sequence = sequence
        self.take("weight", full.weight, 1)
        self.bias = None if full.bias is None else nn.Parameter(full.bias.detach().clone())

    weight: nn.Parameter

    def forward(self, x: Tensor) -> Tensor:
        """Apply the slice and sum: all bytes of the pair move here, once."""
        partial = F.linear(x, self.weight)
        y = scatter_sum(partial, SEQUENCE, self.comms) if self.sequence else sum_out(partial, self.comms)
        return y if self.bias is None else y + self.bias


class VocabParallelEmbedding(Split):
    """Each rank holds the vectors of its words; (B, S) words to (B, S, D), or (B, S/W, D) with `sequence`.

    A word that another rank holds gives zeros here, and the sum over ranks has the vector.
    """

    def __init__(self, full: nn.Embedding, comms: Comms, sequence: bool = False) -> None:
        super().__init__(comms)
        self.sequence = sequence
        self.take("weight", full.weight, 0)

    weight: nn.Parameter

    def forward(self, words: Tensor) -> Tensor:
        """Look the words up and sum over the ranks."""
        num_own = self.weight.shape[0]
        local = words - self.comms.rank * num_own
        mine = (local >= 0) & (local < num_own)
        partial = F.embedding(local.clamp(0, num_own - 1), self.weight) * mine.unsqueeze(-1)
        if self.sequence:
            return scatter_sum(partial, SEQUENCE, self.comms)
        return sum_out(partial, self.comms)


def local(tensor: Tensor) -> Tensor:
    """Return what this rank holds of a tensor: of a DTensor its local part, of any other all of it."""
    held: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return held


def slices_of(module: nn.Module) -> dict[str, int]:
    """Return, by parameter name, the dimension along which a split model's parameters are split."""
    found: dict[str, int] = {}
    for prefix, layer in module.named_modules():
        if isinstance(layer, Split):
            for name, dim in layer.split_dims.items():
                found[f"{prefix}.{name}" if prefix else name] = dim
    return found


def partial_parameters(module: nn.Module, sequence: bool) -> list[nn.Parameter]:
    """Return the whole parameters whose gradients are partial: those that act on slices of the sequence."""
    if not sequence:
        return []
    split = slices_of(module)
    return [p for name, p in module.named_parameters() if name not in split and p.requires_grad]


def finish_partial_gradients(module: nn.Module, comms: Comms, sequence: bool) -> None:
    """Sum the partial gradients (norms and biases on sequence slices) over the ranks, in one all-reduce.

    Call between backward and the optimizer's step. A parameter without gradient on this rank sends zeros.
    """
    parameters = partial_parameters(module, sequence)
    if not parameters:
        return
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    comms.all_reduce(flat)
    pieces = torch.split(flat, [p.numel() for p in parameters])
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.grad = piece.view_as(parameter).clone()
