"""Cross entropy over a split vocabulary."""

from __future__ import annotations

from torch import Tensor

from labs.comms import Comms


def split_cross_entropy(logits: Tensor, targets: Tensor, comms: Comms) -> Tensor:
    """Return the cross entropy of each row, in nats; no backward is asked for.

    Args:
        logits: this rank's words, shape (N, V/W): words rank V/W to (rank+1) V/W.
        targets: the right word of each row, shape (N,), int64, from 0 to V-1, the same on every rank.
        comms: has `rank`, `world_size` and `all_reduce(tensor, op)` with op `sum` or `max`, in place.

    Returns:
        the losses, shape (N,), on every rank. At most 4 N numbers may be communicated.
    """
    raise NotImplementedError
