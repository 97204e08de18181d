"""The bytes that moved: each collective by group, with calls, bytes and time, and who waits for what."""

from __future__ import annotations

import msgspec

from launcher.events import AnyEvent, Phase, Span
from launcher.rundir import Manifest
from workbench.views.base import View


class Traffic(msgspec.Struct, frozen=True):
    """One operation in one group. Bytes and seconds are those of the rank with most of them."""

    name: str
    group: str
    num_ranks: int
    calls: int
    fewest_calls: int
    """Calls of the rank with fewest: where it is less than `calls`, some rank is behind or took no part."""
    bytes_call: int
    """Bytes of the newest call; -1 where the operation moves none."""
    bytes_rank: int
    mean_s: float
    total_s: float


class Pending(msgspec.Struct, frozen=True):
    """A rank that has been waiting in a collective."""

    rank: int
    name: str
    group: str
    seq: int


class CommunicationSnapshot(msgspec.Struct, frozen=True):
    """The table in the order of first use, and the ranks that wait."""

    rows: tuple[Traffic, ...] = ()
    pending: tuple[Pending, ...] = ()
    over: bool = False


class _Tally:
    def __init__(self) -> None:
        self.calls: dict[int, int] = {}
        self.bytes: dict[int, int] = {}
        self.ns: dict[int, int] = {}
        self.last_bytes = -1

    def add(self, span: Span) -> None:
        rank = span.rank
        self.calls[rank] = self.calls.get(rank, 0) + 1
        self.ns[rank] = self.ns.get(rank, 0) + span.t1 - span.t
        self.last_bytes = span.bytes
        if span.bytes >= 0:
            self.bytes[rank] = self.bytes.get(rank, 0) + span.bytes

    def row(self, name: str, group: str) -> Traffic:
        calls = self.calls.values()
        return Traffic(
            name=name,
            group=group,
            num_ranks=len(calls),
            calls=max(calls),
            fewest_calls=min(calls),
            bytes_call=self.last_bytes,
            bytes_rank=max(self.bytes.values(), default=-1),
            mean_s=sum(self.ns.values()) / sum(calls) / 1e9,
            total_s=max(self.ns.values()) / 1e9,
        )


class CommunicationView(View[CommunicationSnapshot]):
    """Takes spans of the lane `comm`, and the phases in which a rank says that it waits."""

    takes = (Span, Phase)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._tallies: dict[tuple[str, str], _Tally] = {}
        self._pending: dict[int, Pending] = {}

    def fold(self, event: AnyEvent) -> None:
        """Count a span; remember or forget who waits."""
        if isinstance(event, Span):
            if event.lane == "comm":
                self._tallies.setdefault((event.name, event.group), _Tally()).add(event)
        elif isinstance(event, Phase):
            self._pending.pop(event.rank, None)
            if event.phase == "waiting":
                self._pending[event.rank] = Pending(event.rank, event.name, event.group, event.seq)

    def build(self) -> CommunicationSnapshot:
        """Return the table."""
        return CommunicationSnapshot(
            rows=tuple(tally.row(*key) for key, tally in self._tallies.items()),
            pending=tuple(self._pending[rank] for rank in sorted(self._pending)),
            over=self.result is not None,
        )
