"""The largest error is not the largest that happens to be a number."""

from __future__ import annotations

import math

from labs.comms import Comms
from labs.worst import over_ranks, worst
from tests.ranks import with_comms


def test_nothing_hides_behind_a_number() -> None:
    assert worst([]) == 0.0
    assert worst([0.5, 2.0, 1.0]) == 2.0
    assert worst([0.5, math.nan, 1.0]) == math.inf


def off_on_rank_1(comms: Comms) -> list[float]:
    """Rank 1 alone is off, in the first number by NaN."""
    return over_ranks(comms, [math.nan if comms.rank else 0.0, float(comms.rank)], "max")


def test_nor_on_another_rank() -> None:
    assert with_comms(2, off_on_rank_1) == [[math.inf, 1.0]] * 2
