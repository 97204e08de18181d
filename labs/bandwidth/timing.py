"""How one call is timed: warm up, synchronise, barrier, time, and take the slowest rank of each iteration.

On a CPU a blocking call has done its work when it returns, so `perf_counter_ns` around it is its time. On a
GPU a call only queues work: the clock that counts is the GPU's own, read from CUDA events on the stream on
either side of the call, after one synchronisation at the end.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

Call = Callable[[], None]


def barrier(device: torch.device) -> None:
    """Wait until every rank is here, with nothing left to do on its device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        dist.barrier(device_ids=[device.index or 0])
    else:
        dist.barrier()


def measure(call: Call, device: torch.device, iters: int, warmup: int) -> list[float]:
    """Return the seconds of each of `iters` iterations, each as long as its slowest rank."""
    for _ in range(warmup):
        call()
    clock = _on_gpu if device.type == "cuda" else _on_cpu
    return slowest(clock(call, device, iters), device)


def _on_cpu(call: Call, device: torch.device, iters: int) -> list[float]:
    """Time each iteration alone: the barrier before it keeps a root from running ahead of its receivers."""
    seconds = []
    for _ in range(iters):
        barrier(device)
        start = time.perf_counter_ns()
        call()
        seconds.append((time.perf_counter_ns() - start) / 1e9)
    return seconds


def _on_gpu(call: Call, device: torch.device, iters: int) -> list[float]:
    """Time each iteration between two events; back to back, so that launching does not show in the time."""
    marks = [_event() for _ in range(iters + 1)]
    barrier(device)
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    torch.cuda.synchronize(device)
    return [a.elapsed_time(b) / 1e3 for a, b in itertools.pairwise(marks)]


def slowest(seconds: list[float], device: torch.device) -> list[float]:
    """Return, iteration by iteration, the largest of all ranks' times: a collective is done when all are."""
    times = torch.tensor(seconds, dtype=torch.float64, device=device)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return [float(t) for t in times.tolist()]


def covered(call: Call, device: torch.device, iters: int) -> float:
    """Return which share of a call's own time the clock reports, on the rank where that is least.

    The call is made to finish and takes its own time, inside the clock's. On a CPU the clock must then report
    at least as much, whatever else the machine does. On a GPU finishing inside would also finish a careless
    clock's work, so there the same call is timed by the clock as it is, and once more by itself.
    0 where the clock did not make the call at all.
    """
    spent: list[float] = []

    def finished() -> None:
        start = time.perf_counter_ns()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        spent.append((time.perf_counter_ns() - start) / 1e9)

    if device.type == "cuda":
        reported = _on_gpu(call, device, iters)
        barrier(device)
        for _ in range(iters):
            finished()
    else:
        reported = _on_cpu(finished, device, iters)
    share = torch.tensor(sum(reported) / sum(spent) if spent else 0.0, dtype=torch.float64, device=device)
    dist.all_reduce(share, op=dist.ReduceOp.MIN)
    return float(share.item())


def copy_rate(device: torch.device, size: int = 128 << 20, repeats: int = 5) -> float:
    """Return the best rate (bytes a second) at which this rank copies `size` bytes within its own memory.

    Counts each byte once; the memory does twice that, a read and a write. The size exceeds usual caches.
    """
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    target.copy_(source)
    seconds = _on_gpu_alone if device.type == "cuda" else _on_cpu_alone
    return size / min(seconds(source, target) for _ in range(repeats))


def _on_cpu_alone(source: torch.Tensor, target: torch.Tensor) -> float:
    start = time.perf_counter_ns()
    target.copy_(source)
    return (time.perf_counter_ns() - start) / 1e9


def _on_gpu_alone(source: torch.Tensor, target: torch.Tensor) -> float:
    start, end = _event(), _event()
    start.record()
    target.copy_(source)
    end.record()
    torch.cuda.synchronize(source.device)
    return float(start.elapsed_time(end)) / 1e3


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
