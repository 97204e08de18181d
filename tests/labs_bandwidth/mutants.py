"""Broken pieces of the bandwidth lab, one a function; each is called in every rank before the lab runs."""

from __future__ import annotations

import itertools
import threading
import time

import torch
import torch.distributed as dist

from labs.bandwidth import lab, ops, theory, timing
from labs.bandwidth.ops import Case


def factor_of_one() -> None:
    """algbw passed off as busbw."""
    theory.bus_factor = lambda op, world_size: 1.0


def only_one_piece() -> None:
    """S counted as one rank's piece, the published mistake."""
    theory.total_bytes = lambda op, piece_bytes, world_size: piece_bytes


def clock_without_waiting() -> None:
    """An operation is begun inside the timed part and waited for outside."""

    def on_cpu(call: timing.Call, device: torch.device, iters: int) -> list[float]:
        seconds = []
        buffer = torch.ones(1 << 20)
        for _ in range(iters):
            timing.barrier(device)
            start = time.perf_counter()
            work = dist.all_reduce(buffer, async_op=True)
            seconds.append(time.perf_counter() - start)
            assert work is not None
            work.wait()
        return seconds

    timing._on_cpu = on_cpu


def clock_that_stops_early() -> None:
    """The call runs in a thread that is joined after the clock has stopped."""

    def on_cpu(call: timing.Call, device: torch.device, iters: int) -> list[float]:
        seconds = []
        for _ in range(iters):
            timing.barrier(device)
            worker = threading.Thread(target=call)
            start = time.perf_counter()
            worker.start()
            seconds.append(time.perf_counter() - start)
            worker.join()
        return seconds

    timing._on_cpu = on_cpu


def nothing_moves() -> None:
    """The call returns without communicating."""
    build = Case._call

    def call(case: Case) -> timing.Call:
        build(case)
        return lambda: None

    Case._call = call  # type: ignore[assignment, method-assign]


def one_element_off_on_rank_1() -> None:
    """One element of one rank's result differs, at every size."""
    count = Case.count_wrong

    def count_wrong(case: Case) -> int:
        if case.job.rank == 1:
            case.recv[-1] += 1
        return count(case)

    Case.count_wrong = count_wrong  # type: ignore[assignment, method-assign]


def no_straight_line() -> None:
    """Told are 10 ms and 10 us by turns, whatever the size: no line goes through that."""
    calls = itertools.count()

    def measure(call: timing.Call, device: torch.device, iters: int, warmup: int) -> list[float]:
        # Out of place and in place alternate, so every other pair.
        return [1e-5 if next(calls) // 2 % 2 else 1e-2] * iters

    lab.measure = measure  # type: ignore[attr-defined]


def ranks_that_swap_pieces() -> None:
    """All-gather lays the pieces in the wrong order."""
    real = ops._all_gather

    def all_gather(recv: torch.Tensor, send: torch.Tensor) -> None:
        real(recv, send)
        recv.copy_(recv.flip(0))

    ops._all_gather = all_gather
