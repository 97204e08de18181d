"""Wrong ways to overlap."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from labs.comms import Comms
from labs.data_parallel.exercises.bucket_and_overlap.solution import fill as _fill
from labs.data_parallel.exercises.bucket_and_overlap.solution import give_back as _give_back
from labs.data_parallel.exercises.bucket_and_overlap.solution import overlap as _right


def begun_after_backward(module: nn.Module, comms: Comms, bucket_elements: int) -> Callable[[], None]:
    """The means are right, but every all-reduce began after backward had ended: nothing overlaps. Begin a
    bucket in the hook of its last gradient."""
    buckets = _fill(list(reversed(list(module.parameters()))), bucket_elements)

    def finish() -> None:
        for bucket in buckets:
            _reduce(bucket, comms)

    return finish


def one_all_reduce_a_parameter(module: nn.Module, comms: Comms, bucket_elements: int) -> Callable[[], None]:
    """Each parameter has an all-reduce of its own: that overlaps, but pays the start-up cost once a
    parameter."""
    return _right(module, comms, 1)


def one_bucket_for_all(module: nn.Module, comms: Comms, bucket_elements: int) -> Callable[[], None]:
    """All gradients are in one bucket, which is full when backward has ended: nothing overlaps."""
    return _right(module, comms, 1 << 30)


def buckets_in_the_order_of_the_module(
    module: nn.Module, comms: Comms, bucket_elements: int
) -> Callable[[], None]:
    """The buckets hold the first layers first, but backward begins with the last: the first bucket is full
    when all is over, and ranks may even fill them in different orders. Take the parameters in reverse."""
    turned = nn.ParameterList(reversed(list(module.parameters())))
    return _right(turned, comms, bucket_elements)


def never_waited_for(module: nn.Module, comms: Comms, bucket_elements: int) -> Callable[[], None]:
    """The all-reduces are begun and nobody waits for their handles: what the buffers hold is chance."""
    buckets = _fill(list(reversed(list(module.parameters()))), bucket_elements)
    left = [len(bucket) for bucket in buckets]

    def arrived(number: int) -> None:
        left[number] -= 1
        if left[number] == 0:
            flat = torch.cat([p.grad.reshape(-1) for p in buckets[number] if p.grad is not None])
            comms.all_reduce(flat, async_op=True)
            _give_back(buckets[number], flat / comms.world_size)
            left[number] = len(buckets[number])

    for number, bucket in enumerate(buckets):
        for parameter in bucket:
            parameter.register_post_accumulate_grad_hook(lambda _p, number=number: arrived(number))  # type: ignore[no-untyped-call]
    return lambda: None


def counts_not_set_back(module: nn.Module, comms: Comms, bucket_elements: int) -> Callable[[], None]:
    """The first backward is averaged and the later ones are not: finish() has to set back what each bucket
    waits for."""
    finish, calls = _right(module, comms, bucket_elements), [0]

    def once() -> None:
        if calls[0] == 0:
            finish()
            for parameter in module.parameters():
                parameter._post_accumulate_grad_hooks.clear()
        calls[0] += 1

    return once


def summed_not_averaged(module: nn.Module, comms: Comms, bucket_elements: int) -> Callable[[], None]:
    """Your gradients are W times too large: summed, not averaged."""
    finish = _right(module, comms, bucket_elements)

    def summed() -> None:
        finish()
        for parameter in module.parameters():
            assert parameter.grad is not None
            parameter.grad *= comms.world_size

    return summed


def _reduce(bucket: list[nn.Parameter], comms: Comms) -> None:
    flat = torch.cat([p.grad.reshape(-1) for p in bucket if p.grad is not None])
    comms.all_reduce(flat)
    _give_back(bucket, flat / comms.world_size)
