"""1F1B as a list of actions."""

from __future__ import annotations


def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    """Return what a rank does, in order: `2F0` is stage 2, forward, micro-batch 0; `2B0` its backward.

    Args:
        rank: the rank, 0 to p-1; it holds the stage of the same number.
        p: number of ranks and stages.
        m: number of micro-batches; may be smaller than p.
    """
    raise NotImplementedError
