"""The mesh as the ranks report it: who stands where, and the process groups that each axis makes of that."""

from __future__ import annotations

import msgspec

from launcher.events import AnyEvent, Hello, Scalar, Tensor
from launcher.rundir import Manifest
from workbench.views.base import View

CROSSES = ".crosses_nodes"


class Axis(msgspec.Struct, frozen=True):
    """One axis: its groups are the ranks that agree in every other coordinate, as reported."""

    name: str
    size: int
    groups: tuple[tuple[int, ...], ...]
    crosses_nodes: bool | None = None


class MeshSnapshot(msgspec.Struct, frozen=True):
    """`places` gives each rank's coordinates in the order of `axes`; `values` a number before and after."""

    world_size: int
    axes: tuple[Axis, ...] = ()
    places: tuple[tuple[int, tuple[int, ...]], ...] = ()
    values: tuple[tuple[int, float | None, float | None], ...] = ()
    tensor: str = ""

    def rank_at(self, place: tuple[int, ...]) -> int | None:
        """Return the rank at a place of the grid, if it has reported."""
        return next((rank for rank, where in self.places if where == place), None)

    def value_of(self, rank: int) -> tuple[float | None, float | None]:
        """Return the number that the rank showed before and after."""
        return next(((before, after) for who, before, after in self.values if who == rank), (None, None))


class MeshView(View[MeshSnapshot]):
    """Takes hellos with coordinates, the tensors that `sync_model` shows, and which axes cross nodes."""

    takes = (Hello, Scalar, Tensor)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._names: tuple[str, ...] = ()
        self._places: dict[int, tuple[int, ...]] = {}
        self._values: dict[int, dict[str, float]] = {}
        self._tensor = ""
        self._crosses: dict[str, bool] = {}

    def fold(self, event: AnyEvent) -> None:
        """Take one rank's place, value, or word on an axis."""
        if isinstance(event, Hello):
            if event.coordinates:
                self._names = tuple(event.coordinates)
                self._places[event.rank] = tuple(event.coordinates.values())
        elif isinstance(event, Tensor):
            if event.values:
                self._values.setdefault(event.rank, {})[event.moment] = event.values[0]
                self._tensor = event.name
        elif isinstance(event, Scalar) and event.name.endswith(CROSSES):
            self._crosses[event.name.removesuffix(CROSSES)] = bool(event.value)

    def build(self) -> MeshSnapshot:
        """Return the grid as far as it is known."""
        return MeshSnapshot(
            world_size=self.manifest.world_size,
            axes=tuple(self._axis(index) for index in range(len(self._names))),
            places=tuple(sorted(self._places.items())),
            values=tuple(
                (rank, seen.get("before"), seen.get("after")) for rank, seen in sorted(self._values.items())
            ),
            tensor=self._tensor,
        )

    def _axis(self, index: int) -> Axis:
        lines: dict[tuple[int, ...], list[int]] = {}
        for rank, place in sorted(self._places.items()):
            lines.setdefault(place[:index] + place[index + 1 :], []).append(rank)
        name = self._names[index]
        return Axis(
            name=name,
            size=1 + max(place[index] for place in self._places.values()),
            groups=tuple(tuple(ranks) for ranks in lines.values()),
            crosses_nodes=self._crosses.get(name),
        )
