"""Utilisation of a node while a run is recorded: its cores, its GPUs and its ranks, about once a second."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable

import psutil

from launcher.events import Hello, RankSample, Sample

INTERVAL_S = 1.0


class Sampler:
    """A thread that reads psutil for every rank that said hello, and hands `sample` events to `put`."""

    def __init__(self, put: Callable[[Sample], None], interval_s: float = INTERVAL_S) -> None:
        self._put = put
        self._interval_s = interval_s
        self._ranks: dict[int, psutil.Process] = {}
        self._node = platform.node()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="sampler", daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        psutil.cpu_percent()  # the first reading has nothing to compare with
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join(2 * self._interval_s)

    def watch(self, hello: Hello) -> None:
        """Sample this rank's process too, if it runs on this node."""
        if hello.node != self._node or hello.rank in self._ranks:
            return
        try:
            process = psutil.Process(hello.pid)
            process.cpu_percent()
        except psutil.Error:
            return
        self._ranks[hello.rank] = process

    def _work(self) -> None:
        while not self._stopped.wait(self._interval_s):
            self._put(self._sample())

    def _sample(self) -> Sample:
        memory = psutil.virtual_memory()
        return Sample(
            t=time.monotonic_ns(),
            node=self._node,
            cpu_percent=psutil.cpu_percent(),
            cores=psutil.cpu_count() or 0,
            memory_used=memory.total - memory.available,
            memory_total=memory.total,
            ranks=self._sample_ranks(),
        )

    def _sample_ranks(self) -> list[RankSample]:
        samples = []
        for rank, process in list(self._ranks.items()):
            try:
                with process.oneshot():
                    samples.append(
                        RankSample(
                            rank=rank, cpu_percent=process.cpu_percent(), rss=process.memory_info().rss
                        )
                    )
            except psutil.Error:
                del self._ranks[rank]
        return samples
