"""The arithmetic of flat buffers: every element is owned once, whatever the sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.parallel.flat_layout import FlatLayout, fill_buckets

SHAPES = st.lists(st.lists(st.integers(1, 7), max_size=3).map(tuple), min_size=1, max_size=8)


@given(SHAPES, st.integers(1, 9))
def test_parts_own_each_element_once(shapes: list[tuple[int, ...]], parts: int) -> None:
    """Also with more parts than elements."""
    layout = FlatLayout.of([(str(i), shape) for i, shape in enumerate(shapes)], parts)
    owners = [[0] * slot.numel for slot in layout.slots]
    for part in range(parts):
        offsets = []
        for piece in layout.pieces(part):
            for element in range(piece.start, piece.stop):
                owners[piece.slot][element] += 1
                offsets.append(piece.offset + element - piece.start)
                place = layout.slots[piece.slot].start + element
                assert place == part * layout.part + offsets[-1]
        assert offsets == list(range(len(offsets)))
    assert all(count == 1 for slot in owners for count in slot)
    assert layout.padded - layout.total < parts


def test_a_part_may_hold_nothing_of_a_parameter() -> None:
    """Two parameters of 3 in 2 parts: each part is one parameter."""
    layout = FlatLayout.of([("a", (3,)), ("b", (3,))], 2)
    assert [piece.numel for piece in layout.pieces(0)] == [3, 0]
    assert [piece.numel for piece in layout.pieces(1)] == [0, 3]


def test_no_parts_is_refused() -> None:
    """A layout for nobody is a mistake of the caller."""
    with pytest.raises(ValueError, match="at least 1 part"):
        FlatLayout.of([("a", (3,))], 0)


@given(st.lists(st.integers(1, 50), max_size=20), st.integers(1, 60))
def test_buckets_keep_the_order_and_the_limit(sizes: list[int], limit: int) -> None:
    """Only an item that is larger than a bucket exceeds it, alone."""
    buckets = fill_buckets(sizes, limit)
    assert [index for bucket in buckets for index in bucket] == list(range(len(sizes)))
    assert all(sum(sizes[i] for i in bucket) <= limit or len(bucket) == 1 for bucket in buckets)


def test_an_empty_bucket_is_refused() -> None:
    """A limit of zero bytes would never fill."""
    with pytest.raises(ValueError, match=">= 1"):
        fill_buckets([1], 0)
