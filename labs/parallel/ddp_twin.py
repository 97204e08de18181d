"""PyTorch's own `DistributedDataParallel` behind the interface of this package's wrappers, to compare with.

Its buckets and its overlap are PyTorch's. A communication hook stands where its all-reduce starts, divides
and all-reduces as its own default does, and so makes each bucket visible and counted. DDP waits for the
buckets inside backward, so `finish` finds them done.
"""

from __future__ import annotations

import inspect
import warnings
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from labs.comms import Comms, Handle
from labs.parallel.replica import broadcast_buffers
from labs.recorder import Mark

GROUP = "ddp"


class DistributedTwin(nn.Module):
    """Wraps any module in `DistributedDataParallel`; used like `BucketedDataParallel`.

    Args:
        module: the module to replicate. DDP broadcasts rank 0's parameters at construction.
        comms: the communicator of the ranks that hold replicas.
        bucket_mb: MiB of gradients after which a bucket is closed.
    """

    blocks_in_backward = True
    """backward() returns only when all buckets have arrived."""

    def __init__(self, module: nn.Module, comms: Comms, bucket_mb: float = 25.0) -> None:
        super().__init__()
        self.module = module
        self.comms = comms.over(_plain_group(comms), GROUP)
        broadcast_buffers(module, self.comms)
        options: dict[str, Any] = {"bucket_cap_mb": bucket_mb, _buffer_option(): False}
        with warnings.catch_warnings():
            # Below torch 2.13 the option for buffers that are never sent again has its old name.
            warnings.simplefilter("ignore", FutureWarning)
            self.ddp = DistributedDataParallel(module, process_group=self.comms.group, **options)
        self._handles: list[Handle] = []
        # DDP compares a hook's annotations as objects, and here they are strings: a lambda has none.
        self.ddp.register_comm_hook(None, lambda _state, bucket: self._all_reduce(bucket))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the wrapped module."""
        return self.ddp(*args, **kwargs)

    def no_sync(self) -> AbstractContextManager[None]:
        """Forwards and backwards inside only add to the local gradients."""
        context: AbstractContextManager[None] = self.ddp.no_sync()
        return context

    def computed(self) -> Mark | None:
        """Return the moment when the last bucket was full: backward's end but for the wait."""
        return self._handles[-1].start if self._handles else None

    def finish(self) -> None:
        """Note that every bucket has arrived."""
        for handle in self._handles:
            handle.wait()
        self._handles.clear()

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the wrapped module's state dict, under its names."""
        return self.module.state_dict(*args, **kwargs)

    def _all_reduce(self, bucket: Any) -> torch.futures.Future[Tensor]:
        """Start a bucket's all-reduce; DDP takes its mean gradients from the future."""
        buffer = bucket.buffer().div_(self.comms.world_size)
        handle = self.comms.all_reduce(buffer, async_op=True)
        assert handle is not None
        self._handles.append(handle)
        arrived: torch.futures.Future[Tensor] = handle.future().then(lambda done: done.value()[0])
        return arrived


def _plain_group(comms: Comms) -> dist.ProcessGroup:
    """Return a group of the same ranks made without debugging aids, under which DDP crashes on gloo."""
    level = dist.get_debug_level()  # type: ignore[attr-defined]
    dist.set_debug_level(dist.DebugLevel.OFF)  # type: ignore[attr-defined]
    try:
        group: dist.ProcessGroup = dist.new_group(comms.ranks)
        return group
    finally:
        dist.set_debug_level(level)  # type: ignore[attr-defined]


def _buffer_option() -> str:
    """Return the name of the option whether DDP broadcasts buffers before each forward."""
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    return "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
