"""A stand-in for the module `pynvml`: recorded values of cards, and what a driver refuses.

It has the functions that `launcher.nvml` calls, under the names and with the parameters that the real module
has (a test compares them), and raises as the real one does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TypeVar

T = TypeVar("T")
UNSIGNED_LONG_LONG = 3
ALL_LINKS = 0xFFFFFFFF


class NVMLError(Exception):
    """What the driver says when it does not answer; the same name as the library's."""


@dataclass
class Card:
    """A GPU, or a MIG slice. A field that is None is refused: not supported here."""

    uuid: str | bytes | None
    name: str | bytes | None = "NVIDIA H200"
    utilisation: int | None = 87
    used: int | None = 61_203_283_968
    total: int = 150_754_820_096
    power_mw: int | None = 412_385
    temperature: int | None = 46
    nvlink_kib: dict[int, int] | None = None
    """NVLink counters by field number, KiB since the driver was loaded; None: the card has no NVLink."""
    pcie_kib_s: tuple[int, int] | None = (51_200, 2_048)
    """Sent, received."""
    processes: dict[int, int | None] | None = field(default_factory=dict)
    mig: tuple[int, int] | None = (0, 0)
    bridge: int | None = 50
    """What the card has in common with another one, as a level of the topology."""
    nvlinked: bool = False
    direct: bool = True
    slices: list[Card | None] = field(default_factory=list)
    """Its MIG slices by place, None where a place is empty."""


class Nvml:
    """The module, with these cards; None where a card does not answer at all."""

    NVMLError = NVMLError

    def __init__(self, *cards: Card | None, driver: bool = True) -> None:
        self.cards = cards
        self.loaded = 0
        self._driver = driver

    def nvmlInit(self) -> None:  # noqa: N802
        if not self._driver:
            raise NVMLError("NVML Shared Library Not Found")
        self.loaded += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.loaded -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:  # noqa: N802
        return given(self.cards[index])

    def nvmlDeviceGetUUID(self, handle: Card) -> object:  # noqa: N802
        return given(handle.uuid)

    def nvmlDeviceGetName(self, handle: Card) -> object:  # noqa: N802
        return given(handle.name)

    def nvmlDeviceGetUtilizationRates(self, handle: Card) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(gpu=given(handle.utilisation), memory=12)

    def nvmlDeviceGetMemoryInfo(self, handle: Card) -> SimpleNamespace:  # noqa: N802
        used = given(handle.used)
        return SimpleNamespace(total=handle.total, used=used, free=handle.total - used)

    def nvmlDeviceGetPowerUsage(self, handle: Card) -> int:  # noqa: N802
        return given(handle.power_mw)

    def nvmlDeviceGetTemperature(self, handle: Card, sensor: int) -> int:  # noqa: N802
        assert sensor == 0
        return given(handle.temperature)

    def nvmlDeviceGetFieldValues(  # noqa: N802
        self, handle: Card, fieldIds: list[tuple[int, int]]
    ) -> list[SimpleNamespace]:
        assert all(scope == ALL_LINKS for _, scope in fieldIds)
        counters = handle.nvlink_kib
        return [
            SimpleNamespace(
                fieldId=number,
                nvmlReturn=0 if counters is not None else 3,
                valueType=UNSIGNED_LONG_LONG,
                value=SimpleNamespace(ullVal=(counters or {}).get(number, 0)),
            )
            for number, _ in fieldIds
        ]

    def nvmlDeviceGetPcieThroughput(self, device: Card, counter: int) -> int:  # noqa: N802
        return given(device.pcie_kib_s)[counter]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Card) -> list[SimpleNamespace]:  # noqa: N802
        processes = given(handle.processes)
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in processes.items()]

    def nvmlDeviceGetTopologyCommonAncestor(self, device1: Card, device2: Card) -> int:  # noqa: N802
        return min(given(device1.bridge), given(device2.bridge))

    def nvmlDeviceGetP2PStatus(self, device1: Card, device2: Card, p2pIndex: int) -> int:  # noqa: N802
        nvlink = device1.nvlinked and device2.nvlinked
        return 0 if (nvlink if p2pIndex == 2 else device1.direct and device2.direct) else 5

    def nvmlDeviceGetMigMode(self, device: Card) -> list[int]:  # noqa: N802
        return list(given(device.mig))

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Card) -> int:  # noqa: N802
        return len(device.slices)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Card, index: int) -> Card:  # noqa: N802
        return given(device.slices[index])


def given(value: T | None) -> T:
    """Return a recorded value, or refuse as the driver does where there is none."""
    if value is None:
        raise NVMLError("Not Supported")
    return value
