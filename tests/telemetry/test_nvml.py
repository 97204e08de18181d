"""GPUs as NVML tells of them: recorded values, MIG slices, drivers that refuse, ranks found by their UUID."""

from __future__ import annotations

import inspect
import os
import platform
import queue
from collections.abc import Callable

import pynvml
import pytest

from launcher.events import GpuSample, Hello, Sample, decode, encode
from launcher.nvml import MIG_NOTE, NO_GPU, NVLINK_RX_KIB, NVLINK_TX_KIB, Gpus, same_gpu
from launcher.sampler import Sampler
from tests.telemetry.nvml_standin import Card, Nvml

FIRST, SECOND = "GPU-5f0a91c2-77a4-5b1e-9d0c-2f4b3a6e8d10", "GPU-c01d5b77-0e3f-52a6-8b19-64d7e2f1a9b3"
SLICES = ["MIG-aa6f0f8e-1d2c-5f7a-8e34-90b1c2d3e4f5", "MIG-03b9d7c5-6a1e-5c2d-b4f8-1e2d3c4b5a69"]


def two_cards() -> tuple[Card, Card]:
    """Two GPUs joined by NVLink."""
    first = Card(FIRST, nvlink_kib={NVLINK_TX_KIB: 9_000_000, NVLINK_RX_KIB: 8_000_000})
    second = Card(SECOND, utilisation=3, power_mw=121_009, temperature=31, nvlink_kib={})
    return first, second


def test_what_a_driver_that_tells_all_tells() -> None:
    first, second = two_cards()
    gpus = Gpus(Nvml(first, second), clock=iter([0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0]).__next__)
    before = gpus.sample()
    assert [gpu.nvlink_rx_bytes_s for gpu in before] == [None, None]
    first.nvlink_kib = {NVLINK_TX_KIB: 9_400_000, NVLINK_RX_KIB: 8_100_000}
    assert gpus.sample() == [
        GpuSample(
            index=0,
            uuid=FIRST,
            name="NVIDIA H200",
            utilisation=87.0,
            memory_used=61_203_283_968,
            memory_total=150_754_820_096,
            power_w=412.385,
            temperature_c=46.0,
            nvlink_rx_bytes_s=100_000 * 1024 / 2,
            nvlink_tx_bytes_s=400_000 * 1024 / 2,
            pcie_rx_bytes_s=2_048 * 1024,
            pcie_tx_bytes_s=51_200 * 1024,
        ),
        GpuSample(
            index=1,
            uuid=SECOND,
            name="NVIDIA H200",
            utilisation=3.0,
            memory_used=61_203_283_968,
            memory_total=150_754_820_096,
            power_w=121.009,
            temperature_c=31.0,
            nvlink_rx_bytes_s=0.0,
            nvlink_tx_bytes_s=0.0,
            pcie_rx_bytes_s=2_048 * 1024,
            pcie_tx_bytes_s=51_200 * 1024,
        ),
    ]
    assert gpus.note == ""


def test_a_counter_that_began_anew_is_no_negative_rate() -> None:
    card = Card(FIRST, nvlink_kib={NVLINK_TX_KIB: 5_000, NVLINK_RX_KIB: 5_000})
    gpus = Gpus(Nvml(card), clock=iter([0.0, 0.0, 1.0, 1.0]).__next__)
    gpus.sample()
    card.nvlink_kib = {NVLINK_TX_KIB: 10, NVLINK_RX_KIB: 6_000}
    (sample,) = gpus.sample()
    assert (sample.nvlink_tx_bytes_s, sample.nvlink_rx_bytes_s) == (None, 1_000 * 1024)


def test_a_card_cut_into_slices() -> None:
    """Of a slice the driver gives memory alone: its utilisation is missing, not 0."""
    slices = [
        Card(uuid, name="NVIDIA H200 MIG 1g.18gb", used=used, total=17_179_869_184, utilisation=0)
        for uuid, used in zip(SLICES, (3_221_225_472, 65_536), strict=True)
    ]
    for cut in slices:
        cut.power_mw = cut.temperature = cut.pcie_kib_s = None
    card = Card(FIRST, mig=(1, 1), utilisation=None, slices=[slices[0], None, slices[1]])
    gpus = Gpus(Nvml(card, Card(SECOND)))
    found = gpus.sample()
    assert [(gpu.index, gpu.uuid) for gpu in found] == [(0, SLICES[0]), (1, SLICES[1]), (2, SECOND)]
    assert [gpu.utilisation for gpu in found] == [None, None, 87.0]
    assert [gpu.memory_used for gpu in found[:2]] == [3_221_225_472, 65_536]
    assert {gpu.memory_total for gpu in found[:2]} == {17_179_869_184}
    assert {(gpu.power_w, gpu.temperature_c) for gpu in found[:2]} == {(412.385, 46.0)}
    assert {gpu.note for gpu in found[:2]} == {MIG_NOTE}
    assert {(gpu.nvlink_rx_bytes_s, gpu.pcie_rx_bytes_s) for gpu in found[:2]} == {(None, None)}
    line = encode(Sample(t=1, node="here", gpus=found))
    assert b"null" not in line
    assert b'"utilisation":0' not in line
    read = decode(line)
    assert isinstance(read, Sample)
    assert read.gpus == found


@pytest.mark.parametrize("mig", [None, (0, 1)], ids=["no MIG here", "only after a reset"])
def test_a_card_without_slices_is_told_whole(mig: tuple[int, int] | None) -> None:
    (sample,) = Gpus(Nvml(Card(FIRST, mig=mig, slices=[Card(SLICES[0])]))).sample()
    assert (sample.uuid, sample.utilisation, sample.note) == (FIRST, 87.0, "")


REFUSALS: dict[str, tuple[Callable[[Card], None], set[str]]] = {
    "utilisation": (lambda card: setattr(card, "utilisation", None), {"utilisation"}),
    "memory": (lambda card: setattr(card, "used", None), {"memory_used", "memory_total"}),
    "power": (lambda card: setattr(card, "power_mw", None), {"power_w"}),
    "temperature": (lambda card: setattr(card, "temperature", None), {"temperature_c"}),
    "NVLink": (
        lambda card: setattr(card, "nvlink_kib", None),
        {"nvlink_rx_bytes_s", "nvlink_tx_bytes_s"},
    ),
    "PCIe": (lambda card: setattr(card, "pcie_kib_s", None), {"pcie_rx_bytes_s", "pcie_tx_bytes_s"}),
}


@pytest.mark.parametrize("refused", REFUSALS)
def test_a_field_that_the_driver_refuses_is_missing_and_the_others_are_not(refused: str) -> None:
    refuse, fields = REFUSALS[refused]
    first, _ = two_cards()
    refuse(first)
    gpus = Gpus(Nvml(first), clock=iter(range(8)).__next__)
    gpus.sample()
    (sample,) = gpus.sample()
    assert {name for name in GpuSample.__struct_fields__ if getattr(sample, name) is None} == fields


def test_functions_that_an_older_library_lacks_are_missing_fields() -> None:
    nvml = Nvml(Card(FIRST))
    for name in ("nvmlDeviceGetMigMode", "nvmlDeviceGetFieldValues", "nvmlDeviceGetPcieThroughput"):
        setattr(nvml, name, None)
    (sample,) = Gpus(nvml).sample()
    assert (sample.utilisation, sample.nvlink_rx_bytes_s, sample.pcie_rx_bytes_s) == (87.0, None, None)


def test_bytes_of_an_older_library_are_text() -> None:
    (sample,) = Gpus(Nvml(Card(FIRST.encode(), name=b"Tesla V100-SXM2"))).sample()
    assert (sample.uuid, sample.name) == (FIRST, "Tesla V100-SXM2")


def test_a_card_that_is_lost_leaves_the_others() -> None:
    assert [gpu.uuid for gpu in Gpus(Nvml(None, Card(SECOND))).sample()] == [SECOND]


@pytest.mark.parametrize("nvml", [Nvml(driver=False), Nvml(), Nvml(None)], ids=["driver", "card", "access"])
def test_nothing_there_is_no_gpu(nvml: Nvml) -> None:
    gpus = Gpus(nvml)
    assert (gpus.note, gpus.sample()) == (NO_GPU, [])
    gpus.close()
    assert nvml.loaded == 0


def test_the_stand_in_has_the_library_s_own_functions() -> None:
    """A stand-in with other names or parameters would prove nothing."""
    for name, function in inspect.getmembers(Nvml(), inspect.ismethod):
        if name.startswith("nvml"):
            real = list(inspect.signature(getattr(pynvml, name)).parameters)
            mine = list(inspect.signature(function).parameters)
            assert mine == real[: len(mine)], name
    assert (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX) == (
        NVLINK_TX_KIB,
        NVLINK_RX_KIB,
    )


def test_uuids_are_compared_without_what_is_put_before_them() -> None:
    bare = FIRST.removeprefix("GPU-")
    assert same_gpu(FIRST, bare)
    assert same_gpu(FIRST, FIRST.upper())
    assert same_gpu(SLICES[0], SLICES[0].replace("MIG-", "GPU-"))
    assert not same_gpu(FIRST, SECOND)
    assert not same_gpu(FIRST, None)
    assert not same_gpu("", "")
    assert not same_gpu("", "GPU-")


def hello(rank: int, gpu: str | None, pid: int = 0) -> Hello:
    """A rank of this node that reports its GPU by UUID."""
    return Hello(
        t=1,
        rank=rank,
        world_size=2,
        local_rank=rank,
        node=platform.node(),
        pid=pid or os.getpid(),
        device="cpu" if gpu is None else f"cuda:{rank}",
        backend="gloo" if gpu is None else "nccl",
        gpu=gpu,
    )


def sampled(nvml: Nvml, hellos: list[Hello], count: int = 1) -> list[Sample]:
    """The first samples of a sampler that these ranks said hello to."""
    samples: queue.SimpleQueue[Sample] = queue.SimpleQueue()
    sampler = Sampler(samples.put, interval_s=0.01, open_gpus=lambda: Gpus(nvml))
    for each in hellos:
        sampler.watch(each)
    sampler.start()
    found = [samples.get(timeout=20) for _ in range(count)]
    sampler.stop()
    return found


def test_ranks_are_matched_by_the_uuid_that_they_report() -> None:
    """In the order of the ranks, not of the driver; a container hides the pids of one of them."""
    me = os.getpid()
    nvml = Nvml(Card(FIRST, processes={}), Card(SECOND, processes={me: 7_000_000_000, me + 1: 5}))
    (sample,) = sampled(nvml, [hello(0, SECOND), hello(1, FIRST)])
    assert [(rank.rank, rank.gpu, rank.gpu_memory) for rank in sample.ranks] == [
        (0, 1, 7_000_000_000),
        (1, 0, None),
    ]


def test_a_slice_is_its_rank_s_own() -> None:
    cut = Card(SLICES[1], processes={os.getpid(): 1_000}, total=17_179_869_184)
    nvml = Nvml(Card(FIRST, mig=(1, 1), slices=[Card(SLICES[0]), cut]))
    (sample,) = sampled(nvml, [hello(0, SLICES[1].replace("MIG-", "GPU-"))])
    assert [(rank.gpu, rank.gpu_memory) for rank in sample.ranks] == [(1, 1_000)]


@pytest.mark.parametrize("gpu", [None, "GPU-00000000-0000-0000-0000-000000000000"], ids=["none", "unknown"])
def test_a_rank_whose_gpu_is_not_seen_has_none(gpu: str | None) -> None:
    (sample,) = sampled(Nvml(Card(FIRST)), [hello(0, gpu)])
    assert [(rank.gpu, rank.gpu_memory) for rank in sample.ranks] == [(None, None)]


def test_no_gpu_is_said_once() -> None:
    nvml = Nvml(driver=False)
    first, second, third = sampled(nvml, [hello(0, None)], count=3)
    assert (first.note, second.note, third.note) == (NO_GPU, "", "")
    assert first.gpus == second.gpus == []


def test_the_library_is_let_go_when_the_run_is_over() -> None:
    nvml = Nvml(Card(FIRST))
    sampled(nvml, [])
    assert nvml.loaded == 0
