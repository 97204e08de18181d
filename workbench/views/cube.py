"""The ranks as a cube of slices: who does what, who talks to whom, and what each axis moves in a step.

Bytes are S by the rule of nccl-tests, summed over all ranks; a message counts where it is sent.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from launcher.events import AnyEvent, Hello, Phase, Scalar, Span
from launcher.rundir import Manifest
from workbench.views.base import View

CROSSES, THEORY = ".crosses_nodes", ".bytes_per_step_theory"
REPLICA, COPIES = "model", "embedding"
"""Groups that are no axis: the ranks of one replica, and the two with the copies of a tied embedding."""
NOW_NS = 100_000_000
"""What ended so long before the newest span counts as now."""


class Talk(msgspec.Struct, frozen=True):
    """What ranks of one group last did together: a message from one to another, or a collective."""

    name: str
    ranks: tuple[int, ...]


class AxisTraffic(msgspec.Struct, frozen=True):
    """One axis, or one group that cuts across them; `bytes_step` -1 where no step is whole yet."""

    name: str
    size: int
    crosses_nodes: bool | None = None
    calls_step: int = -1
    """Calls of the rank with most of them."""
    bytes_step: int = -1
    theory: int = -1
    now: tuple[Talk, ...] = ()


class CubeSnapshot(msgspec.Struct, frozen=True):
    """The grid with its axes, outermost first; `doing` and `talking`: newest action, newest axis."""

    world_size: int
    names: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    places: tuple[tuple[int, tuple[int, ...]], ...] = ()
    doing: tuple[tuple[int, str], ...] = ()
    talking: tuple[tuple[int, str], ...] = ()
    traffic: tuple[AxisTraffic, ...] = ()
    step: int = -1
    over: bool = False

    def rank_at(self, place: tuple[int, ...]) -> int | None:
        """Return the rank at a place of the grid, if it has reported."""
        return next((rank for rank, where in self.places if where == place), None)


class CubeView(View[CubeSnapshot]):
    """Takes hellos with coordinates, spans of actions and communication, steps, and facts on the axes."""

    takes = (Hello, Phase, Scalar, Span)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._names: tuple[str, ...] = ()
        self._places: dict[int, tuple[int, ...]] = {}
        self._facts: dict[str, dict[str, float]] = {CROSSES: {}, THEORY: {}}
        self._doing: dict[int, str] = {}
        self._talks: dict[tuple[str, int], Span] = {}
        self._newest: dict[int, Span] = {}
        self._steps: dict[int, int] = {}
        self._bytes: dict[int, Counter[str]] = {}
        self._calls: dict[int, Counter[tuple[str, int]]] = {}
        self._last_t = 0

    def fold(self, event: AnyEvent) -> None:
        """Take one event."""
        match event:
            case Hello() if event.coordinates:
                self._names = tuple(event.coordinates)
                self._places[event.rank] = tuple(event.coordinates.values())
            case Phase():
                self._steps[event.rank] = max(self._steps.get(event.rank, -1), event.step)
            case Scalar():
                for suffix, facts in self._facts.items():
                    if event.name.endswith(suffix):
                        facts[event.name.removesuffix(suffix)] = event.value
            case Span():
                self._span(event)

    def _span(self, span: Span) -> None:
        if span.lane == "compute" and span.action:
            self._doing[span.rank] = span.action
        elif span.lane == "comm" and span.group in self._group_names():
            self._last_t = max(self._last_t, span.t1)
            if span.group in self._names:
                self._newest[span.rank] = span
            if span.name != "recv":
                self._talks[span.group, span.rank] = span
                self._bytes.setdefault(span.step, Counter())[span.group] += max(0, span.bytes)
                self._calls.setdefault(span.step, Counter())[span.group, span.rank] += 1
        whole = self._whole_step()
        for store in (self._bytes, self._calls):
            for step in [step for step in store if step < whole]:
                del store[step]

    def _group_names(self) -> tuple[str, ...]:
        others = [name for name in self._facts[CROSSES] if name not in self._names]
        return (*self._names, *others)

    def _whole_step(self) -> int:
        """The newest step that every rank has left; the last one when the run is over."""
        if len(self._steps) < self.manifest.world_size:
            return -1
        return min(self._steps.values()) - (self.result is None)

    def build(self) -> CubeSnapshot:
        """Return the cube as far as it is known."""
        shape = tuple(
            1 + max(place[axis] for place in self._places.values()) for axis in range(len(self._names))
        )
        return CubeSnapshot(
            world_size=self.manifest.world_size,
            names=self._names,
            shape=shape,
            places=tuple(sorted(self._places.items())),
            doing=tuple(sorted(self._doing.items())),
            talking=tuple((rank, self._newest[rank].group) for rank in sorted(self._newest)),
            traffic=tuple(map(self._traffic, self._group_names())),
            step=self._whole_step(),
            over=self.result is not None,
        )

    def _traffic(self, name: str) -> AxisTraffic:
        step = self._whole_step()
        crosses, theory = self._facts[CROSSES].get(name), self._facts[THEORY].get(name)
        calls = [count for (group, _), count in self._calls.get(step, Counter()).items() if group == name]
        return AxisTraffic(
            name=name,
            size=self._size(name),
            crosses_nodes=None if crosses is None else bool(crosses),
            calls_step=max(calls, default=0) if step in self._calls else -1,
            bytes_step=self._bytes[step][name] if step in self._bytes else -1,
            theory=-1 if theory is None else int(theory),
            now=() if self.result is not None else self._now(name),
        )

    def _size(self, name: str) -> int:
        """Ranks a group: an axis has its length, two hold copies, a replica has all axes but the first."""
        if name in self._names:
            axis = self._names.index(name)
            return 1 + max(place[axis] for place in self._places.values())
        return len({place[1:] for place in self._places.values()}) if name == REPLICA else 2

    def _now(self, name: str) -> tuple[Talk, ...]:
        """The messages and collectives of the group's ranks that ended just now, each once."""
        found: dict[Talk, None] = {}
        for (group, rank), span in sorted(self._talks.items(), key=lambda item: item[0]):
            if group == name and span.t1 >= self._last_t - NOW_NS:
                found[Talk(span.name, self._ranks(span, rank))] = None
        return tuple(found)

    def _ranks(self, span: Span, rank: int) -> tuple[int, ...]:
        if span.peer >= 0:
            return rank, span.peer
        group = span.group
        mine = self._agreeing(group, self._places.get(rank, ()))
        return tuple(
            other
            for other, place in sorted(self._places.items())
            if self._agreeing(group, place) == mine and (group != COPIES or (group, other) in self._talks)
        )

    def _agreeing(self, group: str, place: tuple[int, ...]) -> tuple[int, ...]:
        """The coordinates in which the ranks of a group agree."""
        if group == REPLICA:
            return place[:1]
        axis = self._names.index("pp" if group == COPIES else group)
        return place[:axis] + place[axis + 1 :]
