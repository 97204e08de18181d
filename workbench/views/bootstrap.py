"""A job coming to life: the sleeps three ways, and of each way to start a group the time of its stages.

Reads the metrics `sleeps.HOW` and the scalars `init/WAY/STAGE` (milliseconds; the step is the stage's place).
"""

from __future__ import annotations

import msgspec

from launcher.events import AnyEvent, Hello, Phase, Scalar
from launcher.rundir import Manifest
from workbench.views.base import View

SLEEPS = "sleeps."


class Life(msgspec.Struct, frozen=True):
    """What is known of one rank: its process, and the milliseconds from its first word until it was ready."""

    rank: int
    local_rank: int = -1
    node: str = ""
    pid: int = -1
    joined_ms: float | None = None


class Start(msgspec.Struct, frozen=True):
    """One way of starting a group: its stages in order, and per rank their milliseconds (None: not yet)."""

    way: str
    stages: tuple[str, ...]
    ranks: tuple[tuple[float | None, ...], ...]

    def slowest(self, stage: int) -> float | None:
        """Return the longest time of a stage over the ranks that have told it."""
        told = [rank[stage] for rank in self.ranks if rank[stage] is not None]
        return max((ms for ms in told if ms is not None), default=None)


class BootstrapSnapshot(msgspec.Struct, frozen=True):
    """`sleeps` are (how, seconds) as they were measured; `keys` the number of keys in the store by hand."""

    lives: tuple[Life, ...]
    sleeps: tuple[tuple[str, float], ...] = ()
    keys: int | None = None
    starts: tuple[Start, ...] = ()


class BootstrapView(View[BootstrapSnapshot]):
    """Takes hellos, phases and the lab's scalars."""

    takes = (Hello, Phase, Scalar)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._lives = {rank: Life(rank) for rank in range(manifest.world_size)}
        self._began: dict[int, int] = {}
        self._sleeps: dict[str, float] = {}
        self._keys: int | None = None
        self._stages: dict[str, dict[str, int]] = {}
        self._times: dict[tuple[str, str, int], float] = {}

    def fold(self, event: AnyEvent) -> None:
        """Take one event of the job's beginning."""
        if isinstance(event, Scalar):
            self._scalar(event)
        elif event.rank not in self._lives:
            return
        elif isinstance(event, Hello):
            self._change(event.rank, local_rank=event.local_rank, node=event.node, pid=event.pid)
        elif isinstance(event, Phase):
            self._began.setdefault(event.rank, event.t)
            if event.phase == "ready":
                self._change(event.rank, joined_ms=(event.t - self._began[event.rank]) / 1e6)

    def _change(self, rank: int, **known: object) -> None:
        self._lives[rank] = msgspec.structs.replace(self._lives[rank], **known)

    def _scalar(self, event: Scalar) -> None:
        if event.name.startswith(SLEEPS):
            self._sleeps[event.name.removeprefix(SLEEPS)] = event.value
        elif event.name == "store/keys":
            self._keys = int(event.value)
        elif event.name.startswith("init/"):
            _, way, stage = event.name.split("/", 2)
            self._stages.setdefault(way, {})[stage] = event.step
            self._times[way, stage, event.rank] = event.value

    def build(self) -> BootstrapSnapshot:
        """Return what is known so far."""
        starts = []
        for way, places in self._stages.items():
            stages = tuple(sorted(places, key=lambda stage: places[stage]))
            rows = tuple(
                tuple(self._times.get((way, stage, rank)) for stage in stages) for rank in self._lives
            )
            starts.append(Start(way, stages, rows))
        return BootstrapSnapshot(
            tuple(self._lives.values()), tuple(self._sleeps.items()), self._keys, tuple(starts)
        )
