"""Bucket and overlap."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from labs.comms import Comms


def overlap(module: nn.Module, comms: Comms, bucket_elements: int) -> Callable[[], None]:
    """Average gradients in buckets, each begun while backward still runs.

    Args:
        module: the replica; every parameter gets a gradient in each backward.
        comms: has `world_size` and `all_reduce(tensor, async_op=True)`, which returns a handle with `wait()`.
        bucket_elements: a bucket is closed by the parameter with which it has so many elements or more.
            Parameters go into buckets in the reverse of the module's order; the last bucket takes the rest.

    Returns:
        `finish`, to be called after each backward: afterwards `.grad` holds the means.
    """
    raise NotImplementedError
