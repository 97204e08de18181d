"""Combinations that the mesh lab refuses, and what `auto` means."""

from __future__ import annotations

import pytest

from labs.mesh.spec import SPEC, MeshParams, resolve
from labs.params import ParameterError, parse


def test_auto_is_two_axes_with_the_names_of_the_text() -> None:
    assert resolve(MeshParams(), 8) == ((2, 4), ("replicate", "model_parallel"), 0)


def test_auto_shape_follows_the_names_given() -> None:
    assert resolve(MeshParams(names="a,b,c"), 8) == ((2, 2, 2), ("a", "b", "c"), 0)


def test_three_axes_and_an_axis_by_name() -> None:
    assert resolve(MeshParams(shape="2x2x2", sync_axis="tp"), 8) == ((2, 2, 2), ("dp", "pp", "tp"), 2)


@pytest.mark.parametrize(
    ("given", "flag", "part"),
    [
        ({"shape": "3x3"}, "--shape", "9 places for 8 ranks"),
        ({"shape": "2x"}, "--shape", "allowed: whole numbers"),
        ({"shape": "2x4", "names": "a"}, "--names", "names 1 axes, the shape has 2"),
        ({"names": "a,a"}, "--names", "twice"),
        ({"sync_axis": "b"}, "--sync-axis", "allowed: replicate, model_parallel"),
        ({"ranks_per_node": "3"}, "--ranks-per-node", "does not divide 8"),
        ({"shap": "2x4"}, "--shap", "did you mean --shape"),
    ],
)
def test_bad_combinations_name_the_flag(given: dict[str, str], flag: str, part: str) -> None:
    with pytest.raises(ParameterError, match=part) as raised:
        parse(SPEC, given, 8)
    assert raised.value.flag == flag
