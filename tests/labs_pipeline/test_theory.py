"""The papers' formulas against the simulator, and the pure parts of the lab, without processes."""

from __future__ import annotations

import math
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labs import pacing
from labs.parallel.schedule_actions import Action, Schedule, dependency
from labs.parallel.schedule_simulator import Costs, Timed, peak_activations, simulate
from labs.parallel.schedules import RULES, build
from labs.pipeline_parallel import theory
from labs.pipeline_parallel.plan import measured_costs, paced_costs
from labs.pipeline_parallel.proofs import first_difference, relative_error
from labs.pipeline_parallel.timing import BUBBLE_POINTS, PACE_KEPT, Weighed, message_time, pace_missed, weigh
from tests.schedules.test_properties import schedules


@settings(max_examples=200, deadline=None)
@given(schedules(), st.sampled_from([Costs(), Costs(1.0, 1.25, 0.75), Costs(0.5, 1.0, 0.25)]))
def test_where_the_papers_give_a_bubble_the_simulator_has_it(schedule: Schedule, costs: Costs) -> None:
    p, m, v = schedule.num_ranks, schedule.num_micro_batches, schedule.chunks
    predicted = theory.bubble_time(schedule.name, p, m, v, costs)
    if predicted is not None:
        work = m * (costs.forward + costs.input_gradient + costs.weight_gradient)
        assert simulate(schedule, costs).makespan - work == pytest.approx(predicted, abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(schedules())
def test_the_predicted_peak_is_that_of_the_schedule(schedule: Schedule) -> None:
    p, m, v = schedule.num_ranks, schedule.num_micro_batches, schedule.chunks
    predicted = [theory.peak_micro_batches(schedule.name, p, m, v, rank) for rank in range(p)]
    assert predicted == pytest.approx(list(peak_activations(schedule)))


def test_every_schedule_has_a_prediction_of_its_peak() -> None:
    assert all(theory.peak_micro_batches(name, 4, 8, 2, 0) > 0 for name in RULES)


def test_bytes_cross_each_boundary_there_and_back() -> None:
    assert theory.step_bytes([100, 50], 8) == 2 * 8 * 150


@pytest.mark.parametrize(
    ("asked", "ranks", "cores", "device", "expected"),
    [
        (-1.0, 4, 2, "cpu", 20.0),
        (-1.0, 4, 8, "cpu", 0.0),
        (-1.0, 4, 2, "cuda", 0.0),
        (0.0, 4, 2, "cpu", 0.0),
        (5.0, 4, 8, "cuda", 5.0),
    ],
)
def test_pacing_is_for_ranks_that_outnumber_the_cores(
    asked: float, ranks: int, cores: int, device: str, expected: float
) -> None:
    assert pacing.resolve(asked, ranks, cores, device) == expected


def test_a_checkpointed_forward_is_paced_where_it_runs_again() -> None:
    assert paced_costs(0.0, 2.0, False) is None
    assert paced_costs(20.0, 3.0, False) == Costs(0.02, 0.03, 0.03)
    assert paced_costs(20.0, 2.0, True) == Costs(0.02, 0.04, 0.02)


@pytest.mark.parametrize("name", ["1f1b", "zb_h1", "interleaved"])
def test_measured_costs_are_those_that_were_simulated(name: str) -> None:
    costs = Costs(2.0, 3.0, 3.0)
    schedule = build(name, 4, 8)
    found = measured_costs(simulate(schedule, costs).rows, schedule.chunks)
    assert (found.forward, found.input_gradient, found.weight_gradient) == pytest.approx((2.0, 3.0, 3.0))


@pytest.mark.parametrize("name", ["1f1b", "zbv", "looped_bfs"])
def test_the_time_of_a_message_is_read_off_the_waits(name: str) -> None:
    schedule = build(name, 4, 8)
    rows = simulate(schedule, Costs(communication=0.125)).rows
    assert message_time(schedule, rows) == pytest.approx(0.125)
    assert message_time(build("1f1b", 1, 4), simulate(build("1f1b", 1, 4)).rows) == 0.0


PACED = Costs(0.04, 0.04, 0.04)
"""Of two chunks a rank: 20 ms each."""


def played(
    schedule: Schedule,
    off: float = 0.0,
    message: float = 0.0,
    turn: float = 0.0,
    dawdling: float = 0.0,
    slow: float = 1.0,
) -> list[list[Timed]]:
    """A step on a machine whose actions are off by up to `off` of their cost; messages and turns in seconds.

    What an engine might do wrong: rank 1 waits `dawdling` before each action, or takes `slow` times as long.
    """
    rows: list[list[Timed]] = [[] for _ in schedule.rows]
    ends: dict[Action, float] = {}
    random = Random(1)
    while any(len(row) < len(planned) for row, planned in zip(rows, schedule.rows, strict=True)):
        for rank, (row, planned) in enumerate(zip(rows, schedule.rows, strict=True)):
            action = planned[min(len(row), len(planned) - 1)]
            need = dependency(action, schedule.num_stages)
            if len(row) == len(planned) or (need is not None and need not in ends):
                continue
            start = row[-1].end + turn if row else 0.0
            if need is not None:
                start = max(start, ends[need] + message * (schedule.rank_of(need.stage) != rank))
            start += dawdling * (rank == 1)
            took = PACED.of(action.kind, schedule.chunks) * (1 + off * random.uniform(-1, 1))
            row.append(Timed(action, start, start + took * (slow if rank == 1 else 1.0)))
            ends[action._replace(kind="I") if action.kind == "B" else action] = row[-1].end
    return rows


CHUNKED = ["interleaved", "interleaved_zb", "zbv", "dualpipev", "looped_bfs"]
QUIET = {"off": 0.02, "message": 0.0003, "turn": 0.0001}
"""A machine that keeps the pace."""
BUSY = {"off": 0.2, "message": 0.0015, "turn": 0.0008}


def weighed(name: str, **machine: float) -> Weighed:
    schedule = build(name, 4, 8, 2)
    return weigh(schedule, PACED, played(schedule, **machine))


@pytest.mark.parametrize("name", CHUNKED)
def test_a_step_that_kept_the_pace_is_held_to_the_plan(name: str) -> None:
    schedule = build(name, 4, 8, 2)
    plan = simulate(schedule, PACED).bubbles
    exact, quiet = weighed(name), weighed(name, **QUIET)
    assert exact.simulated == plan
    assert exact.points == pytest.approx(0)
    assert exact.missed == pytest.approx(0)
    assert quiet.kept
    assert abs(quiet.simulated.idle_over_total - plan.idle_over_total) * 100 < 1
    assert abs(quiet.measured.idle_over_total - plan.idle_over_total) * 100 < BUBBLE_POINTS


@pytest.mark.parametrize("name", CHUNKED)
def test_a_busy_machine_alone_does_not_part_the_bubbles(name: str) -> None:
    busy = weighed(name, **BUSY)
    assert busy.missed == pytest.approx(0.1, abs=0.02)
    assert not busy.kept
    assert abs(busy.points) < 0.1
    # Against the plan alone such a machine would look like a broken engine.
    plan = simulate(build(name, 4, 8, 2), PACED).bubbles
    assert busy.measured.idle_over_total - plan.idle_over_total > BUBBLE_POINTS / 100


def test_the_pace_is_missed_by_what_actions_are_off_on_average() -> None:
    schedule = build("1f1b", 4, 8)
    rows = simulate(schedule, Costs(2.2, 2.0, 2.0)).rows
    assert pace_missed(schedule, Costs(2.0, 2.0, 2.0), rows) == pytest.approx(0.05)
    assert pace_missed(schedule, Costs(2.2, 2.0, 2.0), rows) == pytest.approx(0)


@pytest.mark.parametrize("name", CHUNKED)
@pytest.mark.parametrize(
    "broken", [{"dawdling": 0.01}, {"dawdling": 0.004}, {"message": 0.01}, {"turn": 0.003}, {"slow": 2.0}]
)
def test_an_engine_that_waits_without_a_reason_parts_them(name: str, broken: dict[str, float]) -> None:
    found = weighed(name, **{**BUSY, **broken})
    assert not found.kept
    assert abs(found.points) > BUBBLE_POINTS


@pytest.mark.parametrize("name", CHUNKED)
@pytest.mark.parametrize("broken", [{"dawdling": 0.003}, {"message": 0.005}, {"turn": 0.001}])
def test_shorter_waits_are_seen_where_the_pace_was_kept(name: str, broken: dict[str, float]) -> None:
    found = weighed(name, **{**QUIET, **broken})
    assert found.missed < PACE_KEPT
    assert found.points > BUBBLE_POINTS


def test_an_error_is_relative_and_never_hides() -> None:
    one = torch.tensor([1.0, -4.0])
    assert relative_error(one, one) == 0
    assert relative_error(one + 0.4, one) == pytest.approx(0.1)
    assert relative_error(torch.tensor([math.nan, 0.0]), one) == math.inf
    assert relative_error(None, one) == math.inf
    assert relative_error(None, None) == 0


def test_a_difference_in_order_is_pointed_at() -> None:
    assert first_difference("0F0 0F1", "0F0 0B0") == "action 1 was 0F1, planned 0B0"
    assert first_difference("0F0", "0F0 0B0") == "1 actions, planned 2"
