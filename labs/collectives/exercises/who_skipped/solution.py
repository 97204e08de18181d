"""Find the rank that skipped a collective."""

from __future__ import annotations

from collections import Counter


def who_skipped(calls: list[list[str]]) -> tuple[int, int]:
    """Return the first rank that differs from the majority, and where; else the one whose list ended
    first."""
    for place in range(max(map(len, calls))):
        there = {rank: each[place] for rank, each in enumerate(calls) if place < len(each)}
        usual = Counter(there.values()).most_common(1)[0][0]
        for rank, call in there.items():
            if call != usual:
                return rank, place
    rank = min(range(len(calls)), key=lambda each: len(calls[each]))
    return rank, len(calls[rank])
