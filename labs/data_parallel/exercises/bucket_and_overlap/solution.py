"""Bucket and overlap."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from labs.comms import Comms


def overlap(module: nn.Module, comms: Comms, bucket_elements: int) -> Callable[[], None]:
    """Average gradients in buckets, each begun while backward still runs; returns `finish`."""
    buckets = fill(list(reversed(list(module.parameters()))), bucket_elements)
    waiting = [len(bucket) for bucket in buckets]
    running = []

    def arrived(number: int) -> None:
        waiting[number] -= 1
        if waiting[number] == 0:
            flat = torch.cat([p.grad.reshape(-1) for p in buckets[number] if p.grad is not None])
            running.append((buckets[number], flat, comms.all_reduce(flat, async_op=True)))

    def finish() -> None:
        for bucket, flat, handle in running:
            assert handle is not None
            handle.wait()
            give_back(bucket, flat / comms.world_size)
        running.clear()
        waiting[:] = [len(bucket) for bucket in buckets]

    for number, bucket in enumerate(buckets):
        for parameter in bucket:
            parameter.register_post_accumulate_grad_hook(lambda _parameter, number=number: arrived(number))  # type: ignore[no-untyped-call]
    return finish


def fill(parameters: list[nn.Parameter], bucket_elements: int) -> list[list[nn.Parameter]]:
    """Deal parameters out in their order; a bucket is closed when it has enough elements."""
    buckets: list[list[nn.Parameter]] = [[]]
    for parameter in parameters:
        if sum(each.numel() for each in buckets[-1]) >= bucket_elements:
            buckets.append([])
        buckets[-1].append(parameter)
    return buckets


def give_back(bucket: list[nn.Parameter], flat: Tensor) -> None:
    """Copy a bucket's numbers into its parameters' gradients."""
    for parameter, piece in zip(bucket, torch.split(flat, [p.numel() for p in bucket]), strict=True):
        assert parameter.grad is not None
        parameter.grad.copy_(piece.view_as(parameter))
