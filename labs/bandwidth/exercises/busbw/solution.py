"""Bus bandwidth from times."""

from __future__ import annotations


def bus_bandwidth(op: str, tensor_bytes: int, world_size: int, seconds: list[float]) -> float:
    """Return the bus bandwidth of one operation in GB/s, by the conventions of nccl-tests."""
    total = tensor_bytes * world_size if op == "all_gather" else tensor_bytes
    share = (world_size - 1) / world_size
    factor = {"all_reduce": 2 * share, "all_gather": share, "reduce_scatter": share, "broadcast": 1.0}[op]
    return total / max(seconds) * factor / 1e9
