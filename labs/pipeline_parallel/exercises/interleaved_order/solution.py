"""Interleaved 1F1B as a list of actions."""

from __future__ import annotations


def interleaved(rank: int, p: int, m: int, v: int) -> list[str]:
    """Return what a rank does: 1F1B over its m v units, in rounds of p micro-batches."""

    def unit(kind: str, number: int) -> str:
        chunk = number // p % v
        if kind == "B":
            chunk = v - 1 - chunk
        return f"{rank + chunk * p}{kind}{number // (p * v) * p + number % p}"

    total = m * v
    warm = min(total, 2 * (p - 1 - rank) + (v - 1) * p)
    actions = [unit("F", number) for number in range(warm)]
    for number in range(total - warm):
        actions += [unit("F", warm + number), unit("B", number)]
    return actions + [unit("B", number) for number in range(total - warm, total)]
