"""What nccl-tests would print for the same times."""

from __future__ import annotations

from typing import Any

from labs.bandwidth.theory import bus_factor, total_bytes
from labs.exercise_comms import WatchedComms

FUNCTIONS = ("bus_bandwidth",)
MIB = 1 << 20
CASES = {
    "all_reduce of 64 MiB": ("all_reduce", 64 * MIB, 0.040),
    "all_gather of 16 MiB a rank": ("all_gather", 16 * MIB, 0.025),
    "reduce_scatter of 64 MiB": ("reduce_scatter", 64 * MIB, 0.030),
    "broadcast of 8 MiB": ("broadcast", 8 * MIB, 0.004),
}
USUALLY = "Look at the three parts one by one: S, the time, the factor."


def run(yours: Any, comms: WatchedComms, case: tuple[str, int, float]) -> dict[str, Any]:
    """Ask for the bandwidth of one operation."""
    op, size, seconds = case
    times = times_of(seconds, comms.world_size)
    return {"busbw in GB/s": yours.bus_bandwidth(op, size, comms.world_size, times)}


def expected(rank: int, world_size: int, case: tuple[str, int, float]) -> dict[str, Any]:
    """The figure by the formulas of the bandwidth lab."""
    op, size, seconds = case
    piece = size // world_size if op == "reduce_scatter" else size
    total = total_bytes(op, piece, world_size)  # type: ignore[arg-type]
    busbw = total / max(times_of(seconds, world_size)) * bus_factor(op, world_size)  # type: ignore[arg-type]
    return {"busbw in GB/s": busbw / 1e9}


def times_of(seconds: float, world_size: int) -> list[float]:
    """The ranks' times: the last but one is the slowest."""
    times = [seconds * (0.7 + 0.05 * rank) for rank in range(world_size)]
    times[-2] = seconds
    return times
