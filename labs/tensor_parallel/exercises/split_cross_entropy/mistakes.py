"""Wrong losses over a split vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

from labs.comms import Comms


def each_rank_its_own_maximum(logits: Tensor, targets: Tensor, comms: Comms) -> Tensor:
    """The ranks subtracted different maxima, each that of its own words, so the sums do not fit together:
    all-reduce the maximum (op max) before exp."""
    return _loss(logits, targets, comms, logits.max(dim=1).values)


def no_maximum_subtracted(logits: Tensor, targets: Tensor, comms: Comms) -> Tensor:
    """With large logits exp overflows to infinity: subtract the largest logit of the row, over all ranks."""
    return _loss(logits, targets, comms, logits.new_zeros(len(logits)))


def sum_of_the_maxima(logits: Tensor, targets: Tensor, comms: Comms) -> Tensor:
    """The maxima were summed over the ranks; the all-reduce of a maximum needs op max. The shift is the
    same on all ranks, so small logits still come out right, but large ones are shifted far too low."""
    peak = logits.max(dim=1).values
    comms.all_reduce(peak)
    return _loss(logits, targets, comms, peak)


def the_ranks_own_words_only(logits: Tensor, targets: Tensor, comms: Comms) -> Tensor:
    """The sum of the exponentials is over this rank's words only: it has to be all-reduced."""
    peak = logits.max(dim=1).values
    comms.all_reduce(peak, op="max")
    shifted, own = _shifted(logits, targets, comms, peak)
    comms.all_reduce(own)
    return shifted.exp().sum(1).log() - own


def target_of_another_ranks_words(logits: Tensor, targets: Tensor, comms: Comms) -> Tensor:
    """Every rank looked the target up among its own words, though it lies on one rank only: those that do not
    have it must bring zero to the sum."""
    peak = logits.max(dim=1).values
    comms.all_reduce(peak, op="max")
    shifted = logits - peak[:, None]
    own = shifted[torch.arange(len(logits)), targets % logits.shape[1]]
    sums = torch.stack((shifted.exp().sum(1), own))
    comms.all_reduce(sums)
    return sums[0].log() - sums[1]


def all_logits_gathered(logits: Tensor, targets: Tensor, comms: Comms) -> Tensor:
    """The losses are right, but the logits were gathered: that moves and holds N x V numbers, which the split
    was to avoid."""
    rows, width = logits.shape
    everything = logits.new_empty(comms.world_size * rows, width)
    comms.all_gather(everything, logits)
    whole = everything.view(comms.world_size, rows, width).transpose(0, 1).reshape(rows, -1)
    return torch.logsumexp(whole, 1) - whole[torch.arange(rows), targets]


def _shifted(logits: Tensor, targets: Tensor, comms: Comms, peak: Tensor) -> tuple[Tensor, Tensor]:
    width = logits.shape[1]
    shifted = logits - peak[:, None]
    local = targets - comms.rank * width
    mine = (local >= 0) & (local < width)
    return shifted, shifted[torch.arange(len(logits)), local.clamp(0, width - 1)] * mine


def _loss(logits: Tensor, targets: Tensor, comms: Comms, peak: Tensor) -> Tensor:
    shifted, own = _shifted(logits, targets, comms, peak)
    sums = torch.stack((shifted.exp().sum(1), own))
    comms.all_reduce(sums)
    return sums[0].log() - sums[1]
