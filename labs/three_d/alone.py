"""What the mesh must equal: the same model on one process, trained on the whole batch; and that batch."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from labs.parallel.pipeline import Loss
from labs.text_data import ByteDataset, whole_batch
from labs.text_files import corpus
from labs.three_d.spec import ThreeDParams

Data = tuple[Tensor, Tensor]
"""Inputs and targets of a whole batch, over all replicas and micro-batches."""
TEXT_BYTES = 1 << 18


class Alone:
    """One process with the whole model. Its gradients stay until the next backward."""

    def __init__(self, model: nn.Module, loss: Loss, lr: float, max_norm: float) -> None:
        self.model = model
        self.start = [parameter.detach().clone() for parameter in model.parameters()]
        self._loss, self._max_norm = loss, max_norm
        self._optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    def backward(self, data: Data) -> float:
        """Return the whole batch's loss, its gradients computed."""
        inputs, targets = (tensor.to(next(self.model.parameters()).device) for tensor in data)
        self._optimizer.zero_grad()
        loss = self._loss(self.model(inputs), targets)
        torch.autograd.backward([loss])
        return float(loss.detach())

    def clip(self) -> float:
        """Clip the gradients as torch does on one process; return their norm before."""
        return float(nn.utils.clip_grad_norm_(self.model.parameters(), self._max_norm))

    def update(self) -> None:
        """Take the optimizer's step."""
        self._optimizer.step()

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The parameters by name; a tied one under each of its names."""
        return dict(self.model.named_parameters(remove_duplicate=False))

    @property
    def way(self) -> float:
        """How far the parameters went: the root of the summed squares."""
        pairs = zip(self.model.parameters(), self.start, strict=True)
        return math.sqrt(sum(float((a.detach() - b).double().square().sum()) for a, b in pairs))


def text_or_noise(seed: int, params: ThreeDParams) -> Callable[[int], Data]:
    """Return the whole batch of a step, the same on every rank: bytes of text, or rows for the mlp."""
    rows = params.dp * params.micro_batches * params.micro_batch_size
    if params.model == "mlp":

        def noise(step: int) -> Data:
            generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
            inputs = torch.randn(rows, params.dim, generator=generator)
            return inputs, torch.randn(rows, params.dim, generator=generator)

        return noise
    dataset = ByteDataset(corpus(limit=TEXT_BYTES), params.context)
    return lambda step: whole_batch(dataset, [(step * rows + row) % len(dataset) for row in range(rows)])


def share(whole: Tensor, replica: int, num_replicas: int) -> Tensor:
    """Return a replica's rows of a whole batch."""
    return whole.chunk(num_replicas)[replica]


def micro_batches_of(rows: Tensor, num_micro_batches: int) -> list[Tensor]:
    """Cut a replica's rows into micro-batches."""
    return list(rows.chunk(num_micro_batches))
