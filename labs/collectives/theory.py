"""The definitions of the collectives, as arithmetic on lists, and the bytes they cost. Loads no torch.

`buffers` are what all ranks hold before, by rank. A definition says what one rank holds afterwards, and where
each element came from. (MPI 4.1, chapter 6; bytes by `labs.bandwidth.theory`, that is by nccl-tests.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from labs.bandwidth import theory as bandwidth

Op = Literal[
    "broadcast",
    "scatter",
    "gather",
    "reduce",
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "all_to_all",
    "barrier",
    "send_recv",
]
Buffer = Sequence[float]
OPS: tuple[Op, ...] = get_args(Op)
RING: tuple[Op, ...] = ("all_gather", "reduce_scatter", "all_reduce")
TREE: tuple[Op, ...] = ("broadcast", "reduce")
REDUCING: tuple[Op, ...] = ("reduce", "reduce_scatter", "all_reduce")
DEFINITIONS: dict[Op, str] = {
    "broadcast": "every rank ends with the root's buffer",
    "scatter": "rank r ends with piece r of the root's buffer",
    "gather": "the root ends with every rank's piece, in rank order",
    "reduce": "the root ends with all buffers combined, element by element",
    "all_gather": "every rank ends with every rank's piece, in rank order",
    "reduce_scatter": "rank r ends with piece r of all buffers combined",
    "all_reduce": "every rank ends with all buffers combined, element by element",
    "all_to_all": "piece r of rank s ends as piece s of rank r",
    "barrier": "no rank goes on before every rank has come",
    "send_recv": "rank r ends with the buffer of rank r - 1, round the ring",
}
COMBINED = -1
"""The origin of an element that several ranks contributed to."""
UNWRITTEN = -2
"""The origin of an element that nobody defined."""

_COMBINE: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": sum,
    "avg": lambda column: sum(column) / len(column),
    "min": min,
    "max": max,
    "product": math.prod,
}


@dataclass(frozen=True)
class Outcome:
    """What a rank holds after an operation, and for each element the rank it came from."""

    values: list[float]
    origin: list[int]


def has_pieces(op: Op, rank: int, root: int) -> bool:
    """Whether this rank brings a piece for every rank, rather than one piece of its own."""
    return op in ("reduce_scatter", "all_to_all") or (op == "scatter" and rank == root)


def start_of(op: Op, rank: int, world_size: int, elements: int, root: int, reduce_op: str) -> list[float]:
    """Return what a rank holds before: `elements` or `elements` x W numbers, none where it only receives.

    The leading digit is the rank + 1, the rest counts up. Products get 2, -1 and 1, which stay exact.
    """
    if op == "barrier" or (op == "scatter" and rank != root):
        return []
    length = elements * (world_size if has_pieces(op, rank, root) else 1)
    if op in REDUCING and reduce_op == "product":
        return [
            2.0 if j % world_size == rank else -1.0 if (j + 1) % world_size == rank else 1.0
            for j in range(length)
        ]
    stride = 10 ** min(3, len(str(length - 1)))
    return [float((rank + 1) * stride + j % stride) for j in range(length)]


def outcome(op: Op, rank: int, buffers: Sequence[Buffer], root: int, reduce_op: str) -> Outcome | None:
    """Return what `rank` must hold after `op`; None where the operation leaves its buffer undefined."""
    world_size = len(buffers)
    match op:
        case "broadcast":
            return _moved([(root, buffers[root])])
        case "scatter":
            return _moved([(root, _piece(buffers[root], rank, world_size))])
        case "gather":
            return _moved(list(enumerate(buffers))) if rank == root else None
        case "all_gather":
            return _moved(list(enumerate(buffers)))
        case "all_to_all":
            return _moved([(peer, _piece(buffer, rank, world_size)) for peer, buffer in enumerate(buffers)])
        case "send_recv":
            before = (rank - 1) % world_size
            return _moved([(before, buffers[before])])
        case "reduce":
            return _combined(buffers, reduce_op) if rank == root else None
        case "all_reduce":
            return _combined(buffers, reduce_op)
        case "reduce_scatter":
            return _combined([_piece(buffer, rank, world_size) for buffer in buffers], reduce_op)
        case "barrier":
            return Outcome([], [])


def _piece(buffer: Buffer, index: int, count: int) -> Buffer:
    size = len(buffer) // count
    return buffer[index * size : (index + 1) * size]


def _moved(parts: Sequence[tuple[int, Buffer]]) -> Outcome:
    return Outcome(
        [value for _, buffer in parts for value in buffer],
        [rank for rank, buffer in parts for _ in buffer],
    )


def _combined(buffers: Sequence[Buffer], reduce_op: str) -> Outcome:
    values = [_COMBINE[reduce_op](column) for column in zip(*buffers, strict=True)]
    return Outcome(values, [COMBINED] * len(values))


def payload_bytes(op: Op, elements: int, world_size: int, itemsize: int) -> int:
    """Return S: one buffer, or the total of all pieces; 0 for a barrier."""
    return 0 if op == "barrier" else bandwidth.total_bytes(op, elements * itemsize, world_size)


def sent_bytes(op: Op, rank: int, root: int, world_size: int, payload: int) -> float:
    """Return what a rank sends for S = `payload` by an algorithm that uses every link evenly.

    Rings and direct transfers, the root's place taken into account; see `labs.bandwidth.theory.transfers`.
    """
    if op == "barrier":
        return 0.0
    place = (rank - root) % world_size
    return float(
        payload * sum(share for sender, _, share in bandwidth.transfers(op, world_size) if sender == place)
    )


def stepwise_bytes(op: Op, world_size: int, payload: int) -> int:
    """Return what all ranks together send for S = `payload`, step by step.

    Ring: W-1 times S for each of its halves. Binomial tree: each rank but the root gets S once.
    """
    return (2 if op == "all_reduce" else 1) * (world_size - 1) * payload


def stepwise_rounds(op: Op, world_size: int) -> int:
    """Return the steps that follow one another: W-1 a half on the ring, ceil(log2 W) in the tree."""
    if op in TREE:
        return (world_size - 1).bit_length()
    return (2 if op == "all_reduce" else 1) * (world_size - 1)
