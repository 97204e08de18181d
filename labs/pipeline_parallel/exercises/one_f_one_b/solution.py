"""1F1B as a list of actions."""

from __future__ import annotations


def one_f_one_b(rank: int, p: int, m: int) -> list[str]:
    """Return what a rank does: warm-up, one forward and one backward in turn, drain."""
    warm = min(m, p - 1 - rank)
    actions = [f"{rank}F{number}" for number in range(warm)]
    for number in range(m - warm):
        actions += [f"{rank}F{warm + number}", f"{rank}B{number}"]
    return actions + [f"{rank}B{number}" for number in range(m - warm, m)]
