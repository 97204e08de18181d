"""Utilisation of a node while a run is recorded: its cores, its GPUs and its ranks, about once a second."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable

import psutil

from launcher.events import GpuSample, Hello, RankSample, Sample
from launcher.nvml import Gpus, same_gpu

INTERVAL_S = 1.0


class Sampler:
    """A thread that looks at the node and at every rank that said hello, and hands `sample` events to `put`.

    What the node has to say about its GPUs as such ("no GPU") is in the first sample alone.
    """

    def __init__(
        self,
        put: Callable[[Sample], None],
        interval_s: float = INTERVAL_S,
        open_gpus: Callable[[], Gpus] = Gpus,
    ) -> None:
        self._put = put
        self._interval_s = interval_s
        self._open_gpus = open_gpus
        self._gpu_of: dict[int, str] = {}
        self._ranks: dict[int, psutil.Process] = {}
        self._node = platform.node()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="sampler", daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        psutil.cpu_percent()  # the first reading has nothing to compare with
        self._thread.start()

    def stop(self) -> None:
        """End the thread; one that a driver holds up is left behind."""
        self._stopped.set()
        self._thread.join(2 * self._interval_s)

    def watch(self, hello: Hello) -> None:
        """Sample this rank's process too, if it runs on this node."""
        if hello.gpu:
            self._gpu_of[hello.rank] = hello.gpu
        if hello.node != self._node or hello.rank in self._ranks:
            return
        try:
            process = psutil.Process(hello.pid)
            process.cpu_percent()
        except psutil.Error:
            return
        self._ranks[hello.rank] = process

    def _work(self) -> None:
        gpus = self._open_gpus()  # here, since a driver takes its time to load
        note = gpus.note
        while not self._stopped.wait(self._interval_s):
            self._put(self._sample(gpus, note))
            note = ""
        gpus.close()

    def _sample(self, gpus: Gpus, note: str) -> Sample:
        memory = psutil.virtual_memory()
        found = gpus.sample()
        return Sample(
            t=time.monotonic_ns(),
            node=self._node,
            cpu_percent=psutil.cpu_percent(),
            cores=psutil.cpu_count() or 0,
            memory_used=memory.total - memory.available,
            memory_total=memory.total,
            gpus=found,
            ranks=self._sample_ranks(gpus, found),
            note=note,
        )

    def _sample_ranks(self, gpus: Gpus, found: list[GpuSample]) -> list[RankSample]:
        samples = []
        for rank, process in list(self._ranks.items()):
            mine = next((gpu for gpu in found if same_gpu(gpu.uuid, self._gpu_of.get(rank))), None)
            try:
                with process.oneshot():
                    resident = process.memory_info().rss
                    if not resident:  # ended, and not yet reaped: no figure of it means anything
                        continue
                    samples.append(
                        RankSample(
                            rank=rank,
                            cpu_percent=process.cpu_percent(),
                            rss=resident,
                            gpu=None if mine is None else mine.index,
                            gpu_memory=None if mine is None else gpus.memory_of(process.pid, mine),
                        )
                    )
            except psutil.Error:
                del self._ranks[rank]
        return samples
