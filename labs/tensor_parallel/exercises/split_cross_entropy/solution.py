"""Cross entropy over a split vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

from labs.comms import Comms


def split_cross_entropy(logits: Tensor, targets: Tensor, comms: Comms) -> Tensor:
    """Return the cross entropy of each row: all-reduces of 3 N numbers in all."""
    rows, width = logits.shape
    peak = logits.max(dim=1).values
    comms.all_reduce(peak, op="max")
    shifted = logits - peak[:, None]
    local = targets - comms.rank * width
    mine = (local >= 0) & (local < width)
    own = shifted[torch.arange(rows), local.clamp(0, width - 1)] * mine
    sums = torch.stack((shifted.exp().sum(1), own))
    comms.all_reduce(sums)
    return sums[0].log() - sums[1]
