"""What a stage keeps between a micro-batch's forward and its backward, and how many bytes that is.

Either the autograd graph with all that it saved, or with `checkpoint` the input alone, from which the forward
is run again just before the backward: less memory for about a third more compute (Chen et al. 2016). The
bytes are counted as the graph saves and frees them, not computed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class _Held:
    """A tensor in the care of the graph; it goes when the graph frees it."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        # A node's own output would hold its graph, and the graph this: detached, the cycle is broken.
        self.tensor = tensor.detach()


class Meter:
    """Counts the bytes and the chunks that activations hold now, and their peak.

    A tensor saved twice counts once; parameters and buffers count nothing.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._own = {
            tensor.untyped_storage().data_ptr()
            for module in modules
            for tensor in (*module.parameters(), *module.buffers())
        }
        self._holders: dict[int, int] = {}
        self._chunks: dict[object, int] = {}
        self.bytes = self.peak_bytes = self.peak_chunks = 0

    def hooks(self, chunk: object) -> torch.autograd.graph.saved_tensors_hooks:
        """Return a context in which what the graph saves counts for `chunk`, any hashable name."""

        def pack(tensor: Tensor) -> _Held:
            held = _Held(tensor)
            self.hold(held, held.tensor, chunk)
            return held

        return torch.autograd.graph.saved_tensors_hooks(pack, lambda held: held.tensor)

    def hold(self, owner: object, tensor: Tensor, chunk: object) -> None:
        """Count `tensor` for `chunk` for as long as `owner` lives."""
        key, size = tensor.data_ptr(), tensor.nbytes
        if tensor.untyped_storage().data_ptr() in self._own or not size:
            return
        if key not in self._holders:
            self.bytes += size
        self._holders[key] = self._holders.get(key, 0) + 1
        self._chunks[chunk] = self._chunks.get(chunk, 0) + 1
        self.peak_bytes = max(self.peak_bytes, self.bytes)
        self.peak_chunks = max(self.peak_chunks, len(self._chunks))
        weakref.finalize(owner, self._free, key, size, chunk).atexit = False

    def _free(self, key: int, size: int, chunk: object) -> None:
        self._holders[key] -= 1
        if not self._holders[key]:
            del self._holders[key]
            self.bytes -= size
        self._chunks[chunk] -= 1
        if not self._chunks[chunk]:
            del self._chunks[chunk]


class Kept(NamedTuple):
    """One chunk's forward as its backward finds it: the leaf that entered and the output with its graph."""

    source: Tensor
    output: Tensor


class Checkpoint:
    """The input of a forward, and the state of the random numbers, from which to run it again."""

    def __init__(self, source: Tensor) -> None:
        self.source = source
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state(source.device) if source.is_cuda else None

    def again(self, forward: Callable[[Tensor], Tensor]) -> Tensor:
        """Run the forward with the random numbers that it had, so that dropout drops the same."""
        devices: list[Any] = [self.source.device] if self.source.is_cuda else []
        with torch.random.fork_rng(devices), torch.enable_grad():
            torch.set_rng_state(self._cpu)
            if self._cuda is not None:
                torch.cuda.set_rng_state(self._cuda, self.source.device)
            return forward(self.source)
