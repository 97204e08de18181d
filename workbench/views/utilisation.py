"""What the run costs the machine: CPU and memory of each rank and node, and the GPUs where there are any."""

from __future__ import annotations

from collections import deque

import msgspec

from launcher.events import AnyEvent, GpuSample, Sample
from launcher.rundir import Manifest
from workbench.views.base import View

HISTORY = 48


class RankUse(msgspec.Struct, frozen=True):
    """One rank: percent of one core now and before, resident bytes, its GPU and what it holds there."""

    rank: int
    cpu_percent: float
    history: tuple[float, ...]
    rss: int
    gpu: int | None
    gpu_memory: int | None


class NodeUse(msgspec.Struct, frozen=True):
    """One node, with its GPUs."""

    node: str
    cpu_percent: float
    cores: int
    memory_used: int
    memory_total: int
    gpus: tuple[GpuSample, ...]
    note: str


class UtilisationSnapshot(msgspec.Struct, frozen=True):
    """The newest sample of each node, and the ranks in order."""

    nodes: tuple[NodeUse, ...] = ()
    ranks: tuple[RankUse, ...] = ()
    over: bool = False


class UtilisationView(View[UtilisationSnapshot]):
    """Takes samples."""

    takes = (Sample,)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._nodes: dict[str, NodeUse] = {}
        self._ranks: dict[int, RankUse] = {}
        self._history: dict[int, deque[float]] = {}

    def fold(self, event: AnyEvent) -> None:
        """Take one node's sample."""
        assert isinstance(event, Sample)
        self._nodes[event.node] = NodeUse(
            node=event.node,
            cpu_percent=event.cpu_percent,
            cores=event.cores,
            memory_used=event.memory_used,
            memory_total=event.memory_total,
            gpus=tuple(event.gpus),
            note=event.note,
        )
        for rank in event.ranks:
            history = self._history.setdefault(rank.rank, deque(maxlen=HISTORY))
            history.append(rank.cpu_percent)
            self._ranks[rank.rank] = RankUse(
                rank=rank.rank,
                cpu_percent=rank.cpu_percent,
                history=tuple(history),
                rss=rank.rss,
                gpu=rank.gpu,
                gpu_memory=rank.gpu_memory,
            )

    def build(self) -> UtilisationSnapshot:
        """Return nodes and ranks in order."""
        return UtilisationSnapshot(
            nodes=tuple(self._nodes[node] for node in sorted(self._nodes)),
            ranks=tuple(self._ranks[rank] for rank in sorted(self._ranks)),
            over=self.result is not None,
        )
