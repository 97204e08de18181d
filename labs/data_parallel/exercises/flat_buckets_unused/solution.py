"""Flat buckets with unused parameters."""

from __future__ import annotations

import torch
from torch import nn

from labs.comms import Comms


def average_flat(module: nn.Module, comms: Comms) -> None:
    """Put the mean over the ranks into each parameter's `.grad`: one all-reduce of gradients and use
    counts."""
    parameters = list(module.parameters())
    used = torch.tensor([float(p.grad is not None) for p in parameters])
    there = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
    flat = torch.cat([*(each.reshape(-1) for each in there), used])
    comms.all_reduce(flat)
    *pieces, counts = torch.split(flat, [*(p.numel() for p in parameters), len(parameters)])
    for parameter, piece, count in zip(parameters, pieces, counts, strict=True):
        if count > 0:
            parameter.grad = piece.view_as(parameter) / comms.world_size
