"""The bandwidth lab beside a plain `torch.distributed` loop, in one run: `python -m tests.bench.bandwidth`.

Short rounds of both alternate in every order, so that whatever else the machine does falls on both, and both
use the same buffers, since two buffers of one size already differ by some percent (huge pages, alignment).
The plain loop runs a second time in each round: how far its medians lie apart is the noise of the machine.
Exit code 1 if lab and plain are more than 5% apart at any size (all are 1 MiB or more).
"""

from __future__ import annotations

import argparse
import itertools
import socket
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from math import isqrt

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessExitedException, spawn

from labs.bandwidth.ops import Case, Job
from labs.bandwidth.theory import Op
from labs.bandwidth.timing import measure

OPS: tuple[Op, ...] = ("all_reduce", "broadcast", "all_to_all")
SIZES = (1 << 20, 4 << 20, 16 << 20)
TOLERANCE = 0.05
WARMUP = 2


def plain_loop(op: Op, data: torch.Tensor, other: torch.Tensor, iters: int) -> list[float]:
    """Time `op` as somebody would who never saw the lab; seconds, the slowest rank of each iteration."""
    times = []
    for i in range(iters + WARMUP):
        dist.barrier()
        begin = time.perf_counter()
        if op == "all_reduce":
            dist.all_reduce(data)
        elif op == "broadcast":
            dist.broadcast(data, 0)
        else:
            dist.all_to_all_single(other, data)
        end = time.perf_counter()
        if i >= WARMUP:
            times.append(end - begin)
    slowest = torch.tensor(times)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.tolist()


def compare(op: Op, size: int, rounds: int, iters: int) -> dict[str, float]:
    """Return the medians (seconds) of the lab, of the plain loop, and of the plain loop once more."""
    job = Job(dist.get_rank(), dist.get_world_size(), torch.device("cpu"))
    case = Case(op, "out_of_place" if op == "all_to_all" else "in_place", size // 4, job)
    ways: dict[str, Callable[[], list[float]]] = {
        "lab": lambda: measure(case.call, job.device, iters, WARMUP),
        "plain": lambda: plain_loop(op, case.send, case.recv, iters),
        "again": lambda: plain_loop(op, case.send, case.recv, iters),
    }
    order = list(itertools.permutations(ways))
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in order[number % len(order)]:
            times[name] += ways[name]()
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def worker(rank: int, world_size: int, port: int, rounds: int, iters: int) -> None:
    """One rank: meet the others, compare, let rank 0 print, exit 1 where the two disagree."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=60),
    )
    apart = 0
    for op in OPS:
        for size in SIZES:
            # The shorter a call, the more its time scatters: the smaller sizes take more rounds.
            medians = compare(op, size, rounds * isqrt(SIZES[-1] // size), iters)
            ratio, noise = medians["lab"] / medians["plain"], medians["again"] / medians["plain"]
            apart += abs(ratio - 1) > TOLERANCE
            if rank == 0:
                lab, plain = (medians[name] * 1e6 for name in ("lab", "plain"))
                line = f"{op:>12} {size >> 20:>3} MiB  lab {lab:>9.1f} us  plain {plain:>9.1f} us"
                sys.stdout.write(f"{line}  ratio {ratio:.3f}  (plain to itself {noise:.3f})\n")
                sys.stdout.flush()
    dist.destroy_process_group()
    if apart:
        raise SystemExit(1)


def main() -> int:
    """Run the comparison on `--nproc` ranks of this machine and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=24, help="of the largest size")
    parser.add_argument("--iters", type=int, default=20)
    given = parser.parse_args()
    with socket.socket() as finder:
        finder.bind(("127.0.0.1", 0))
        port = finder.getsockname()[1]
    try:
        spawn(worker, (given.nproc, port, given.rounds, given.iters), given.nproc)  # type: ignore[no-untyped-call]
    except ProcessExitedException:
        sys.stdout.write(f"the two differ by more than {TOLERANCE:.0%}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
