"""Wrong bandwidths; each is a figure that somebody has published."""

from __future__ import annotations

from labs.bandwidth.exercises.busbw.solution import bus_bandwidth as _right

GIB = 1 << 30


def counted_in_gibibytes(op: str, tensor_bytes: int, world_size: int, seconds: list[float]) -> float:
    """The figure is 7% too small: you divided by 1024^3, which gives GiB/s; a GB is 1e9 bytes."""
    return _right(op, tensor_bytes, world_size, seconds) * 1e9 / GIB


def no_factor(op: str, tensor_bytes: int, world_size: int, seconds: list[float]) -> float:
    """That is algbw, S / t. busbw multiplies it by what each link has to carry of S, which depends on the
    operation and the number of ranks."""
    total = tensor_bytes * world_size if op == "all_gather" else tensor_bytes
    return total / max(seconds) / 1e9


def one_piece_counted(op: str, tensor_bytes: int, world_size: int, seconds: list[float]) -> float:
    """S of an all_gather is the total that every rank ends up with, W pieces; you counted one rank's piece,
    so the figure is W times too small."""
    right = _right(op, tensor_bytes, world_size, seconds)
    return right / world_size if op == "all_gather" else right


def one_output_of_the_reduce_scatter(
    op: str, tensor_bytes: int, world_size: int, seconds: list[float]
) -> float:
    """S of a reduce_scatter is the total that each rank puts in; you counted the one piece that comes out. A
    recorded lecture shows 72 GB/s beside 278 for that reason."""
    right = _right(op, tensor_bytes, world_size, seconds)
    return right / world_size if op == "reduce_scatter" else right


def the_fastest_rank(op: str, tensor_bytes: int, world_size: int, seconds: list[float]) -> float:
    """The figure is too good: you took the fastest rank's time, and the operation is over when the last
    has it."""
    return _right(op, tensor_bytes, world_size, [min(seconds)])


def the_mean_of_the_ranks(op: str, tensor_bytes: int, world_size: int, seconds: list[float]) -> float:
    """You took the mean of the ranks' times; the operation is over when the last rank has it."""
    return _right(op, tensor_bytes, world_size, [sum(seconds) / len(seconds)])


def once_instead_of_twice(op: str, tensor_bytes: int, world_size: int, seconds: list[float]) -> float:
    """An all_reduce moves everything twice, in a reduce-scatter and an all-gather: its factor is 2(W-1)/W."""
    right = _right(op, tensor_bytes, world_size, seconds)
    return right / 2 if op == "all_reduce" else right
