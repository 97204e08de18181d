"""What parameters, gradients and optimizer state take on each rank, and what a step sends, beside theory.

The ranks tell scalars in bytes named `<kind> <moment>`, such as `gradients before step`, and
`sent in a step`; rank 0 tells as metrics what theory says of each, `<kind>_<moment>_bytes_theory` and so on.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from launcher.events import AnyEvent, Scalar
from launcher.rundir import Manifest
from workbench.views.base import View

Kind = Literal["parameters", "gradients", "optimizer"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FULLEST = "before step"
"""The moment when gradients are there besides everything else."""
SENT = "sent in a step"


class Holding(msgspec.Struct, frozen=True):
    """One kind at one moment: bytes on the ranks with least and with most, and theory's (-1: not told)."""

    kind: Kind
    moment: str
    least: float
    most: float
    theory: float = -1


class RankMemory(msgspec.Struct, frozen=True):
    """What one rank holds before a step, by kind, in bytes."""

    rank: int
    bytes: dict[str, float]

    @property
    def total(self) -> float:
        """Bytes of all kinds."""
        return sum(self.bytes.values())


class MemorySnapshot(msgspec.Struct, frozen=True):
    """The moments in the order they were told; `sent` is of the rank that sends most, -1 while not told."""

    holdings: tuple[Holding, ...] = ()
    ranks: tuple[RankMemory, ...] = ()
    sent: float = -1
    sent_theory: float = -1
    over: bool = False


class MemoryView(View[MemorySnapshot]):
    """Takes scalars in bytes."""

    takes = (Scalar,)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._held: dict[tuple[str, Kind], dict[int, float]] = {}
        self._theory: dict[str, float] = {}
        self._sent: dict[int, float] = {}

    def fold(self, event: AnyEvent) -> None:
        """Remember a rank's newest bytes of a kind at a moment, or what theory says."""
        assert isinstance(event, Scalar)
        if event.unit != "B":
            return
        if event.name.endswith("_theory"):
            self._theory[event.name.removesuffix("_theory")] = event.value
        elif event.name == SENT:
            self._sent[event.rank] = event.value
        else:
            first, _, moment = event.name.partition(" ")
            for kind in KINDS:
                if first == kind and moment:
                    self._held.setdefault((moment, kind), {})[event.rank] = event.value

    def build(self) -> MemorySnapshot:
        """Return the table by moment and kind, and the ranks' sums."""
        return MemorySnapshot(
            holdings=tuple(
                Holding(
                    kind=kind,
                    moment=moment,
                    least=min(held.values()),
                    most=max(held.values()),
                    theory=self._theory.get(f"{kind} {moment} bytes".replace(" ", "_"), -1),
                )
                for (moment, kind), held in self._held.items()
            ),
            ranks=self._ranks(),
            sent=max(self._sent.values(), default=-1),
            sent_theory=self._theory.get("sent_bytes_per_step", -1),
            over=self.result is not None,
        )

    def _ranks(self) -> tuple[RankMemory, ...]:
        found: dict[int, dict[str, float]] = {}
        for kind in KINDS:
            for rank, size in self._held.get((FULLEST, kind), {}).items():
                found.setdefault(rank, {})[kind] = size
        return tuple(RankMemory(rank, found[rank]) for rank in sorted(found))
