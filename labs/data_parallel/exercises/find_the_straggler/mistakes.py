"""Wrong answers to who the straggler is."""

from __future__ import annotations

import torch
from torch import Tensor

from labs.comms import Comms


def the_largest_single_time(computed: Tensor, comms: Comms) -> tuple[int, float]:
    """You took the rank with the longest single step. One garbage collection or one slow read makes anyone
    the slowest once: count in how many steps each rank was last."""
    times = _times(computed, comms)
    return int(times.max(dim=1).values.argmax()), _waited(times)


def the_largest_total(computed: Tensor, comms: Comms) -> tuple[int, float]:
    """You took the rank with the longest time in total. One step in which a rank hung outweighs all others
    in a sum or mean: count in how many steps each rank was last."""
    times = _times(computed, comms)
    return int(times.sum(dim=1).argmax()), _waited(times)


def the_fastest_rank(computed: Tensor, comms: Comms) -> tuple[int, float]:
    """You named the rank that is in the all-reduce for the longest time: it comes first and waits. The
    straggler comes last and waits least."""
    times = _times(computed, comms)
    return int(times.argmin(dim=0).bincount(minlength=comms.world_size).argmax()), _waited(times)


def each_rank_names_itself(computed: Tensor, comms: Comms) -> tuple[int, float]:
    """The ranks disagree: each answered from its own times. Gather everyone's first."""
    return comms.rank, _waited(_times(computed, comms))


def waiting_of_one_rank(computed: Tensor, comms: Comms) -> tuple[int, float]:
    """The straggler is right and the cost too small: while one rank computes all the others wait, so their
    times add up; you took the mean over the ranks."""
    times = _times(computed, comms)
    return _straggler(times), _waited(times) / comms.world_size


def waiting_of_all_steps(computed: Tensor, comms: Comms) -> tuple[int, float]:
    """The straggler is right, and the cost is that of all steps together: it is asked for a step."""
    times = _times(computed, comms)
    return _straggler(times), _waited(times) * len(computed)


def _times(computed: Tensor, comms: Comms) -> Tensor:
    everyone = computed.new_empty(comms.world_size * len(computed))
    comms.all_gather(everyone, computed)
    return everyone.view(comms.world_size, -1)


def _straggler(times: Tensor) -> int:
    return int(times.argmax(dim=0).bincount(minlength=len(times)).argmax())


def _waited(times: Tensor) -> float:
    return float((torch.max(times, dim=0).values - times).sum(dim=0).mean())
