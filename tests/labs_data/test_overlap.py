"""Hidden and exposed communication, by intervals alone."""

from __future__ import annotations

import pytest

from labs.overlap import Interval, OverlapMeter, length, shared, union


def test_a_union_is_in_order_and_without_overlaps() -> None:
    """Touching ones join, empty and reversed ones go."""
    assert union([(5, 9), (1, 3), (3, 4), (6, 7), (8, 12), (20, 20), (30, 25)]) == [(1, 4), (5, 12)]
    assert length([(0, 10), (5, 15)]) == 15


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([(0, 10)], [(10, 20)], 0),
        ([(0, 10)], [(4, 6)], 2),
        ([(0, 4), (6, 10)], [(2, 8)], 4),
        ([(0, 4), (2, 10)], [(1, 3), (2, 5), (9, 99)], 5),
        ([], [(0, 1)], 0),
    ],
)
def test_shared_moments(left: list[Interval], right: list[Interval], expected: int) -> None:
    """Whichever way round."""
    assert shared(left, right) == shared(right, left) == expected


def test_the_meter_counts_training_alone() -> None:
    """Not other groups, other collectives, or what runs outside of a step; late spans find their step."""
    meter = OverlapMeter("all_reduce", ("world",))

    def tell(lane: str, name: str, t0: int, t1: int, step: int, group: str = "world") -> None:
        meter(lane, name, t0, t1, {"step": step, "group": group})

    for step in range(6):
        at = 100 * step
        tell("compute", "backward", at, at + 10, step)
        tell("comm", "all_reduce", at + 6, at + 14, step)
        tell("comm", "all_reduce", at + 12, at + 16, step)
        tell("comm", "all_reduce", at, at + 50, step, group="proof")
        tell("comm", "all_gather", at, at + 50, step)
        tell("idle", "wait all_reduce", at + 10, at + 16, step)
    tell("comm", "all_reduce", 0, 1000, -1)
    tell("compute", "late", 310, 312, 3)
    assert meter.calls == 12
    assert meter.totals() == (6 * 4 + 2, 6 * 10)
