"""Predictions, places and refusals, without processes."""

from __future__ import annotations

import pytest

from labs.bootstrap import sleeps, theory
from labs.bootstrap.spec import SPEC, Params, ways_of
from labs.params import ParameterError, parse


def test_ten_sleeps_of_half_a_second() -> None:
    assert theory.predicted_seconds("sequential", 10, 0.5) == 5.0
    assert theory.predicted_seconds("threads", 10, 0.5) == 0.5
    assert theory.predicted_seconds("processes", 10, 0.5) == 0.5


@pytest.mark.parametrize(("ranks", "connections"), [(1, 0), (2, 1), (4, 6), (8, 28)])
def test_a_full_mesh_has_a_connection_a_pair(ranks: int, connections: int) -> None:
    assert theory.mesh_connections(ranks) == connections


def test_missing_ranks_are_those_that_did_not_arrive() -> None:
    assert theory.missing([0, 2], 4) == [1, 3]
    assert theory.missing([1, 0], 2) == []


@pytest.mark.parametrize(
    ("place", "consistent"),
    [
        (theory.Place(5, 1, 1, 8, 4), True),
        (theory.Place(0, 0, 0, 2, 2), True),
        (theory.Place(4, 1, 1, 8, 4), False),
        (theory.Place(8, 0, 2, 8, 4), False),
        (theory.Place(4, 4, 0, 8, 4), False),
    ],
)
def test_a_rank_is_its_node_times_ranks_per_node_plus_its_local_rank(
    place: theory.Place, consistent: bool
) -> None:
    assert place.consistent is consistent


def test_every_way_and_variable_is_explained() -> None:
    assert set(theory.HOW) == set(theory.WAYS)
    assert all(theory.VARIABLES.values())


def test_sleeps_are_measured_with_what_starting_costs() -> None:
    assert sleeps.measure("sequential", 3, 0.02) >= 0.06
    assert sleeps.measure("threads", 3, 0.02) >= 0.02
    assert sleeps.measure("processes", 2, 0.02) >= 0.02


def test_init_all_is_every_way_in_turn() -> None:
    assert ways_of(Params()) == theory.WAYS
    assert ways_of(Params(init="file")) == ("file",)


@pytest.mark.parametrize(
    ("given", "flag", "says"),
    [
        ({"jobs": "30"}, "--jobs", "take 15 s one after another; allowed: up to 10 s, so 20 jobs"),
        ({"jobs": "3", "sleep": "4"}, "--jobs", "so 2 jobs"),
        ({"jobs": "0"}, "--jobs", ">= 1"),
        ({"sleep": "-1"}, "--sleep", ">= 0"),
        ({"sleep": "nan"}, "--sleep", "out of bounds"),
        ({"init": "mpi"}, "--init", "env"),
        ({"fault_timeout": "60"}, "--fault-timeout", "<= 10"),
    ],
)
def test_bad_input_is_one_line_naming_the_flag(given: dict[str, str], flag: str, says: str) -> None:
    with pytest.raises(ParameterError) as error:
        parse(SPEC, given, 4)
    assert error.value.flag == flag
    assert says in error.value.message


def test_one_rank_has_nobody_to_meet() -> None:
    with pytest.raises(ParameterError, match="allowed 2 to 64"):
        parse(SPEC, {}, 1)
