"""What a fully sharded forward and backward must come to: one process's gradients, one whole layer at a
time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.exercise_comms import WatchedComms

FUNCTIONS = ("forward_backward",)
DIM, ROWS = 4, 2
CASES = {"3 layers": 3}
USUALLY = "Gather, run, let go; in backward the last layer first, and reduce-scatter each gradient once."


class Layer:
    """tanh(x W) by hand, so that what is alive is up to the caller; counts the gathered weights alive."""

    def __init__(self, comms: WatchedComms | None = None) -> None:
        self.comms = comms
        self.most = 0

    def forward(self, x: Tensor, whole: Tensor) -> Tensor:
        """(rows, dim) and (dim x dim,) to (rows, dim)."""
        self._look()
        return torch.tanh(x @ whole.view(DIM, DIM))

    def backward(self, x: Tensor, whole: Tensor, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of x and of the flat weight."""
        self._look()
        inner = grad_output * (1 - torch.tanh(x @ whole.view(DIM, DIM)).square())
        return inner @ whole.view(DIM, DIM).T, (x.T @ inner).reshape(-1)

    def _look(self) -> None:
        if self.comms is not None:
            self.most = max(self.most, self.comms.journal.gathered_alive())


def run(yours: Any, comms: WatchedComms, case: int) -> dict[str, Any]:
    """The learner's function on this rank's shards and rows."""
    size = DIM * DIM // comms.world_size
    shards = [weight[comms.rank * size :][:size].clone() for weight in weights(case)]
    layer = Layer(comms)
    rows = batch(comms.world_size)[comms.rank * ROWS : (comms.rank + 1) * ROWS]
    gradients = yours.forward_backward(shards, rows, layer, comms)
    return {
        "gradients of the shards": gradients,
        "the calls": comms.journal.ops(),
        "whole weights alive at once": layer.most,
    }


def expected(rank: int, world_size: int, case: int) -> dict[str, Any]:
    """Forward and backward of the whole batch in one process: the mean over the ranks' rows."""
    layer, x, inputs = Layer(), batch(world_size), []
    for weight in weights(case):
        inputs.append(x)
        x = layer.forward(x, weight)
    gradients: list[Tensor] = []
    grad = x / x.numel()
    for weight, entered in zip(reversed(weights(case)), reversed(inputs), strict=True):
        grad, whole = layer.backward(entered, weight, grad)
        size = whole.numel() // world_size
        gradients.insert(0, whole[rank * size : (rank + 1) * size])
    return {
        "gradients of the shards": gradients,
        "the calls": ["all_gather"] * case + ["all_gather", "reduce_scatter"] * case,
        "whole weights alive at once": 1,
    }


def weights(layers: int) -> list[Tensor]:
    """The whole flat weights, the same on every rank."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(DIM * DIM, generator=generator) / DIM**0.5 for _ in range(layers)]


def batch(world_size: int) -> Tensor:
    """The whole batch."""
    return torch.randn(world_size * ROWS, DIM, generator=torch.Generator().manual_seed(2))
