"""What NVML tells of the GPUs, as far as this driver and this card tell it.

Every single query may be refused (an old driver, a card without power sensor, a MIG slice, a container); its
field is None then, and the others are still given. Without a GPU, `note` says "no GPU" and samples are empty.
A GPU that is cut into MIG slices is told slice by slice: memory of the slice, power and temperature of the
card; the driver gives no utilisation of a slice.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from launcher.events import GpuSample

NO_GPU = "no GPU"
MIG_NOTE = "MIG slice: the driver gives no utilisation; power and temperature are the whole card's"
NVLINK_TX_KIB = 138  # NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: payload of all links since load, in KiB
NVLINK_RX_KIB = 139
ALL_LINKS = 0xFFFFFFFF
PCIE_TX, PCIE_RX = 0, 1
_VALUE_NAMES = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal"}


P2P_READ, P2P_NVLINK = 0, 2
WAYS = {
    0: "one board",
    10: "one PCIe switch",
    20: "several PCIe switches",
    30: "one PCIe host bridge",
    40: "one NUMA node",
    50: "the link between CPU sockets",
}
"""What two cards have in common, by NVML's levels of the topology."""


@dataclass(frozen=True)
class Link:
    """How cards `first` and `second` are connected; `direct`: whether one may read the other's memory.

    `way` is empty, `direct` None, where the driver does not tell.
    """

    first: int
    second: int
    way: str
    direct: bool | None


@dataclass
class _Device:
    """A GPU or a MIG slice; `card` is the handle of the GPU that a slice is cut from, else its own."""

    index: int
    handle: Any
    card: Any
    uuid: str
    name: str
    is_slice: bool
    links: dict[int, tuple[float, int]] = field(default_factory=dict)
    """Last reading of an NVLink counter: when (s), KiB."""


class Gpus:
    """The GPUs of this node. `nvml` is the module `pynvml`, or a stand-in for it."""

    def __init__(self, nvml: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.note = ""
        self._nvml = nvml
        self._clock = clock
        self._devices: list[_Device] = []
        try:
            if self._nvml is None:
                self._nvml = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
        except Exception:  # no library, no driver, no permission: each means no GPU here
            self._nvml = None
            self.note = NO_GPU
            return
        for number in range(self._ask("nvmlDeviceGetCount") or 0):
            self._find(number)
        if not self._devices:
            self.note = NO_GPU

    def sample(self) -> list[GpuSample]:
        """Return one sample a GPU (a MIG slice), in the driver's order."""
        return [self._sample(device) for device in self._devices]

    def memory_of(self, pid: int, gpu: GpuSample) -> int | None:
        """Return the bytes that process `pid` holds on `gpu`; None where a container hides the process."""
        device = next((device for device in self._devices if device.uuid == gpu.uuid), None)
        if device is None:
            return None
        for process in self._ask("nvmlDeviceGetComputeRunningProcesses", device.handle) or []:
            if process.pid == pid:
                used: int | None = process.usedGpuMemory
                return used
        return None

    def links(self) -> list[Link]:
        """Return how each two cards are connected; slices of a card, and one card alone, have no links."""
        cards = [device for device in self._devices if not device.is_slice]
        pairs = [(a, b) for place, a in enumerate(cards) for b in cards[place + 1 :]]
        return [Link(a.index, b.index, self._way(a, b), self._reaches(a, b, P2P_READ)) for a, b in pairs]

    def _way(self, a: _Device, b: _Device) -> str:
        if self._reaches(a, b, P2P_NVLINK):
            return "NVLink"
        return WAYS.get(self._ask("nvmlDeviceGetTopologyCommonAncestor", a.card, b.card), "")

    def _reaches(self, a: _Device, b: _Device, kind: int) -> bool | None:
        status = self._ask("nvmlDeviceGetP2PStatus", a.card, b.card, kind)
        return None if status is None else bool(status == 0)

    def close(self) -> None:
        """Let the library go."""
        if self._nvml is not None:
            self._ask("nvmlShutdown")
            self._nvml = None
            self._devices = []

    def _ask(self, function: str, *arguments: Any) -> Any:
        """Call NVML; None where this driver or card refuses, or the library does not know the function."""
        try:
            return getattr(self._nvml, function)(*arguments)
        except Exception:  # NVMLError, or AttributeError of an older library: the field is missing
            return None

    def _find(self, number: int) -> None:
        card = self._ask("nvmlDeviceGetHandleByIndex", number)
        if card is None:  # lost, or hidden from this user
            return
        mode = self._ask("nvmlDeviceGetMigMode", card)
        slices = []
        if mode is not None and mode[0] == 1:
            for place in range(self._ask("nvmlDeviceGetMaxMigDeviceCount", card) or 0):
                handle = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", card, place)
                if handle is not None:  # not every place is taken
                    slices.append(handle)
        for handle in slices or [card]:
            self._devices.append(
                _Device(
                    index=len(self._devices),
                    handle=handle,
                    card=card,
                    uuid=_text(self._ask("nvmlDeviceGetUUID", handle)),
                    name=_text(self._ask("nvmlDeviceGetName", handle)),
                    is_slice=bool(slices),
                )
            )

    def _sample(self, device: _Device) -> GpuSample:
        rates = None if device.is_slice else self._ask("nvmlDeviceGetUtilizationRates", device.handle)
        memory = self._ask("nvmlDeviceGetMemoryInfo", device.handle)
        power_mw = self._ask("nvmlDeviceGetPowerUsage", device.card)
        temperature = self._ask("nvmlDeviceGetTemperature", device.card, 0)
        rx, tx = (None, None) if device.is_slice else self._nvlink(device)
        pcie = [None, None] if device.is_slice else [self._pcie(device, kind) for kind in (PCIE_RX, PCIE_TX)]
        return GpuSample(
            index=device.index,
            uuid=device.uuid,
            name=device.name,
            utilisation=None if rates is None else float(rates.gpu),
            memory_used=None if memory is None else int(memory.used),
            memory_total=None if memory is None else int(memory.total),
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_c=None if temperature is None else float(temperature),
            nvlink_rx_bytes_s=rx,
            nvlink_tx_bytes_s=tx,
            pcie_rx_bytes_s=pcie[0],
            pcie_tx_bytes_s=pcie[1],
            note=MIG_NOTE if device.is_slice else "",
        )

    def _nvlink(self, device: _Device) -> tuple[float | None, float | None]:
        """Bytes a second received and sent over all links since the last sample; None in the first one."""
        asked = [(NVLINK_RX_KIB, ALL_LINKS), (NVLINK_TX_KIB, ALL_LINKS)]
        values = self._ask("nvmlDeviceGetFieldValues", device.handle, asked)
        if values is None:
            return None, None
        rates = [self._rate(device, number, value) for (number, _), value in zip(asked, values, strict=True)]
        return rates[0], rates[1]

    def _rate(self, device: _Device, number: int, value: Any) -> float | None:
        name = _VALUE_NAMES.get(value.valueType)
        if value.nvmlReturn != 0 or name is None:  # no NVLink on this card
            return None
        now, total = self._clock(), int(getattr(value.value, name))
        then, before = device.links.get(number, (now, total))
        device.links[number] = (now, total)
        if now <= then or total < before:  # the first reading, or a counter that began anew
            return None
        return (total - before) * 1024 / (now - then)

    def _pcie(self, device: _Device, kind: int) -> float | None:
        kib_s = self._ask("nvmlDeviceGetPcieThroughput", device.handle, kind)
        return None if kib_s is None else float(kib_s) * 1024


def same_gpu(uuid: str, other: str | None) -> bool:
    """Whether two UUIDs name one device; CUDA and NVML differ in the prefix that they put, or put none."""
    return bool(bare := _bare(uuid)) and bare == _bare(other or "")


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
