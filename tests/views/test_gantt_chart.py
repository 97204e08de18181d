"""What is read out of a schedule's chart: messages and collectives in gaps, the critical path, old steps,
another schedule beside it, and the picture as text. No app, no processes."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labs.parallel.schedule_actions import Action
from labs.parallel.schedule_simulator import Costs, simulate
from labs.parallel.schedule_simulator import critical_path as simulated_path
from labs.parallel.schedules import NAMES, build, rule_of
from launcher.events import AnyEvent, Plan, Span
from tests.views.test_gantt import MS, events_of, snapshot_of, view_of
from workbench.views.gantt import GanttSnapshot
from workbench.views.gantt_archive import Archive
from workbench.views.gantt_chart import Chart, Mark, cells, chart_of, critical_path, gantt_action
from workbench.views.gantt_compare import costs_of, others, plan_of, shape_of
from workbench.views.gantt_picture import Frame, details, lanes, legend, printed


def chart_of_schedule(name: str, ranks: int, m: int, communication: float = 0.0) -> Chart:
    rows = simulate(build(name, ranks, m), Costs(20.0, 20.0, 20.0, communication)).rows
    return chart_of(tuple(tuple(gantt_action(*timed) for timed in row) for row in rows), whole=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_critical_path_is_the_simulators(name: str) -> None:
    schedule = build(name, 4, 1 if name == "naive" else 8)
    simulation = simulate(schedule, Costs(20.0, 20.0, 20.0, 1.0))
    rows = tuple(tuple(gantt_action(*timed) for timed in row) for row in simulation.rows)
    chart = chart_of(rows, whole=True)
    path = [rows[place.rank][place.at] for place in critical_path(chart)]
    assert path[0].start == 0
    assert path[-1].end == pytest.approx(simulation.makespan)
    for before, after in pairwise(path):
        assert 0 <= after.start - before.end <= 1.0 + 1e-9
    # Several chains may be the longest; all of them work, and wait for messages, for as long.
    theirs = simulated_path(schedule, simulation)
    busy = sum(one.end - one.start for one in theirs)
    assert sum(one.end - one.start for one in path) == pytest.approx(busy, abs=2 * len(theirs))


def test_the_critical_path_goes_through_what_was_slow() -> None:
    first = tuple(gantt_action(Action(0, "F", i), 20.0 * i, 20.0 * (i + 1)) for i in range(2))
    slow = (gantt_action(Action(1, "F", 0), 21.0, 90.0), gantt_action(Action(1, "F", 1), 90.0, 110.0))
    chart = chart_of((first, slow), whole=False)
    assert [chart.lanes[place.rank][place.at].text for place in critical_path(chart)] == ["0F0", "1F0", "1F1"]
    assert critical_path(Chart(((), ()))) == ()


def test_a_message_fills_the_gap_that_it_made() -> None:
    chart = chart_of_schedule("gpipe", 2, 2, communication=3.0)
    (first, *_) = chart.marks_of(1)
    assert (first.kind, first.name, first.start, first.end) == ("message", "from rank 0", 20.0, 23.0)
    texts = [touch.text for touch in lanes(chart, Frame(104, 0.0, 100.0))[1]]
    assert texts[1:3] == ["·" * 20, ">" * 3]
    assert "waited 23.0 ms, message from rank 0 3.00 ms" in details(chart, critical_path(chart)[1])


def test_a_plan_without_communication_has_no_messages() -> None:
    for name in ("interleaved_zb", "1f1b", "dualpipev"):
        assert not any(chart_of_schedule(name, 4, 8).marks), name


def test_no_message_between_two_stages_of_one_rank() -> None:
    """The turn of a V: the rank itself has what it needs."""
    chart = chart_of_schedule("zbv", 2, 4, communication=3.0)
    turn = next(one for one in chart.lanes[1] if one.text == "2F0")
    assert all(mark.end != turn.start for mark in chart.marks_of(1))


def collective(step: int, rank: int, start: float, end: float) -> Span:
    origin = 10_000 * MS * step
    t, t1 = origin + int(start * MS), origin + int(end * MS)
    return Span(t=t, t1=t1, rank=rank, lane="comm", name="all_reduce", step=step)


def test_a_collective_is_shown_where_no_action_runs() -> None:
    events: list[AnyEvent] = [*events_of("gpipe", 2, 2, steps=1), collective(1, 0, 170.0, 200.0)]
    chart = snapshot_of(events, 2).steps[0]
    end = chart.lanes[0][-1].end
    (mark,) = chart.marks_of(0)
    assert (mark.kind, mark.start, mark.end) == ("collective", end, 200.0)
    assert chart.end == 200.0
    line = lanes(chart, Frame(204, 0.0, 200.0))[0]
    assert line[-1].text == "~" * 20
    assert [touch.text for touch in legend([chart], Frame(80, 0, 1))][-2:] == ["~", " collective"]


def test_lanes_of_communication_show_what_runs_beside_computing() -> None:
    """Also what came before the first action of the step had ended, and however short it is."""
    plan, *spans = events_of("gpipe", 2, 2, steps=1)
    early = msgspec.structs.replace(collective(1, 1, 21.0, 21.1), group="tp")
    events: list[AnyEvent] = [plan, early, *spans, collective(1, 1, 30.0, 50.0)]
    chart = snapshot_of(events, 2).steps[0]
    assert chart.groups() == ("", "tp")
    drawn = lanes(chart, Frame(204, 0.0, 200.0), groups=chart.groups())
    assert [line[0].text for line in drawn] == ["r0  ", "    ", "tp  ", "r1  ", "    ", "tp  "]
    texts = ["".join(touch.text for touch in line[1:]) for line in drawn]
    assert (texts[4].index("~"), texts[4].count("~")) == (30, 21)
    assert (texts[5].index("~"), texts[5].count("~")) == (21, 1)
    assert all(len(text) == 200 for text in texts)
    assert "~" not in texts[1]


def test_marks_never_hide_an_action() -> None:
    (action,) = (gantt_action(Action(0, "F", 0), 10.0, 20.0),)
    found = chart_of(((action,),), whole=True, collectives=[[], []]).lanes[0]
    runs = cells(found, 0.0, 20.0, 4)
    assert [(run.width, run.action is action) for run in runs] == [(2, False), (2, True)]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=8),
    st.lists(st.tuples(st.integers(-5, 99), st.integers(0, 30)), max_size=8),
)
def test_marks_lie_between_actions_in_order(lane: list[tuple[int, int]], told: list[tuple[int, int]]) -> None:
    actions, now = [], 0
    for index, (gap, length) in enumerate(lane):
        actions.append(gantt_action(Action(0, "F", index), now + gap, now + gap + length))
        now += gap + length
    marks = [Mark("collective", "all_reduce", start, start + length) for start, length in told]
    chart = chart_of((tuple(actions),), whole=False, collectives=[marks])
    busy = {moment for one in actions for moment in range(int(one.start), int(one.end))}
    covered_by = [moment for mark in chart.marks_of(0) for moment in range(int(mark.start), int(mark.end))]
    wanted = {moment for start, length in told for moment in range(max(0, start), start + length)}
    assert covered_by == sorted(wanted - busy)


def test_old_steps_are_still_known() -> None:
    snapshot = snapshot_of(events_of("1f1b", 2, 2, steps=30), 2)
    assert snapshot.known_steps() == list(range(1, 31))
    chart = snapshot.chart(3)
    assert chart is not None
    assert chart.step == 3
    assert chart.measures == snapshot.steps[-1].measures
    assert snapshot.chart(None) is snapshot.steps[-1]
    assert snapshot.chart(99) is snapshot.steps[-1]


def test_the_archive_is_bounded() -> None:
    archive = Archive(at_most=10)
    for step in range(10):
        archive.add(
            step, [[(Action(0, "F", 0), step, step + MS), (Action(0, "B", 0), step + MS, step + 2 * MS)]]
        )
    assert archive.steps() == [8, 9]
    assert archive.chart(1) is None
    chart = archive.chart(9)
    assert chart is not None
    assert [(one.text, one.start, one.end) for one in chart.lanes[0]] == [("0F0", 0, 1), ("0B0", 1, 2)]


def test_a_large_step_is_searched_for_messages_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.views.gantt.MARKED_LIVE", 3)
    plan, *spans = events_of("gpipe", 2, 2, steps=1)
    late = [
        msgspec.structs.replace(span, t=span.t + 2 * MS) if span.rank == 1 and span.action == "1F0" else span
        for span in spans
        if isinstance(span, Span)
    ]
    view = view_of([plan, *late[:-1]], 2)
    assert not any(view.snapshot().steps[0].marks)
    view.feed(late[-1])
    assert [mark.name for mark in view.snapshot().steps[0].marks_of(1)] == ["from rank 0"]


def test_a_span_of_a_step_long_gone_is_passed_over() -> None:
    events = events_of("1f1b", 2, 2, steps=30)
    view = view_of(events, 2)
    before = [chart.step for chart in view.snapshot().steps]
    view.feed(events[1])
    assert [chart.step for chart in view.snapshot().steps] == before


@pytest.mark.parametrize("name", [name for name in NAMES if name != "naive"])
def test_another_schedule_on_paper_is_what_its_own_run_would_plan(name: str) -> None:
    planned = snapshot_of(events_of("1f1b" if name != "1f1b" else "gpipe", 4, 8), 4).planned
    assert planned is not None
    assert name in others(planned, "naive")
    expected = simulate(build(name, 4, 8, rule_of(name).default_chunks), Costs(20, 20, 20))
    assert plan_of(name, planned).end == pytest.approx(expected.makespan)


def test_schedules_that_do_not_fit_are_not_offered() -> None:
    planned = chart_of_schedule("1f1b", 4, 6)
    assert shape_of(planned) == (4, 6)
    assert "interleaved" not in others(planned, "1f1b")
    assert "1f1b" not in others(planned, "1f1b")
    assert others(Chart(()), "1f1b") == ()


def test_replicas_of_a_pipeline_count_once() -> None:
    planned = chart_of_schedule("1f1b", 2, 4)
    doubled = chart_of((*planned.lanes, *planned.lanes), whole=True)
    assert shape_of(doubled) == (2, 4)
    costs = costs_of(doubled)
    assert (costs.forward, costs.input_gradient, costs.weight_gradient) == pytest.approx((20, 20, 20))


@pytest.mark.parametrize(("ranks", "width"), [(4, 80), (8, 120)])
def test_the_printed_picture(ranks: int, width: int) -> None:
    snapshot = snapshot_of(events_of("1f1b", ranks, 2 * ranks), ranks)
    lines = printed(snapshot, width, ascii_only=True)
    assert all(len(line) <= width and line.isascii() for line in lines)
    assert lines[0].startswith("planned 1f1b  ")
    assert sum(line.startswith("measured 1f1b, step 2  ") for line in lines) == 1
    assert sum(line.startswith("r") for line in lines) == 2 * ranks
    assert any(line.startswith("r0  F0") for line in lines)
    assert "F  forward" in lines[-1]
    assert printed(GanttSnapshot(4), width) == []


def test_the_longest_legend_of_a_pipeline_fits_a_small_pane() -> None:
    chart = chart_of_schedule("dualpipev", 2, 4, communication=3.0)
    line = legend([chart], Frame(76, 0.0, chart.end))
    text = "".join(touch.text for touch in line)
    assert len(text) <= 76
    assert all(word in text for word in ("forward", "backward", "input", "weight", "waiting", "> message"))


def test_on_the_path_letters_are_large_and_off_it_small() -> None:
    chart = chart_of_schedule("gpipe", 2, 2)
    path = critical_path(chart)
    drawn = lanes(chart, Frame(64, 0.0, chart.end), path={*path})
    for rank, line in enumerate(drawn):
        on = {place.at for place in path if place.rank == rank}
        touches = [touch for touch in line if touch.role == "action"]
        assert [touch.text[0].isupper() for touch in touches] == [i in on for i in range(len(touches))]
        assert {touch.state for touch in touches} <= {"critical", "beside"}


def test_a_plan_with_lanes_of_no_actions() -> None:
    assert snapshot_of([Plan(t=1, rank=0, name="odd", actions=[[], []])], 2).planned is not None
