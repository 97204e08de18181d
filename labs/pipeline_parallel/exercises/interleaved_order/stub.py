"""Interleaved 1F1B as a list of actions."""

from __future__ import annotations


def interleaved(rank: int, p: int, m: int, v: int) -> list[str]:
    """Return what a rank does, in order: `5F0` is stage 5, forward, micro-batch 0; `5B0` its backward.

    Args:
        rank: the rank, 0 to p-1; it holds stages rank, rank + p, ..., rank + (v-1) p.
        p: number of ranks.
        m: number of micro-batches, a multiple of p.
        v: chunks (stages) a rank.
    """
    raise NotImplementedError
