"""Which links join the GPUs of this node and what they could carry, read through NVML. Loads no torch.

Every reading may be missing (a container, MIG, a consumer card, an old driver): what is not told is None or
absent, never a guess and never an error.
"""

from __future__ import annotations

import importlib
from typing import Any

import msgspec

from labs.bandwidth.theory import nvlink_peak, pcie_peak

PATHS = {0: "internal", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""NVML's topology levels in nvidia-smi's words: one PCIe switch, several, host bridge, NUMA node, system."""


class Gpu(msgspec.Struct, frozen=True):
    """One GPU: its NVML index, and its PCIe peak in one direction (bytes a second)."""

    index: int
    name: str
    uuid: str
    pcie_peak: float | None = None


class Link(msgspec.Struct, frozen=True):
    """How two GPUs (NVML indices, a < b) reach each other: NVLinks, the PCIe path and the better peak."""

    a: int
    b: int
    nvlinks: int = 0
    path: str = ""
    peak: float | None = None


class Topology(msgspec.Struct, frozen=True):
    """The GPUs of this node and the link between every two; `note` says why there is none."""

    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = ()
    note: str = ""


def read_topology(nvml: Any = None) -> Topology:
    """Return what NVML tells; `nvml` stands in for `pynvml` in tests."""
    try:
        nvml = nvml or importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception as error:  # pynvml raises its own types, and an import may fail in many ways
        return Topology(note=f"no GPU topology: {type(error).__name__}")
    try:
        return _read(nvml)
    finally:
        nvml.nvmlShutdown()


def peak_of(topology: Topology, uuids: list[str]) -> float | None:
    """Return the lowest peak between any two of the GPUs with these UUIDs, or None if one is not known.

    A collective is no faster than its slowest link.
    """
    chosen = {gpu.index for gpu in topology.gpus if gpu.uuid in uuids}
    if len(chosen) < 2 or len(chosen) < len(uuids):
        return None
    peaks = [link.peak for link in topology.links if link.a in chosen and link.b in chosen]
    known = [peak for peak in peaks if peak is not None]
    return min(known) if known and len(known) == len(peaks) else None


def _read(nvml: Any) -> Topology:
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(_ask(nvml, 0, nvml.nvmlDeviceGetCount))]
    gpus = tuple(_gpu(nvml, index, handle) for index, handle in enumerate(handles))
    buses = [_bus(_ask(nvml, None, nvml.nvmlDeviceGetPciInfo, handle)) for handle in handles]
    reach = [_nvlinks(nvml, handle, buses) for handle in handles]
    links = []
    for a, handle in enumerate(handles):
        for b in range(a + 1, len(handles)):
            count = min(reach[a].get(b, 0), reach[b].get(a, 0))
            level = _ask(nvml, -1, nvml.nvmlDeviceGetTopologyCommonAncestor, handle, handles[b])
            peak = nvlink_peak(_line_rate(nvml, handle), count) if count else _lower(gpus[a], gpus[b])
            links.append(Link(a, b, count, PATHS.get(level, ""), peak))
    return Topology(gpus, tuple(links))


def _gpu(nvml: Any, index: int, handle: Any) -> Gpu:
    generation = _ask(nvml, 0, nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle)
    width = _ask(nvml, 0, nvml.nvmlDeviceGetMaxPcieLinkWidth, handle)
    return Gpu(
        index=index,
        name=_text(_ask(nvml, "", nvml.nvmlDeviceGetName, handle)),
        uuid=_text(_ask(nvml, "", nvml.nvmlDeviceGetUUID, handle)),
        pcie_peak=pcie_peak(generation, width),
    )


def _nvlinks(nvml: Any, handle: Any, buses: list[str]) -> dict[int, int]:
    """Return how many active NVLinks of one GPU lead to each other GPU; a switch leads to all of them."""
    reach: dict[int, int] = {}
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        if not _ask(nvml, 0, nvml.nvmlDeviceGetNvLinkState, handle, link):
            continue
        kind = _ask(
            nvml, nvml.NVML_NVLINK_DEVICE_TYPE_GPU, nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link
        )
        remote = _bus(_ask(nvml, None, nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link))
        for index, bus in enumerate(buses):
            if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH or (remote and bus == remote):
                reach[index] = reach.get(index, 0) + 1
    return reach


def _line_rate(nvml: Any, handle: Any) -> int:
    """Return the NVLink line rate (MB/s) that the driver reports, 0 where it does not."""
    field = nvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON
    values = _ask(nvml, [], nvml.nvmlDeviceGetFieldValues, handle, [field])
    return next((int(v.value.uiVal) for v in values if v.nvmlReturn == nvml.NVML_SUCCESS), 0)


def _lower(a: Gpu, b: Gpu) -> float | None:
    if a.pcie_peak is None or b.pcie_peak is None:
        return None
    return min(a.pcie_peak, b.pcie_peak)


def _ask(nvml: Any, absent: Any, function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return absent


def _bus(info: Any) -> str:
    return _text(info.busId).lower() if info is not None else ""


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
