"""Wrong interleaved orders."""

from __future__ import annotations

from collections.abc import Callable


def one_chunk_after_the_other(rank: int, p: int, m: int, v: int) -> list[str]:
    """All micro-batches go through a chunk before the next chunk begins. Then the warm-up must cover whole
    chunks, and memory grows with m: change the chunk after every p micro-batches."""
    return _order(rank, p, m, v, lambda k: (k // m, k % m))


def the_warm_up_of_plain_1f1b(rank: int, p: int, m: int, v: int) -> list[str]:
    """The warm-up is too short: beside p-1-rank forwards it covers a first round of all chunks but the
    last, and counts double what comes before the first gradient: 2(p-1-rank) + (v-1)p."""
    return _order(rank, p, m, v, _rounds(p, v), warm=p - 1 - rank)


def one_forward_a_hop(rank: int, p: int, m: int, v: int) -> list[str]:
    """The warm-up is too short: a gradient needs as long on its way back as the activation on its way
    there, so each rank before the last has two more forwards than the next, not one."""
    return _order(rank, p, m, v, _rounds(p, v), warm=p - 1 - rank + (v - 1) * p)


def neighbouring_stages_on_a_rank(rank: int, p: int, m: int, v: int) -> list[str]:
    """A rank holds neighbouring stages, rank v to rank v + v-1. That is a pipeline of p long stages once
    more: deal them out in turn, rank, rank + p, ..."""
    return _order(rank, p, m, v, _rounds(p, v), stage=lambda chunk: rank * v + chunk)


def chunks_backward_in_the_order_of_forward(rank: int, p: int, m: int, v: int) -> list[str]:
    """The backwards begin with the first chunk; a gradient comes from the last stage, so the last chunk is
    first."""
    return _order(rank, p, m, v, _rounds(p, v), turn=False)


def _rounds(p: int, v: int) -> Callable[[int], tuple[int, int]]:
    return lambda k: (k // p % v, k // (p * v) * p + k % p)


def _order(
    rank: int,
    p: int,
    m: int,
    v: int,
    unit: Callable[[int], tuple[int, int]],
    *,
    warm: int | None = None,
    stage: Callable[[int], int] | None = None,
    turn: bool = True,
) -> list[str]:
    total = m * v
    warm = min(total, 2 * (p - 1 - rank) + (v - 1) * p if warm is None else warm)
    place = stage or (lambda chunk: rank + chunk * p)

    def action(kind: str, k: int) -> str:
        chunk, micro_batch = unit(k)
        return f"{place(v - 1 - chunk if kind == 'B' and turn else chunk)}{kind}{micro_batch}"

    actions = [action("F", k) for k in range(warm)]
    for k in range(total - warm):
        actions += [action("F", warm + k), action("B", k)]
    return actions + [action("B", k) for k in range(total - warm, total)]
