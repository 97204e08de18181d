"""The mesh's definition, without processes: golden groups of the texts and properties of any shape."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.mesh import theory

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


def test_two_by_four_makes_the_six_groups_of_the_text() -> None:
    assert theory.groups_along(1, (2, 4)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert theory.groups_along(0, (2, 4)) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert theory.num_groups((2, 4)) == 6


def test_three_axes_make_twelve_pairs() -> None:
    assert theory.groups_along(0, (2, 2, 2)) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert theory.groups_along(1, (2, 2, 2)) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert theory.groups_along(2, (2, 2, 2)) == [[0, 1], [2, 3], [4, 5], [6, 7]]


@given(SHAPES)
def test_each_axis_splits_the_world_into_equal_groups(shape: tuple[int, ...]) -> None:
    for axis, size in enumerate(shape):
        groups = theory.groups_along(axis, shape)
        assert sorted(rank for group in groups for rank in group) == list(range(math.prod(shape)))
        assert {len(group) for group in groups} == {size}


@given(SHAPES, st.data())
def test_coordinates_and_rank_are_inverse(shape: tuple[int, ...], data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, math.prod(shape) - 1))
    assert theory.rank_at(theory.coordinates(rank, shape), shape) == rank


@given(SHAPES)
def test_flattening_every_axis_is_the_world(shape: tuple[int, ...]) -> None:
    assert theory.flattened_groups(tuple(range(len(shape))), shape) == [list(range(math.prod(shape)))]


def test_flattening_two_of_three_axes() -> None:
    assert theory.flattened_groups((0, 2), (2, 2, 2)) == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_the_last_axis_stays_on_its_node() -> None:
    assert theory.axes_that_cross((2, 4), ranks_per_node=4) == (0,)
    assert theory.axes_that_cross((4, 2), ranks_per_node=4) == (0,)
    assert theory.axes_that_cross((2, 4), ranks_per_node=2) == (0, 1)
    assert theory.axes_that_cross((2, 4), ranks_per_node=8) == ()


@pytest.mark.parametrize(
    ("world_size", "axes", "shape"),
    [(8, 2, (2, 4)), (4, 2, (2, 2)), (6, 2, (2, 3)), (8, 3, (2, 2, 2)), (7, 2, (1, 7)), (1, 2, (1, 1))],
)
def test_default_shape(world_size: int, axes: int, shape: tuple[int, ...]) -> None:
    assert theory.default_shape(world_size, axes) == shape


@pytest.mark.parametrize("text", ["", "x", "2x", "0x4", "-2x4", "2.5x4", "2*4"])
def test_a_bad_shape_says_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="allowed: whole numbers"):
        theory.parse_shape(text)


@pytest.mark.parametrize(
    ("text", "part"), [("a,", "words joined"), ("a b", "words joined"), ("a,a", "twice")]
)
def test_bad_names_say_what_is_allowed(text: str, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        theory.parse_names(text)
