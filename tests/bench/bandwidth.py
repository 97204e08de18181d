"""The bandwidth lab beside a plain `torch.distributed` loop, in one run: `python -m tests.bench.bandwidth`.

Short rounds of both alternate, so that whatever else the machine does falls on both, and both use the same
buffers, since two buffers of one size already differ by some percent (huge pages, alignment). Printed are
the medians of all iterations and the ratio: the median over rounds of the two medians of a round. Exit code
1 if it is more than 5% away from 1 at any size (all are 1 MiB or more).
"""

from __future__ import annotations

import argparse
import socket
import statistics
import sys
import time
from datetime import timedelta

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
    world_size = dist.get_world_size()
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
    everyone: list[list[float]] = [[] for _ in range(world_size)]
    dist.all_gather_object(everyone, times)
    return [max(column) for column in zip(*everyone, strict=True)]


def compare(op: Op, size: int, rounds: int, iters: int) -> tuple[float, float, float]:
    """Return the medians (seconds) of the lab and of the plain loop, and the median ratio of a round."""
    elements = size // 4
    job = Job(dist.get_rank(), dist.get_world_size(), torch.device("cpu"))
    case = Case(op, "out_of_place" if op == "all_to_all" else "in_place", elements, job)
    data, other = case.send, case.recv
    lab: list[float] = []
    plain: list[float] = []
    ratios: list[float] = []
    for number in range(rounds):
        for kind in ("lab", "plain") if number % 2 else ("plain", "lab"):
            if kind == "lab":
                lab += measure(case.call, job.device, iters, WARMUP)
            else:
                plain += plain_loop(op, data, other, iters)
        ratios.append(statistics.median(lab[-iters:]) / statistics.median(plain[-iters:]))
    return statistics.median(lab), statistics.median(plain), statistics.median(ratios)


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
            lab, plain, ratio = compare(op, size, rounds, iters)
            apart += abs(ratio - 1) > TOLERANCE
            if rank == 0:
                line = f"{op:>12} {size >> 20:>3} MiB  lab {lab * 1e6:>9.1f} us  plain {plain * 1e6:>9.1f} us"
                sys.stdout.write(f"{line}  ratio {ratio:.3f}\n")
                sys.stdout.flush()
    dist.destroy_process_group()
    if apart:
        raise SystemExit(1)


def main() -> int:
    """Run the comparison on `--nproc` ranks of this machine and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--iters", type=int, default=5)
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
