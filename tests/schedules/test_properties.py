"""What holds for every p, m and v: schedules are sound, keep their memory bound and beat no theory."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labs.parallel.schedule_actions import Schedule, format_rows, parse_rows
from labs.parallel.schedule_simulator import Costs, peak_activations, simulate
from labs.parallel.schedule_validator import problems
from labs.parallel.schedules import NAMES, RULES, build


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Any schedule with numbers that fit it."""
    name = draw(st.sampled_from(NAMES))
    rule = RULES[name]
    p = draw(st.integers(1, 8))
    v = draw(st.integers(rule.min_chunks, min(4, rule.max_chunks)))
    m = draw(st.integers(1, 5)) * p if rule.rounds else draw(st.integers(1, 20))
    return build(name, p, m + 2 * p if rule.stages_first else m, v)


@st.composite
def costs(draw: st.DrawFn) -> Costs:
    """Any positive costs, in eighths so that sums are exact."""
    eighths = st.integers(1, 32).map(lambda count: count / 8)
    return Costs(draw(eighths), draw(eighths), draw(eighths), draw(st.integers(0, 8)) / 8)


@settings(max_examples=150, deadline=None)
@given(schedules())
def test_every_schedule_is_sound_and_survives_its_text(schedule: Schedule) -> None:
    assert problems(schedule) == ()
    assert parse_rows(format_rows(schedule.rows)) == schedule.rows


@settings(max_examples=150, deadline=None)
@given(schedules())
def test_peaks_stay_within_theory(schedule: Schedule) -> None:
    p, m, v = schedule.num_ranks, schedule.num_micro_batches, schedule.chunks
    for rank, peak in enumerate(peak_activations(schedule)):
        bound = {
            "naive": 1.0,
            "gpipe": m,
            "looped_bfs": m,
            "1f1b": min(m, p - rank),
            "interleaved": min(m, p * (1 + (p - 1) / (p * v))),
            "zb_h1": min(m, p),
            "interleaved_zb": min(m, p),
            "zbv": min(m, p),
            "dualpipev": p + 0.5,
        }[schedule.name]
        assert peak <= bound + 1e-9, "a bound that is no whole number is rounded"


@settings(max_examples=150, deadline=None)
@given(schedules(), costs())
def test_time_runs_forward(schedule: Schedule, cost: Costs) -> None:
    """No two actions of a rank overlap, none starts before its input, and no pipeline beats its own work."""
    simulation = simulate(schedule, cost)
    assert tuple(tuple(timed.action for timed in row) for row in simulation.rows) == schedule.rows
    ends = {
        (t.action.stage, t.action.kind in "BI", t.action.micro_batch): t
        for row in simulation.rows
        for t in row
        if t.action.kind != "W"
    }
    for rank, row in enumerate(simulation.rows):
        for before, after in pairwise(row):
            assert before.end <= after.start
        for timed in row:
            stage, kind, micro_batch = timed.action
            source = {"F": stage - 1, "B": stage + 1, "I": stage + 1}.get(kind, -1)
            if 0 <= source < schedule.num_stages:
                hop = cost.communication * (schedule.rank_of(source) != rank)
                assert ends[source, kind != "F", micro_batch].end + hop <= timed.start
    work = schedule.num_micro_batches * (cost.forward + cost.input_gradient + cost.weight_gradient)
    assert simulation.makespan >= work - 1e-9
    bubbles = simulation.bubbles
    assert bubbles.idle_over_total == pytest.approx(bubbles.idle_over_ideal / (1 + bubbles.idle_over_ideal))
    assert -1e-9 <= bubbles.zero_bubble <= bubbles.idle_over_total + 1e-9
