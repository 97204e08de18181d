"""Bus bandwidth from times."""

from __future__ import annotations


def bus_bandwidth(op: str, tensor_bytes: int, world_size: int, seconds: list[float]) -> float:
    """Return the bus bandwidth of one operation in GB/s (1e9 bytes a second).

    Args:
        op: `all_reduce`, `all_gather`, `reduce_scatter` or `broadcast`.
        tensor_bytes: bytes of the tensor that each rank puts in.
        world_size: W, how many ranks took part.
        seconds: how long it took each rank, from a common start; W numbers.
    """
    raise NotImplementedError
