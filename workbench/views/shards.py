"""Who holds what: rows of the batch, parameters, gradients and optimizer states, as the ranks told it."""

from __future__ import annotations

import msgspec

from launcher.events import AnyEvent, Shard, ShardKind
from launcher.rundir import Manifest
from workbench.views.base import View

MAX_TENSORS = 512


class Piece(msgspec.Struct, frozen=True):
    """The part that one rank holds: per dimension (start, stop); `state` is held, gathered or freed."""

    rank: int
    slices: tuple[tuple[int, int], ...]
    state: str
    bytes: int
    note: str = ""
    """What the rank said of it, such as which examples it reads."""


class ShardGroup(msgspec.Struct, frozen=True):
    """Tensors of one kind that are spread over the ranks in the same way.

    `dim` is the dimension that is cut, -1 where every holder has all of it, -2 where several are cut.
    """

    kind: ShardKind
    names: tuple[str, ...]
    global_shape: tuple[int, ...]
    """Of the first tensor."""
    dim: int
    pieces: tuple[Piece, ...]
    """Of the first tensor."""
    bytes_rank: int
    """What the rank with most of it holds of all the tensors; -1 where not told."""


class ShardsSnapshot(msgspec.Struct, frozen=True):
    """The groups in the order the ranks told them; `hidden` tensors were over the bound."""

    groups: tuple[ShardGroup, ...] = ()
    hidden: int = 0
    over: bool = False


class ShardsView(View[ShardsSnapshot]):
    """Takes shards; the newest word of a rank on a tensor counts."""

    takes = (Shard,)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._tensors: dict[tuple[ShardKind, str], dict[int, Shard]] = {}
        self._hidden: set[tuple[ShardKind, str]] = set()

    def fold(self, event: AnyEvent) -> None:
        """Take one rank's word on one tensor."""
        assert isinstance(event, Shard)
        key = (event.kind, event.tensor)
        if key not in self._tensors and len(self._tensors) >= MAX_TENSORS:
            if len(self._hidden) < MAX_TENSORS:
                self._hidden.add(key)
            return
        self._tensors.setdefault(key, {})[event.rank] = event

    def build(self) -> ShardsSnapshot:
        """Return the tensors, those that are spread alike together."""
        alike: dict[object, list[tuple[str, dict[int, Shard]]]] = {}
        for (kind, name), shards in self._tensors.items():
            alike.setdefault((kind, *_layout(shards)), []).append((name, shards))
        groups = tuple(_group(members) for members in alike.values())
        return ShardsSnapshot(groups, len(self._hidden), self.result is not None)


def cut_dim(shards: dict[int, Shard]) -> int:
    """Return the dimension along which the pieces differ from the whole: -1 none, -2 several."""
    cut = {
        dim
        for shard in shards.values()
        for dim, ((start, stop), length) in enumerate(zip(shard.slices, shard.global_shape, strict=False))
        if (start, stop) != (0, length)
    }
    return -1 if not cut else cut.pop() if len(cut) == 1 else -2


def _layout(shards: dict[int, Shard]) -> tuple[object, ...]:
    """What two tensors have in common when one drawing shows both: holders, states, places of the cuts."""
    dim = cut_dim(shards)
    places = tuple((rank, shard.state, _fraction(shard, dim)) for rank, shard in sorted(shards.items()))
    several = tuple(shard.slices for shard in shards.values()) if dim == -2 else ()
    return dim, places, several


def _fraction(shard: Shard, dim: int) -> tuple[float, float]:
    if dim < 0 or not shard.global_shape[dim]:
        return (0.0, 1.0)
    start, stop = shard.slices[dim]
    length = shard.global_shape[dim]
    return (round(start / length, 3), round(stop / length, 3))


def _group(members: list[tuple[str, dict[int, Shard]]]) -> ShardGroup:
    _, first = members[0]
    some = next(iter(first.values()))
    told = all(shard.bytes >= 0 for _, shards in members for shard in shards.values())
    held: dict[int, int] = {}
    for _, shards in members:
        for rank, shard in shards.items():
            held[rank] = held.get(rank, 0) + shard.bytes
    return ShardGroup(
        kind=some.kind,
        names=tuple(name for name, _ in members),
        global_shape=some.global_shape,
        dim=cut_dim(first),
        pieces=tuple(
            Piece(rank, shard.slices, shard.state, shard.bytes, shard.note)
            for rank, shard in sorted(first.items())
        ),
        bytes_rank=max(held.values()) if told else -1,
    )
