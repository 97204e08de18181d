"""The GPU-to-GPU links from a stand-in for pynvml: NVSwitch, direct NVLink, PCIe only, missing readings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from labs.bandwidth import links
from labs.bandwidth.theory import GB

SWITCH, GPU = 2, 0


class NVMLError(Exception):
    """Stands in for pynvml's error type."""


class FakeNvml:
    """`wires[gpu]` lists the remote end of each active NVLink: "switch" or a GPU index."""

    NVMLError = NVMLError
    NVML_SUCCESS = 0
    NVML_NVLINK_MAX_LINKS = 18
    NVML_NVLINK_DEVICE_TYPE_GPU = GPU
    NVML_NVLINK_DEVICE_TYPE_SWITCH = SWITCH
    NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON = 90

    def __init__(self, wires: list[list[Any]], level: int = 40, missing: tuple[str, ...] = ()) -> None:
        self.wires, self.level, self.open = wires, level, 0
        for name in missing:
            setattr(self, name, self._refuse)

    def _refuse(self, *_: Any) -> Any:
        raise NVMLError("Not Supported")

    def nvmlInit(self) -> None:  # noqa: N802
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.wires)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes:  # noqa: N802
        return b"NVIDIA H100"

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"GPU-{handle}"

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(busId=f"00000000:0{handle}:00.0".encode())

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: int) -> int:  # noqa: N802
        return 5

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: int) -> int:  # noqa: N802
        return 16 if handle else 8

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:  # noqa: N802
        return int(link < len(self.wires[handle]))

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:  # noqa: N802
        return SWITCH if self.wires[handle][link] == "switch" else GPU

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> Any:  # noqa: N802
        remote = self.wires[handle][link]
        return self.nvmlDeviceGetPciInfo(9 if remote == "switch" else remote)

    def nvmlDeviceGetTopologyCommonAncestor(self, a: int, b: int) -> int:  # noqa: N802
        return self.level

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[int]) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=26_562))]


def test_a_switch_joins_every_pair_with_all_links() -> None:
    nvml = FakeNvml([["switch"] * 18] * 4)
    topology = links.read_topology(nvml)
    assert [(link.a, link.b) for link in topology.links] == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert {link.nvlinks for link in topology.links} == {18}
    assert {link.peak for link in topology.links} == {450 * GB}
    assert topology.gpus[0].name == "NVIDIA H100"
    assert nvml.open == 0


def test_direct_links_count_a_pair_at_a_time() -> None:
    topology = links.read_topology(FakeNvml([[1, 1, 2], [0, 0], [0]]))
    assert {(link.a, link.b): link.nvlinks for link in topology.links} == {(0, 1): 2, (0, 2): 1, (1, 2): 0}
    assert [link.peak for link in topology.links[:2]] == [50 * GB, 25 * GB]


def test_without_nvlink_the_narrower_pcie_slot_is_the_peak() -> None:
    (link,) = links.read_topology(FakeNvml([[], []], level=50)).links
    assert (link.nvlinks, link.path) == (0, "SYS")
    assert link.peak == pytest.approx(8 * 3.938 * GB)


@pytest.mark.parametrize(
    "missing",
    ["nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkWidth"],
)
def test_a_pcie_reading_that_is_missing_leaves_the_peak_unknown(missing: str) -> None:
    (link,) = links.read_topology(FakeNvml([[], []], missing=(missing,))).links
    assert link.peak is None


def test_nvlink_without_a_rate_leaves_the_peak_unknown() -> None:
    topology = links.read_topology(FakeNvml([["switch"]] * 2, missing=("nvmlDeviceGetFieldValues",)))
    assert (topology.links[0].nvlinks, topology.links[0].peak) == (1, None)


def test_mig_and_containers_that_hide_nearly_everything_still_list_the_gpus() -> None:
    hidden = (
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetPciInfo",
        "nvmlDeviceGetTopologyCommonAncestor",
        "nvmlDeviceGetName",
    )
    topology = links.read_topology(FakeNvml([["switch"]] * 2, missing=hidden))
    assert len(topology.gpus) == 2
    assert (topology.links[0].nvlinks, topology.links[0].path) == (0, "")


def test_no_driver_is_a_note() -> None:
    def fail() -> None:
        raise NVMLError("Driver Not Loaded")

    nvml = SimpleNamespace(nvmlInit=fail, NVMLError=NVMLError)
    assert links.read_topology(nvml) == links.Topology(note="no GPU topology: NVMLError")


class TestPeakOfAJob:
    topology = links.read_topology(FakeNvml([[1, 1, 2], [0, 0], [0]]))

    def test_is_the_slowest_link_between_its_gpus(self) -> None:
        assert links.peak_of(self.topology, ["GPU-0", "GPU-1"]) == 50 * GB
        assert links.peak_of(self.topology, ["GPU-0", "GPU-1", "GPU-2"]) == 25 * GB

    def test_is_unknown_for_one_gpu_or_one_that_nvml_does_not_list(self) -> None:
        assert links.peak_of(self.topology, ["GPU-0"]) is None
        assert links.peak_of(self.topology, ["GPU-0", "GPU-1", "MIG-7"]) is None
        assert links.peak_of(self.topology, []) is None
