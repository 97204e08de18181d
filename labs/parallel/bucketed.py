"""Data parallelism whose gradients travel in buckets while backward still runs.

Parameters are grouped into buckets in the order in which their gradients appear, the reverse of their use in
forward. The moment a bucket is full its all-reduce starts, and backward goes on with earlier layers:
communication hides behind computation. `finish` waits for what is left; call it between `backward()` and the
optimizer's step. The method is that of Li et al. 2020, "PyTorch Distributed", section 3.2.

A bucket ends with one flag a parameter, above 0 where this rank had a gradient. The same all-reduce that sums
the gradients sums the flags, so every rank learns, at no extra call, which parameters no rank used in this
step. Their `.grad` stays None, as in one process, and nobody waits for a gradient that never comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from labs.comms import Comms, Handle
from labs.parallel.flat_layout import FlatLayout, fill_buckets
from labs.parallel.replica import Replica
from labs.recorder import Mark

MEBIBYTE = 1 << 20


class Bucket:
    """A flat buffer for the gradients of some parameters (one dtype, one device), flags at its end."""

    def __init__(self, parameters: Sequence[nn.Parameter], indices: Sequence[int]) -> None:
        self.parameters = list(parameters)
        self.indices = list(indices)
        layout = FlatLayout.of(
            [(str(i), tuple(p.shape)) for i, p in zip(indices, parameters, strict=True)], 1
        )
        first = self.parameters[0]
        self.buffer = torch.zeros(layout.total + len(self.parameters), dtype=first.dtype, device=first.device)
        self.views = [self.buffer[slot.start : slot.stop].view(slot.shape) for slot in layout.slots]
        self.flags = self.buffer[layout.total :]
        self.handle: Handle | None = None
        self.open()

    def open(self) -> None:
        """Begin a step: no slot is filled, nothing is in flight."""
        self.filled = [False] * len(self.parameters)
        self.missing = len(self.parameters)
        self.handle = None

    def arrive(self, place: int) -> None:
        """Note that one parameter's gradient is there, or will not come in this step."""
        self.filled[place] = True
        self.missing -= 1

    def pack(self, scale: float) -> None:
        """Copy all gradients, times `scale`, into their slots; zeros and a flag of 0 where there is none."""
        gradients = [parameter.grad for parameter in self.parameters]
        if any(gradient is None for gradient in gradients):
            for view, gradient in zip(self.views, gradients, strict=True):
                if gradient is None:
                    view.zero_()
            self.flags.copy_(torch.tensor([float(gradient is not None) for gradient in gradients]))
        else:
            self.flags.fill_(1.0)
        there = [(v, g) for v, g in zip(self.views, gradients, strict=True) if g is not None]
        if there:
            # One call for all: a call for each, in the midst of backward, costs more than the copying.
            torch._foreach_copy_([view for view, _ in there], [gradient for _, gradient in there])
        self.buffer.mul_(scale)

    def give_back(self) -> None:
        """Point each `.grad` at its averaged slot; a parameter that no rank used keeps None."""
        used = None
        for place, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                used = self.flags.tolist() if used is None else used
                if not used[place]:
                    continue
            parameter.grad = self.views[place]


class BucketedDataParallel(Replica):
    """Wraps any module; every rank calls forward, backward, `finish`, and then its optimizer's step.

    Args:
        module: the module to replicate. Rank 0's parameters and buffers are broadcast at construction.
        comms: the communicator of the ranks that hold replicas.
        bucket_mb: the most MiB of gradients in a bucket; a larger parameter gets its own.

    The `.grad` of a parameter is, after `finish`, a view of its bucket, valid until the next backward.
    """

    def __init__(self, module: nn.Module, comms: Comms, bucket_mb: float = 25.0) -> None:
        super().__init__(module, comms)
        self._limit = max(1, int(bucket_mb * MEBIBYTE))
        self._trainable = [p for p in module.parameters() if p.requires_grad]
        self._frozen = [p for p in module.parameters() if not p.requires_grad]
        self._arrivals: list[int] | None = []
        self._synchronise = True
        self._build(list(reversed(range(len(self._trainable)))))
        for index, parameter in enumerate(self._trainable):
            parameter.register_post_accumulate_grad_hook(partial(self._arrived, index))  # type: ignore[no-untyped-call]

    @property
    def bucket_bytes(self) -> tuple[int, ...]:
        """Bytes of each bucket's all-reduce, flags included, in the order in which they start."""
        return tuple(bucket.buffer.nbytes for bucket in self.buckets)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backwards inside only add to the local gradients; the next one outside sends the sum."""
        before, self._synchronise = self._synchronise, False
        try:
            yield
        finally:
            self._synchronise = before

    def computed(self) -> Mark | None:
        """Return the moment when the last bucket was full, None where backward did not fill all."""
        handle = self.buckets[-1].handle if self.buckets else None
        return handle.start if handle is not None else None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the wrapped module.

        Raises:
            RuntimeError: the gradients of the previous backward were never finished.
        """
        if self._synchronise and torch.is_grad_enabled() and self._started():
            raise RuntimeError("call finish() after backward() and before the next forward()")
        return super().forward(*args, **kwargs)

    def finish(self) -> None:
        """Average what is not yet averaged and wait for all of it; afterwards every `.grad` is the mean.

        Raises:
            RuntimeError: a parameter that was frozen when the module was wrapped now wants a gradient.
        """
        if any(parameter.requires_grad for parameter in self._frozen):
            raise RuntimeError("a frozen parameter was unfrozen after wrapping: wrap the module again")
        for bucket in self.buckets:
            for place, filled in enumerate(bucket.filled):
                if not filled:
                    bucket.arrive(place)
        self._launch_ready()
        for bucket in self.buckets:
            assert bucket.handle is not None
            bucket.handle.wait()
            bucket.give_back()
            bucket.open()
        self._next = 0
        if self._arrivals is not None:
            self._follow_arrivals(self._arrivals)
            self._arrivals = None

    @property
    def _scale(self) -> float:
        return 1.0 / self.comms.world_size

    def _started(self) -> bool:
        return any(any(bucket.filled) for bucket in self.buckets)

    def _build(self, order: Sequence[int]) -> None:
        """Make the buckets: parameters in `order`, one dtype and one device a bucket."""
        self.buckets: list[Bucket] = []
        kinds: dict[tuple[torch.dtype, torch.device], list[int]] = {}
        for index in order:
            parameter = self._trainable[index]
            kinds.setdefault((parameter.dtype, parameter.device), []).append(index)
        for indices in kinds.values():
            sizes = [self._trainable[index].nbytes for index in indices]
            for members in fill_buckets(sizes, self._limit):
                chosen = [indices[member] for member in members]
                self.buckets.append(Bucket([self._trainable[i] for i in chosen], chosen))
        self._place = {
            index: (bucket, place) for bucket in self.buckets for place, index in enumerate(bucket.indices)
        }
        self._next = 0

    def _follow_arrivals(self, arrivals: list[int]) -> None:
        """After the first step, order the buckets as rank 0 saw the gradients appear.

        All ranks must start the same buckets in the same order, and ranks may see different orders; so rank 0
        decides. Parameters that had no gradient come last, where they hold nobody up.
        """
        seen = list(dict.fromkeys(arrivals))
        late = [index for index in range(len(self._trainable)) if index not in set(seen)]
        if not self._trainable:
            return
        order = torch.tensor(seen + late, dtype=torch.int64, device=self._trainable[0].device)
        self.comms.broadcast(order, src=0)
        # The gradients of this step live in the old buckets' buffers, which their views keep alive.
        self._build(order.tolist())

    def _arrived(self, index: int, _parameter: Tensor) -> None:
        """Autograd has added to this parameter's gradient: note it, and start what is full."""
        if not self._synchronise:
            return
        if self._arrivals is not None:
            self._arrivals.append(index)
        bucket, place = self._place[index]
        if bucket.filled[place]:
            raise RuntimeError(
                "a second gradient before finish(): run all but the last backward of a step in no_sync()"
            )
        bucket.arrive(place)
        self._launch_ready()

    def _launch_ready(self) -> None:
        """Start the all-reduce of each full bucket, strictly in order, so that all ranks agree on it."""
        while self._next < len(self.buckets) and not self.buckets[self._next].missing:
            bucket = self.buckets[self._next]
            bucket.pack(self._scale)
            bucket.handle = self.comms.all_reduce(bucket.buffer, async_op=True)
            self._next += 1
