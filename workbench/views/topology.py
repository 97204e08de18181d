"""What joins the ranks: the GPU-to-GPU matrix where there are GPUs, else the loopback and a copy's rate."""

from __future__ import annotations

import re

import msgspec

from launcher.events import AnyEvent, Hello, Scalar
from launcher.rundir import Manifest
from workbench.views.base import View

_PAIR = re.compile(r"topology/gpu(\d+)-gpu(\d+)/(nvlinks|peak|path)(?:/(\w+))?")
_SLOT = re.compile(r"topology/gpu(\d+)/pcie")


class Pair(msgspec.Struct, frozen=True):
    """Two GPUs (a < b): NVLinks between them, the PCIe path in nvidia-smi's words, the peak in GB/s."""

    a: int
    b: int
    nvlinks: int = 0
    path: str = ""
    peak: float | None = None

    @property
    def name(self) -> str:
        """`NV18`, `PIX`, ..., or `?` where the driver does not tell."""
        return f"NV{self.nvlinks}" if self.nvlinks else self.path or "?"


class Place(msgspec.Struct, frozen=True):
    """Where one rank runs."""

    rank: int
    node: str
    device: str


class TopologySnapshot(msgspec.Struct, frozen=True):
    """`gpus` are NVML indices with their PCIe peak (GB/s, None if not told); empty without a GPU."""

    gpus: tuple[tuple[int, float | None], ...] = ()
    pairs: tuple[Pair, ...] = ()
    places: tuple[Place, ...] = ()
    memcpy: float | None = None
    link_peak: float | None = None

    def pair(self, a: int, b: int) -> Pair | None:
        """Return the pair of two GPUs in either order."""
        return next((p for p in self.pairs if {p.a, p.b} == {a, b}), None)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the ranks, each once."""
        return tuple(dict.fromkeys(place.node for place in self.places))


class TopologyView(View[TopologySnapshot]):
    """Takes the ranks' hellos and the scalars `topology/...`, `memcpy` and `link_peak`."""

    takes = (Hello, Scalar)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._places: dict[int, Place] = {}
        self._slots: dict[int, float | None] = {}
        self._pairs: dict[tuple[int, int], Pair] = {}
        self._memcpy: float | None = None
        self._link_peak: float | None = None

    def fold(self, event: AnyEvent) -> None:
        """Take one rank's place or one reading of the links."""
        if isinstance(event, Hello):
            self._places[event.rank] = Place(event.rank, event.node, event.device)
            return
        assert isinstance(event, Scalar)
        if event.name == "memcpy":
            self._memcpy = event.value
        elif event.name == "link_peak":
            self._link_peak = event.value
        elif slot := _SLOT.fullmatch(event.name):
            self._slots[int(slot[1])] = event.value
        elif pair := _PAIR.fullmatch(event.name):
            self._pair(int(pair[1]), int(pair[2]), pair[3], pair[4] or "", event.value)

    def _pair(self, a: int, b: int, quantity: str, path: str, value: float) -> None:
        for gpu in (a, b):
            self._slots.setdefault(gpu, None)
        pair = self._pairs.get((a, b), Pair(a, b))
        if quantity == "nvlinks":
            pair = msgspec.structs.replace(pair, nvlinks=int(value))
        elif quantity == "path":
            pair = msgspec.structs.replace(pair, path=path)
        else:
            pair = msgspec.structs.replace(pair, peak=value)
        self._pairs[a, b] = pair

    def build(self) -> TopologySnapshot:
        """Return what is known so far."""
        return TopologySnapshot(
            gpus=tuple(sorted(self._slots.items())),
            pairs=tuple(self._pairs[key] for key in sorted(self._pairs)),
            places=tuple(self._places[rank] for rank in sorted(self._places)),
            memcpy=self._memcpy,
            link_peak=self._link_peak,
        )
