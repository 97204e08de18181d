"""Sizes with binary suffixes, and the sweep between them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.bandwidth import sizes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8", 8),
        ("8M", 8 << 20),
        ("8m", 8 << 20),
        ("1K", 1024),
        (" 2 GiB ", 2 << 30),
        ("3KB", 3072),
        ("64G", 64 << 30),
    ],
)
def test_suffixes_are_binary(text: str, size: int) -> None:
    assert sizes.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "-8", "1.5M", "8T", "8 M B", "0", "65G", "eight"])
def test_what_is_no_size_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="allowed"):
        sizes.parse_size(text)


@given(st.integers(1, sizes.LARGEST))
def test_format_and_parse_are_inverse(size: int) -> None:
    assert sizes.parse_size(sizes.format_size(size)) == size


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(2, 20))
def test_sweep_starts_at_the_smallest_and_stops_before_it_would_pass_the_largest(
    a: int, b: int, factor: int
) -> None:
    smallest, largest = min(a, b), max(a, b)
    swept = sizes.sweep(smallest, largest, factor)
    assert swept[0] == smallest
    assert all(y == x * factor for x, y in itertools.pairwise(swept))
    assert swept[-1] <= largest < swept[-1] * factor


@pytest.mark.parametrize("arguments", [(8, 16, 1), (8, 16, 0), (16, 8, 2), (0, 8, 2)])
def test_a_sweep_without_end_or_without_size_is_refused(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"allowed|no size"):
        sizes.sweep(*arguments)


def test_elements_are_rounded_down_to_equal_pieces() -> None:
    assert sizes.whole_elements(1024, 3, 4) == 255
    assert sizes.whole_elements(1024, 1, 4) == 256
