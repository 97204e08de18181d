"""GPipe, with the backward."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from labs.comms import Comms


def gpipe(
    stage: nn.Module,
    inputs: list[Tensor],
    targets: list[Tensor],
    m: int,
    shape: tuple[int, ...],
    loss_function: Callable[[Tensor, Tensor], Tensor],
    comms: Comms,
) -> list[float]:
    """Run m micro-batches forward, then backward; gradients are left in the stage's parameters.

    Args:
        stage: this rank's part of the model; stage r is on rank r.
        inputs: the micro-batches, on rank 0; empty elsewhere.
        targets: what the last stage's outputs are compared with, on the last rank; empty elsewhere.
        m: how many micro-batches there are.
        shape: shape of every activation between stages, and so of its gradient; float32.
        loss_function: (output, target) -> the loss of one micro-batch.
        comms: has `rank`, `world_size`, `send(tensor, dst)` and `recv(tensor, src)`.

    Returns:
        the losses of the micro-batches on the last rank, an empty list elsewhere.
    """
    raise NotImplementedError
