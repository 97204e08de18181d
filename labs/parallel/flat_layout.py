"""Where parameters lie in one flat buffer, and which part of it each rank owns.

Buckets, the sharded optimizer and the fully sharded module all lay parameters end to end, pad the end so
that the buffer divides by the number of ranks, and give rank r the r-th part. This module is that arithmetic
alone; it touches no tensor and no process, so it is tested exhaustively.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod


@dataclass(frozen=True)
class Slot:
    """One parameter's place in the buffer: elements `start` to `start + numel`."""

    name: str
    shape: tuple[int, ...]
    start: int

    @cached_property
    def numel(self) -> int:
        """Elements of the parameter."""
        return prod(self.shape)

    @property
    def stop(self) -> int:
        """One past the parameter's last element in the buffer."""
        return self.start + self.numel


@dataclass(frozen=True)
class Piece:
    """What one part holds of one slot: elements `start` to `stop` of the flattened parameter.

    `offset` is where the piece lies in the part. A part that holds nothing of the slot has start == stop.
    """

    slot: int
    start: int
    stop: int
    offset: int

    @property
    def numel(self) -> int:
        """Elements of the piece, 0 where the part holds nothing of the parameter."""
        return self.stop - self.start


@dataclass(frozen=True)
class FlatLayout:
    """Parameters end to end, in order, cut into `parts` parts of equal size (the last ones padded)."""

    slots: tuple[Slot, ...]
    parts: int

    @classmethod
    def of(cls, named_shapes: Sequence[tuple[str, tuple[int, ...]]], parts: int) -> FlatLayout:
        """Lay the parameters out in the order given.

        Raises:
            ValueError: fewer than one part.
        """
        if parts < 1:
            raise ValueError(f"parts is {parts}; a buffer is cut into at least 1 part")
        slots: list[Slot] = []
        start = 0
        for name, shape in named_shapes:
            slots.append(Slot(name, tuple(shape), start))
            start = slots[-1].stop
        return cls(tuple(slots), parts)

    @property
    def total(self) -> int:
        """Elements of all parameters, without padding."""
        return self.slots[-1].stop if self.slots else 0

    @property
    def part(self) -> int:
        """Elements of one part: the total divided by the parts, rounded up."""
        return -(-self.total // self.parts)

    @property
    def padded(self) -> int:
        """Elements of the whole buffer, so that it divides evenly."""
        return self.part * self.parts

    def bounds(self, part: int) -> tuple[int, int]:
        """Return (start, stop) of a part in the padded buffer."""
        return part * self.part, (part + 1) * self.part

    def pieces(self, part: int) -> tuple[Piece, ...]:
        """Return what `part` holds of each slot, one piece a slot, empty ones included."""
        low, high = self.bounds(part)
        found = []
        for index, slot in enumerate(self.slots):
            start = min(max(low, slot.start), slot.stop)
            stop = max(min(high, slot.stop), start)
            offset = start - low if stop > start else 0
            found.append(Piece(index, start - slot.start, stop - slot.start, offset))
        return tuple(found)


def fill_buckets(sizes: Sequence[int], limit: int) -> list[list[int]]:
    """Group consecutive items into buckets of at most `limit` bytes (a larger item has its own bucket).

    Args:
        sizes: bytes of each item, in the order in which they become ready.
        limit: bytes a bucket, at least 1.

    Raises:
        ValueError: the limit is below one byte.
    """
    if limit < 1:
        raise ValueError(f"a bucket of {limit} bytes holds nothing; allowed: >= 1")
    buckets: list[list[int]] = []
    filled = 0
    for index, size in enumerate(sizes):
        if not buckets or filled + size > limit:
            buckets.append([])
            filled = 0
        buckets[-1].append(index)
        filled += size
    return buckets
