"""The largest error is not the largest that happens to be a number."""

from __future__ import annotations

import math

import pytest

from labs.comms import Comms
from labs.worst import farthest, over_ranks, ratio, worst
from tests.ranks import with_comms


def test_nothing_hides_behind_a_number() -> None:
    assert worst([]) == 0.0
    assert worst([0.5, 2.0, 1.0]) == 2.0
    assert worst([0.5, math.nan, 1.0]) == math.inf


def test_nothing_is_divided_by() -> None:
    assert (ratio(1.0, 4.0), ratio(0.0, 0.0), ratio(1.0, 0.0)) == (0.25, 0.0, math.inf)


def test_what_has_fallen_is_held_to_a_part_of_what_it_was() -> None:
    assert farthest([1.0, 0.6], [1.0, 0.5]) == pytest.approx(0.2)
    assert farthest([1.0, 2e-6], [1.0, 1e-6]) == pytest.approx(1e-3)
    assert farthest([2.0, 0.0], [2.0, 0.0]) == 0.0
    assert farthest([1.0, math.nan], [1.0, 1.0]) == math.inf


def off_on_rank_1(comms: Comms) -> list[float]:
    """Rank 1 alone is off, in the first number by NaN."""
    return over_ranks(comms, [math.nan if comms.rank else 0.0, float(comms.rank)], "max")


def test_nor_on_another_rank() -> None:
    assert with_comms(2, off_on_rank_1) == [[math.inf, 1.0]] * 2
