"""The model of the pipeline lab: residual layers, cut into stages that may differ in width, and its data."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Layer(nn.Module):
    """A residual layer of two matrices, x + B tanh(A x)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.outer(torch.tanh(self.inner(x)))
        return x + added


def build_stages(num_layers: int, num_stages: int, widths: Sequence[int], seed: int) -> list[nn.Sequential]:
    """Return the whole model as its stages; `widths` are taken in turn, a change of width ends its stage.

    The same seed gives the same weights on every rank, whatever its own random state, which is left as it
    was.
    """
    layers = num_layers // num_stages
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        stages = []
        for stage in range(num_stages):
            width, following = width_of(widths, stage), width_of(widths, stage + 1)
            modules: list[nn.Module] = [Layer(width) for _ in range(layers)]
            if following != width:
                modules.append(nn.Linear(width, following))
            stages.append(nn.Sequential(*modules))
    return stages


def width_of(widths: Sequence[int], stage: int) -> int:
    """Return the width that enters `stage`."""
    return widths[stage % len(widths)]


def batch(
    step: int, num_micro_batches: int, size: int, ends: tuple[int, int], seed: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the micro-batches' inputs (`size`, first width) and targets (`size`, last), everywhere alike."""
    first, last = ends
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    inputs = torch.randn(num_micro_batches * size, first, generator=generator)
    targets = torch.randn(num_micro_batches * size, last, generator=generator)
    return list(inputs.chunk(num_micro_batches)), list(targets.chunk(num_micro_batches))


class Alone:
    """One process that trains the whole model on whole batches: what the pipeline must equal."""

    def __init__(self, stages: Sequence[nn.Module], lr: float) -> None:
        self.stages = list(stages)
        self._model = nn.Sequential(*stages)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=lr)

    def step(self, inputs: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
        """Train on all micro-batches as one batch and return the loss; gradients stay until the next step."""
        self._optimizer.zero_grad()
        loss = nn.functional.mse_loss(self._model(torch.cat(list(inputs))), torch.cat(list(targets)))
        torch.autograd.backward([loss])
        return loss.detach()

    def update(self) -> None:
        """Take the optimizer's step."""
        self._optimizer.step()
