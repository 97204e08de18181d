"""The deep MLP that several labs train, square layers of a matrix and a GELU each, and a classifier of it.

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
    """Return the mean square of the output: the lecture's objective, about 0.013 at first for 4 layers.

    The mean is taken in fp32 whatever the output's dtype.
    """
    return output.float().square().mean()


class Classifier(nn.Module):
    """Pixels in, a logit a class out: `stem` to width `dim`, the deep MLP's layers, `head`.

    The head's weights are small (0.02), so that at first all classes are about equally likely.
    """

    def __init__(self, pixels: int, classes: int, dim: int, layers: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.stem = nn.Linear(pixels, dim)
        self.layers = nn.ModuleList(Layer(dim, generator) for _ in range(layers))
        self.head = nn.Linear(dim, classes)
        for linear, std in ((self.stem, pixels**-0.5), (self.head, 0.02)):
            nn.init.normal_(linear.weight, std=std, generator=generator)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, pixels) to (B, classes)."""
        x = F.gelu(self.stem(x))
        for layer in self.layers:
            x = layer(x)
        out: Tensor = self.head(x)
        return out


def class_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross entropy in nats, in fp32; logits (B, classes), integer labels (B,)."""
    return F.cross_entropy(logits.float(), labels)
