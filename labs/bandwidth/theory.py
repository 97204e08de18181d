"""What a collective's time says about the links: the S rule, the bus factors and the figures to distrust.

Pure functions; loads no torch. Units: bytes, seconds and bytes a second, unless a name says otherwise.
Sources: nccl-tests `doc/PERFORMANCE.md` for S, algbw and busbw; for the two wrong figures the recorded
output of Stanford CS336 2025, lecture 8, four H100.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Literal, get_args

Op = Literal[
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "all_to_all",
    "gather",
    "scatter",
    "broadcast",
    "reduce",
    "send_recv",
]
Transfer = tuple[int, int, Fraction]
"""(sender, receiver, share of S)."""

OPS: tuple[Op, ...] = get_args(Op)
REDUCING = frozenset({"all_reduce", "reduce_scatter", "reduce"})
ROOTED = frozenset({"gather", "scatter", "broadcast", "reduce"})
CUT_IN_PIECES = frozenset({"reduce_scatter", "all_gather", "all_to_all", "gather", "scatter"})
"""Ops whose S is a total, n times the piece that one rank gives or gets."""
OUT_OF_PLACE_ONLY = frozenset({"all_to_all", "send_recv"})
"""Ops in which a rank would overwrite what it still has to send."""

GB = 1e9
GIB = float(1 << 30)
_FORMULA = {"all_reduce": "2(n-1)/n"} | dict.fromkeys(CUT_IN_PIECES, "(n-1)/n")


def total_bytes(op: Op, piece_bytes: int, world_size: int) -> int:
    """Return S: the total over all ranks where a piece a rank moves, else the one buffer [nccl-tests]."""
    return piece_bytes * world_size if op in CUT_IN_PIECES else piece_bytes


def bus_factor(op: Op, world_size: int) -> float:
    """Return what algbw is multiplied with to be compared with a link's peak, whatever the rank count."""
    n = world_size
    if op == "all_reduce":
        return 2 * (n - 1) / n
    return (n - 1) / n if op in CUT_IN_PIECES else 1.0


def factor_formula(op: Op) -> str:
    """Return the factor as written in nccl-tests' documentation, with n ranks."""
    return _FORMULA.get(op, "1")


def algbw(size: int, seconds: float) -> float:
    """Return S/t in bytes a second: how fast the caller's data is done with."""
    return size / seconds


def busbw(op: Op, size: int, seconds: float, world_size: int) -> float:
    """Return algbw times the factor, in bytes a second: how busy the busiest link is kept."""
    return algbw(size, seconds) * bus_factor(op, world_size)


def transfers(op: Op, world_size: int) -> Iterator[Transfer]:
    """Yield the transfers of a bandwidth-optimal algorithm for `op`, with rank 0 as the root.

    All-reduce, reduce-scatter and all-gather go round a ring in steps of one piece; broadcast and reduce
    run the whole buffer down a chain; the others are direct.
    """
    n = world_size
    piece, whole = Fraction(1, n), Fraction(1)
    ring = [(rank, (rank + 1) % n) for rank in range(n)]
    match op:
        case "all_reduce" | "reduce_scatter" | "all_gather":
            laps = 2 if op == "all_reduce" else 1
            yield from ((a, b, piece) for _ in range(laps * (n - 1)) for a, b in ring)
        case "all_to_all":
            yield from ((a, b, piece) for a in range(n) for b in range(n) if a != b)
        case "gather":
            yield from ((rank, 0, piece) for rank in range(1, n))
        case "scatter":
            yield from ((0, rank, piece) for rank in range(1, n))
        case "broadcast":
            yield from ((a, b, whole) for a, b in ring[:-1])
        case "reduce":
            yield from ((b, a, whole) for a, b in ring[:-1])
        case "send_recv":
            yield from ((a, b, whole) for a, b in ring if a != b)


def busiest_port_bytes(op: Op, size: int, world_size: int) -> float:
    """Return the bytes through the busiest rank's busier direction, counted transfer by transfer.

    A second way to the same number: busbw times t. It does not use `bus_factor`.
    """
    sent = [Fraction(0)] * world_size
    received = [Fraction(0)] * world_size
    for sender, receiver, share in transfers(op, world_size):
        sent[sender] += share
        received[receiver] += share
    return float(max(sent + received) * size)


def busbw_of_one_piece(op: Op, size: int, seconds: float, world_size: int) -> float:
    """Return the busbw that comes out when S is taken for one rank's piece instead of the total.

    This is how 72 to 75 GB/s were reported for a reduce-scatter that ran at 310 (CS336 2025, lecture 8).
    """
    pieces = world_size if op in CUT_IN_PIECES else 1
    return busbw(op, size, seconds, world_size) / pieces


PCIE_LANE_GB_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""GB/s of one PCIe lane in one direction after line coding, by generation (5 x16: 63 GB/s)."""


def nvlink_peak(line_rate_mb_s: int, links: int) -> float | None:
    """Return the peak of `links` NVLinks in one direction (bytes a second), or None if not known.

    Drivers report the line rate (26,562 MB/s on an H100); what is quoted and can carry data is that rounded
    down to 5 GB/s (25, so 450 GB/s each way for its 18 links).
    """
    usable = line_rate_mb_s // 5000 * 5
    return usable * links * GB if usable > 0 and links > 0 else None


def pcie_peak(generation: int, width: int) -> float | None:
    """Return the peak of a PCIe link in one direction (bytes a second), or None if not known."""
    rate = PCIE_LANE_GB_S.get(generation)
    return rate * width * GB if rate and width > 0 else None
