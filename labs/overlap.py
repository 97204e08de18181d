"""How much of the communication hides behind computation: interval arithmetic, and a meter that uses it.

Communication counts as hidden while this rank computes at the same time. The rest is exposed: the step is
longer by it. Loads no torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

Interval = tuple[int, int]
"""Start and end, in nanoseconds."""
OPEN_STEPS = 3
"""Spans of a step may come late, from CUDA events that had not passed; so many steps are kept open."""


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the same moments as disjoint intervals in order; empty and reversed ones are left out."""
    merged: list[Interval] = []
    for start, end in sorted(pair for pair in intervals if pair[1] > pair[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def length(intervals: Iterable[Interval]) -> int:
    """Return the nanoseconds that at least one of the intervals covers."""
    return sum(end - start for start, end in union(intervals))


def shared(left: Iterable[Interval], right: Iterable[Interval]) -> int:
    """Return the nanoseconds that both sets of intervals cover."""
    ours, theirs = union(left), union(right)
    total = i = j = 0
    while i < len(ours) and j < len(theirs):
        total += max(0, min(ours[i][1], theirs[j][1]) - max(ours[i][0], theirs[j][0]))
        if ours[i][1] < theirs[j][1]:
            i += 1
        else:
            j += 1
    return total


class OverlapMeter:
    """Hears a rank's spans (`Recorder.observers`) and sums up, step by step, what was hidden.

    Args:
        op: the collective whose spans count as communication.
        groups: the groups in which it counts; others carry what is no part of the training.
    """

    def __init__(self, op: str, groups: Collection[str]) -> None:
        self.op = op
        self.groups = groups
        self.calls = 0
        """Spans of communication heard."""
        self._hidden = 0
        self._total = 0
        self._open: dict[int, tuple[list[Interval], list[Interval]]] = {}

    def __call__(self, lane: str, name: str, t0: int, t1: int, fields: dict[str, Any]) -> None:
        """Take a span; those outside of a step are no part of the training."""
        step = fields["step"]
        counts = lane == "comm" and name == self.op and fields.get("group") in self.groups
        if step < 0 or not (counts or lane == "compute"):
            return
        self.calls += counts
        self._open.setdefault(step, ([], []))[0 if counts else 1].append((t0, t1))
        for old in [known for known in self._open if known <= step - OPEN_STEPS]:
            self._close(old)

    def totals(self) -> tuple[int, int]:
        """Close all steps; return the nanoseconds of communication that were hidden, and all of them."""
        for step in list(self._open):
            self._close(step)
        return self._hidden, self._total

    def _close(self, step: int) -> None:
        communication, computation = self._open.pop(step)
        self._hidden += shared(communication, computation)
        self._total += length(communication)
