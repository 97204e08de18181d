"""Numbers as people read them."""

from __future__ import annotations

import pytest

from workbench.views import units


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(-1, "-"), (0, "0 B"), (999, "999 B"), (4194304, "4.19 MB"), (82e9, "82.0 GB"), (3.2e15, "3200 TB")],
)
def test_size(num_bytes: float, text: str) -> None:
    assert units.size(num_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "-"), (84e-5, "840 us"), (0.0124, "12.4 ms"), (3.214, "3.21 s"), (125, "2 min 05 s")],
)
def test_duration(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "", "-"),
        (True, "", "yes"),
        (12, "steps", "12 steps"),
        (2.98119e-07, "", "2.9812e-07"),
        (262144.0, "", "262144"),
        (5e12, "", "5e+12"),
        (3145728, "B", "3.15 MB"),
        (True, "B", "yes B"),
        ("below 0.1", "", "below 0.1"),
    ],
)
def test_number(value: float | int | str | bool | None, unit: str, text: str) -> None:
    assert units.number(value, unit) == text


def test_allowance() -> None:
    assert (units.allowance(6553.6, "B"), units.allowance(0.025, "s")) == ("6.55 kB", "0.025")


@pytest.mark.parametrize(
    ("ranks", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 4, 6, 7], "0-2, 4, 6-7"), ([2, 1, 1], "1-2")]
)
def test_ranks_text(ranks: list[int], text: str) -> None:
    assert units.ranks_text(ranks) == text
