"""The sampler's thread: the node and its ranks, those that vanish and those of other nodes."""

from __future__ import annotations

import os
import platform
import queue
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import msgspec
import psutil
import pytest

from launcher.events import Sample
from launcher.nvml import Gpus
from launcher.sampler import Sampler
from tests.telemetry.harness import hello
from tests.telemetry.nvml_standin import Nvml


class Passing:
    """A process that is there for so many looks, then gone."""

    def __init__(self, pid: int, looks: int = 2) -> None:
        self.pid = pid
        self._looks = looks

    def oneshot(self) -> nullcontext[None]:
        return nullcontext()

    def cpu_percent(self) -> float:
        return 12.5

    def memory_info(self) -> SimpleNamespace:
        self._looks -= 1
        if self._looks < 0:
            raise psutil.NoSuchProcess(self.pid)
        return SimpleNamespace(rss=4096)


@contextmanager
def sampling(*pids: int, node: str = "") -> Iterator[queue.SimpleQueue[Sample]]:
    """Sample ranks with these pids, on this node or another, without a GPU."""
    samples: queue.SimpleQueue[Sample] = queue.SimpleQueue()
    sampler = Sampler(samples.put, interval_s=0.01, open_gpus=lambda: Gpus(Nvml(driver=False)))
    for rank, pid in enumerate(pids):
        told = hello(rank, len(pids))
        sampler.watch(msgspec.structs.replace(told, node=node or platform.node(), pid=pid))
    sampler.start()
    yield samples
    sampler.stop()


def test_a_rank_that_vanishes_is_left_out_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = {11: 2, 12: 1_000_000}
    monkeypatch.setattr(psutil, "Process", lambda pid: Passing(pid, looks[pid]))
    with sampling(11, 12) as samples:
        found = [samples.get(timeout=20) for _ in range(4)]
    assert [[rank.rank for rank in sample.ranks] for sample in found] == [[0, 1], [0, 1], [1], [1]]
    assert {(rank.cpu_percent, rank.rss) for sample in found for rank in sample.ranks} == {(12.5, 4096)}


def test_a_rank_of_another_node_or_one_that_is_gone_is_not_looked_at() -> None:
    with sampling(os.getpid(), node="another") as samples:
        assert samples.get(timeout=20).ranks == []
    with sampling(2**22 + 1) as samples:  # a number that no process of Linux has
        assert samples.get(timeout=20).ranks == []


def test_the_node_is_told_in_its_own_measures() -> None:
    with sampling(os.getpid()) as samples:
        sample = samples.get(timeout=20)
    assert sample.node == platform.node()
    assert sample.cores == psutil.cpu_count()
    assert 0 < sample.memory_used < sample.memory_total == psutil.virtual_memory().total
    assert [(rank.rank, rank.rss > 1_000_000, rank.gpu) for rank in sample.ranks] == [(0, True, None)]
