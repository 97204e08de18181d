"""The deep MLP that several labs train: square layers, each a matrix and a GELU.

The model of Stanford CS336 2025, lecture 8, with one difference: there every layer is made from the same
seed and so all are equal; here each draws its own weights.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Layer(nn.Module):
    """gelu(x W) with W of shape (dim, dim), drawn with variance 1/fan-in so that depth does not explode."""

    def __init__(self, dim: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim, generator=generator) / dim**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """(B, dim) to (B, dim)."""
        return F.gelu(x @ self.weight)


class DeepMLP(nn.Module):
    """`layers` layers in a row. `seed` decides all weights; None draws them from torch's own generator."""

    def __init__(self, dim: int, layers: int, seed: int | None = None) -> None:
        super().__init__()
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        self.layers = nn.ModuleList(Layer(dim, generator) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        """(B, dim) to (B, dim)."""
        for layer in self.layers:
            x = layer(x)
        return x


def output_loss(output: Tensor) -> Tensor:
    """Return the mean square of the output: the lecture's objective, about 0.013 at first for 4 layers."""
    return output.square().mean()
