"""Each operation as one call on this rank's buffer, whatever shape its result has."""

from __future__ import annotations

import torch
from torch import Tensor

from labs.collectives.theory import Op
from labs.comms import Comms, Handle


def perform(
    comms: Comms, op: Op, buffer: Tensor, elements: int, root: int, reduce_op: str, async_op: bool
) -> tuple[Tensor, list[Handle]]:
    """Start `op` on a copy of `buffer`; return where the result will be and the handles to wait for.

    Without `async_op` the result is there already and there is nothing to wait for (but for `send_recv`,
    whose two halves must both be under way before either is waited for).
    """
    world_size, rank = comms.world_size, comms.rank
    buffer = buffer.clone()
    piece = buffer.new_empty(elements)
    whole = buffer.new_empty(elements * world_size)
    handle: Handle | None = None
    result = buffer
    match op:
        case "broadcast":
            handle = comms.broadcast(buffer, root, async_op)
        case "scatter":
            result = piece
            pieces = list(torch.split(buffer, elements)) if rank == root else None
            handle = comms.scatter(piece, pieces, root, async_op)
        case "gather":
            slots = list(torch.split(whole, elements)) if rank == root else None
            result = whole if rank == root else buffer
            handle = comms.gather(slots, buffer, root, async_op)
        case "reduce":
            handle = comms.reduce(buffer, root, reduce_op, async_op)
        case "all_gather":
            result = whole
            handle = comms.all_gather(whole, buffer, async_op)
        case "reduce_scatter":
            result = piece
            handle = comms.reduce_scatter(piece, buffer, reduce_op, async_op)
        case "all_reduce":
            handle = comms.all_reduce(buffer, reduce_op, async_op)
        case "all_to_all":
            result = whole
            handle = comms.all_to_all(whole, buffer, async_op)
        case "barrier":
            handle = comms.barrier(async_op)
        case "send_recv":
            result = torch.empty_like(buffer)
            right, left = (rank + 1) % world_size, (rank - 1) % world_size
            return result, comms.exchange([(buffer, right)], [(result, left)])
    return result, [handle] if handle is not None else []
