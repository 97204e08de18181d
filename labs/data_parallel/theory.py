"""What data parallelism must cost and compute, from its sizes alone. Pure functions; loads no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence

BYTES_FP32 = 4


def rows_of(rank: int, world_size: int, batch: int) -> tuple[int, int]:
    """Return (start, stop) of the rows of `rank`; the first `batch % world_size` ranks take one more."""
    rows, extra = divmod(batch, world_size)
    start = rank * rows + min(rank, extra)
    return start, start + rows + (rank < extra)


def loss_weight(rank: int, world_size: int, batch: int) -> float:
    """Return what a rank's mean loss is multiplied with before backward, for a plain mean over ranks to fit.

    The gradient of the whole batch is the sum over ranks of rows_r/batch x g_r; the mean over ranks is the
    sum of 1/W x g_r. So each local loss carries rows_r x W / batch: 1 where the batch divides evenly.
    """
    start, stop = rows_of(rank, world_size, batch)
    return (stop - start) * world_size / batch


def batch_loss(losses: Sequence[float], batch: int) -> float:
    """Return the mean loss over the whole batch from each rank's mean over its rows."""
    world_size = len(losses)
    weights = [loss_weight(rank, world_size, batch) for rank in range(world_size)]
    return sum(w * loss for w, loss in zip(weights, losses, strict=True)) / world_size


def mlp_size(dim: int, layers: int) -> tuple[int, int]:
    """Return (parameters, tensors) of the deep MLP: a (dim, dim) matrix a layer, no biases."""
    return layers * dim * dim, layers


def classifier_size(pixels: int, classes: int, dim: int, layers: int) -> tuple[int, int]:
    """Return (parameters, tensors) of the classifier: the deep MLP between two matrices with biases."""
    parameters, tensors = mlp_size(dim, layers)
    return parameters + (pixels + 1) * dim + (dim + 1) * classes, tensors + 4


def all_reduced_bytes(parameters: int, tensors: int, steps: int, flagged: bool = True) -> int:
    """Return S summed over a run's all-reduces: all fp32 gradients once a step, and a flag a tensor.

    PyTorch's DDP sends no flags. Nothing here depends on the batch, on the number of ranks, on how many
    batches are accumulated, or on autocast, which leaves gradients in fp32.
    """
    return steps * (parameters + tensors * flagged) * BYTES_FP32


def sent_bytes(payload: int, world_size: int) -> float:
    """Return what a rank sends for all-reduces of `payload` bytes: 2(W-1)/W of them, by a ring."""
    return 2 * (world_size - 1) / world_size * payload


def initial_loss(layers: int) -> float:
    """Return the mean square of the deep MLP's output on standard normal rows, for wide layers.

    Weights of variance 1/fan-in hand on the mean square q of their input, and GELU turns a normal of
    variance q into a mean square of E[gelu(sqrt(q) z)^2]. Four layers: 0.0131 (He et al. 2015).
    """
    mean_square = 1.0
    for _ in range(layers):
        mean_square = _through_gelu(mean_square)
    return mean_square


COMPARED_STEPS = 10
"""Steps that one process repeats. Training is chaotic: AdamW turns last bits into steps of another direction,
and sums of another order are a hundred times as far apart every ten or twenty steps."""
CLEARLY_AFTER = 40
"""Steps, those of a run by default, after which a model of examples must have learned clearly."""


def fresh_cross_entropy(classes: int, logit_variance: float = 0.0) -> float:
    """Return the cross entropy in nats of a model that has learned nothing.

    Guessing all classes alike costs ln(classes). Normal logits of variance v raise the mean of
    log-sum-exp by v/2, and are right by chance as often as wrong.
    """
    return math.log(classes) + logit_variance / 2


def _through_gelu(variance: float, points: int = 2001, reach: float = 8.0) -> float:
    """Integrate gelu(x)^2 against a normal density by the trapezium rule."""
    step = 2 * reach / (points - 1)
    total = 0.0
    for index in range(points):
        z = -reach + index * step
        x = math.sqrt(variance) * z
        gelu = 0.5 * x * (1 + math.erf(x / math.sqrt(2)))
        total += gelu * gelu * math.exp(-z * z / 2)
    return total * step / math.sqrt(2 * math.pi)
