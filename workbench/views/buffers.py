"""Each rank's buffer before and after a collective, with where each element came from."""

from __future__ import annotations

import msgspec

from launcher.events import AnyEvent, Tensor
from launcher.rundir import Manifest
from workbench.views.base import View

MAX_BLOCKS = 64
COMBINED = -1
UNWRITTEN = -2


class Buffer(msgspec.Struct, frozen=True):
    """Values, and for each the rank it came from: -1 several combined, -2 never written."""

    values: tuple[float, ...]
    origin: tuple[int, ...]


class BufferRow(msgspec.Struct, frozen=True):
    """One rank's buffer at both moments; None where it was not told (yet)."""

    rank: int
    before: Buffer | None
    after: Buffer | None


class BufferBlock(msgspec.Struct, frozen=True):
    """One operation."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    rows: tuple[BufferRow, ...]


class BuffersSnapshot(msgspec.Struct, frozen=True):
    """The operations in the order they were told."""

    blocks: tuple[BufferBlock, ...] = ()
    over: bool = False


class BuffersView(View[BuffersSnapshot]):
    """Takes tensors that carry their values."""

    takes = (Tensor,)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._blocks: dict[str, dict[tuple[int, str], Tensor]] = {}

    def fold(self, event: AnyEvent) -> None:
        """Take one rank's buffer at one moment."""
        assert isinstance(event, Tensor)
        if event.values is None:
            return
        if event.name not in self._blocks and len(self._blocks) >= MAX_BLOCKS:
            del self._blocks[next(iter(self._blocks))]
        self._blocks.setdefault(event.name, {})[event.rank, event.moment] = event

    def build(self) -> BuffersSnapshot:
        """Return all operations."""
        blocks = tuple(self._block(name, found) for name, found in self._blocks.items())
        return BuffersSnapshot(blocks, self.result is not None)

    def _block(self, name: str, found: dict[tuple[int, str], Tensor]) -> BufferBlock:
        some = max(found.values(), key=lambda tensor: len(tensor.values or ()))
        ranks = sorted({rank for rank, _ in found})
        rows = tuple(
            BufferRow(rank, _buffer(found.get((rank, "before"))), _buffer(found.get((rank, "after"))))
            for rank in ranks
        )
        return BufferBlock(name, some.dtype, some.shape, rows)


def _buffer(tensor: Tensor | None) -> Buffer | None:
    """Where a rank tells no origin, its elements before the operation are its own."""
    if tensor is None or tensor.values is None:
        return None
    own = tensor.rank if tensor.moment == "before" else COMBINED
    origin = tensor.origin if tensor.origin is not None else [own] * len(tensor.values)
    return Buffer(tuple(tensor.values), tuple(origin))
