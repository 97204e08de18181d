"""Data parallelism, plainly: average the gradients after backward, before the optimizer's step.

`NaiveDataParallel` all-reduces each parameter's gradient by itself and pays the latency of a collective for
each. `FlatDataParallel` lays all gradients end to end and pays it once. Both wait until backward is over;
`labs.parallel.bucketed` starts earlier. (Stanford CS336 2025, lecture 8; Li et al. 2020, "PyTorch
Distributed", section 3.2.1.)

The mean taken is plain, each rank weighing 1/W. Where ranks have unequal parts of a batch, multiply the local
mean loss by rows x W / batch before backward, and the mean over ranks is that of the whole batch.

A parameter may get no gradient in a step on some ranks or on all. Every rank must issue the same all-reduces
all the same, so a rank that has none sends zeros. One small all-reduce of flags tells which parameters any
rank used; those that none did keep `.grad` None, as in one process, and the optimizer leaves them alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from labs.parallel.replica import Replica


class _AveragingReplica(Replica, ABC):
    """Wraps any module. Every rank calls forward, backward, `finish`, and then its optimizer's step."""

    def finish(self) -> None:
        """Make every `.grad` the mean over ranks. Call between `backward()` and the optimizer's step.

        Returns when all ranks of the group have called it.
        """
        # In the order of the module, the same on every rank; a tied weight comes once.
        trainable = [p for p in self.module.parameters() if p.requires_grad]
        if not trainable:
            return
        used = torch.tensor(
            [p.grad is not None for p in trainable], dtype=torch.int32, device=trainable[0].device
        )
        self.comms.all_reduce(used, op="max")
        sent = [p for p, anybody in zip(trainable, used.tolist(), strict=True) if anybody]
        for parameter in sent:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self._average([p.grad for p in sent if p.grad is not None])

    @abstractmethod
    def _average(self, gradients: Sequence[Tensor]) -> None:
        """Replace each gradient by its mean over ranks, in place."""


class NaiveDataParallel(_AveragingReplica):
    """One all-reduce a parameter, in the module's order.

    Args:
        module: the module to replicate. Rank 0's parameters and buffers are broadcast at construction.
        comms: the communicator of the ranks that hold replicas.
    """

    def _average(self, gradients: Sequence[Tensor]) -> None:
        for gradient in gradients:
            whole = gradient.contiguous()
            self.comms.all_reduce(whole)
            gradient.copy_(whole.div_(self.comms.world_size))


class FlatDataParallel(_AveragingReplica):
    """One all-reduce of all gradients laid end to end (one a dtype and device where they differ).

    Args:
        module: the module to replicate. Rank 0's parameters and buffers are broadcast at construction.
        comms: the communicator of the ranks that hold replicas.
    """

    def _average(self, gradients: Sequence[Tensor]) -> None:
        kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for gradient in gradients:
            kinds.setdefault((gradient.dtype, gradient.device), []).append(gradient)
        for alike in kinds.values():
            flat = torch.cat([gradient.reshape(-1) for gradient in alike])
            self.comms.all_reduce(flat)
            flat.div_(self.comms.world_size)
            pieces = torch.split(flat, [gradient.numel() for gradient in alike])
            for gradient, piece in zip(alike, pieces, strict=True):
                gradient.copy_(piece.view_as(gradient))
