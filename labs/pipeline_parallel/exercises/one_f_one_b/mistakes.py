"""Wrong 1F1B orders."""

from __future__ import annotations


def all_forwards_first(rank: int, p: int, m: int) -> list[str]:
    """That is GPipe: all forwards, then all backwards. It has the same bubble, but keeps m micro-batches
    alive."""
    return [f"{rank}{kind}{number}" for kind in "FB" for number in range(m)]


def all_forwards_first_then_back_to_front(rank: int, p: int, m: int) -> list[str]:
    """That is GPipe with the backwards from the last micro-batch to the first; 1F1B begins a backward as
    soon as one can be done."""
    forwards = [f"{rank}F{number}" for number in range(m)]
    return forwards + [f"{rank}B{number}" for number in reversed(range(m))]


def one_warm_up_forward_too_many(rank: int, p: int, m: int) -> list[str]:
    """Each rank does one forward more than it needs before its first backward: warm-up is p-1-rank
    forwards, and the pair that follows begins with a forward already."""
    return _order(rank, m, min(m, p - rank))


def the_same_warm_up_on_every_rank(rank: int, p: int, m: int) -> list[str]:
    """Every rank warms up with p-1 forwards. The later a stage, the sooner its gradient: the last rank can go
    backward after its first forward, and warm-up is p-1-rank."""
    return _order(rank, m, min(m, p - 1))


def warm_up_grows_with_the_rank(rank: int, p: int, m: int) -> list[str]:
    """The warm-up is counted from the wrong end: rank 0 waits longest for its first gradient, so it has the
    most forwards to do before, p-1-rank."""
    return _order(rank, m, min(m, rank))


def no_drain(rank: int, p: int, m: int) -> list[str]:
    """The backwards of the micro-batches that were warmed up with are missing at the end."""
    right = _order(rank, m, min(m, p - 1 - rank))
    return right[: len(right) - min(m, p - 1 - rank)]


def warm_up_beyond_the_micro_batches(rank: int, p: int, m: int) -> list[str]:
    """With fewer micro-batches than the warm-up wants you go on to micro-batches that do not exist: it is
    min(m, p-1-rank)."""
    return _order(rank, m, p - 1 - rank)


def _order(rank: int, m: int, warm: int) -> list[str]:
    actions = [f"{rank}F{number}" for number in range(warm)]
    for number in range(m - warm):
        actions += [f"{rank}F{warm + number}", f"{rank}B{number}"]
    return actions + [f"{rank}B{number}" for number in range(max(0, m - warm), m)]
