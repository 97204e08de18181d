"""The most bytes that tensors of this process held at once, counted at every operation.

The resident memory of a process says little about a small model: allocators keep what was freed. Here every
storage that an operation returns is remembered as long as it lives, and after each operation the sizes of
those that are left are summed; a storage that was resized counts with its size of the moment.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts while it is entered; what lived before is not known to it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._alive: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()
        self.peak = 0

    def reset(self) -> None:
        """Forget the peak, not what is alive."""
        self.peak = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation, then count; DTensors unfold into their local tensors first."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._alive.add(leaf.untyped_storage())
        self.peak = max(self.peak, sum(storage.nbytes() for storage in self._alive))
        return result
