"""The schedule in time: plan and spans in, charts with their measures out; runs of equal cells."""

from __future__ import annotations

import pytest

from labs.parallel.schedule_simulator import Costs, simulate
from labs.parallel.schedules import build
from launcher.events import AnyEvent, Plan, PlannedAction, Span
from launcher.rundir import Manifest
from tests.app.recording import manifest_of
from workbench.views.gantt import GanttSnapshot, GanttView
from workbench.views.gantt_chart import GanttAction, cells, gantt_action, label, measures_of

MS = 1_000_000


def events_of(name: str, ranks: int, m: int, steps: int = 2, late_ms: float = 0.0) -> list[AnyEvent]:
    """The plan of a paced run and the spans of its steps; every rank but the first starts `late_ms` late."""
    simulation = simulate(build(name, ranks, m), Costs(20.0, 20.0, 20.0))
    rows = [
        [PlannedAction(str(one.action), one.start, one.end - one.start) for one in row]
        for row in simulation.rows
    ]
    found: list[AnyEvent] = [Plan(t=1, rank=0, name=name, actions=rows)]
    for step in range(1, steps + 1):
        start = 10_000 * MS * step
        for rank, row in enumerate(simulation.rows):
            for one in row:
                late = late_ms * (rank > 0)
                found.append(
                    Span(
                        t=start + int((one.start + late) * MS),
                        t1=start + int((one.end + late) * MS),
                        rank=rank,
                        lane="compute",
                        name="work",
                        step=step,
                        action=str(one.action),
                        stage=one.action.stage,
                        micro_batch=one.action.micro_batch,
                    )
                )
    return found


def view_of(events: list[AnyEvent], ranks: int) -> GanttView:
    view = GanttView(manifest_of("pp", ranks))
    for event in events:
        view.feed(event)
    return view


def snapshot_of(events: list[AnyEvent], ranks: int) -> GanttSnapshot:
    return view_of(events, ranks).snapshot()


def test_the_first_frame_is_empty() -> None:
    snapshot = GanttView(manifest_of("pp", 4)).snapshot()
    assert snapshot.planned is None
    assert snapshot.steps == ()


def test_plan_and_steps_have_the_measures_of_theory() -> None:
    snapshot = snapshot_of(events_of("1f1b", 4, 8), 4)
    assert snapshot.name == "1f1b"
    assert [chart.step for chart in snapshot.steps] == [1, 2]
    assert snapshot.planned is not None
    for chart in (snapshot.planned, *snapshot.steps):
        assert chart.measures is not None
        assert chart.measures.makespan == pytest.approx(660)
        assert chart.measures.idle_over_ideal == pytest.approx(3 / 8)
        assert chart.measures.idle_over_total == pytest.approx(3 / 11)
        assert chart.measures.peaks == (4, 3, 2, 1)


def test_chunks_count_as_parts_of_a_rank() -> None:
    snapshot = snapshot_of(events_of("interleaved", 4, 8), 4)
    assert snapshot.planned is not None
    assert snapshot.planned.measures is not None
    assert snapshot.planned.measures.peaks == (5.5, 4.5, 3.5, 2.5)


def test_a_step_that_goes_on_has_no_measures_yet() -> None:
    events = events_of("1f1b", 4, 8, steps=1)
    snapshot = snapshot_of(events[:-1], 4)
    assert snapshot.steps[0].measures is None
    assert snapshot.steps[0].lanes[0]


def test_a_plan_that_comes_after_the_first_step_closes_it() -> None:
    """Unpaced, the plan is made of measured costs."""
    plan, *spans = events_of("gpipe", 2, 4, steps=1)
    view = view_of(list(spans), 2)
    assert view.snapshot().steps[0].measures is None
    view.feed(plan)
    assert view.snapshot().steps[0].measures is not None


def test_nothing_new_gives_the_same_snapshot() -> None:
    view = view_of(events_of("1f1b", 4, 8), 4)
    before = view.snapshot()
    view.feed(Span(t=5, t1=6, rank=0, lane="comm", name="send"))
    assert view.snapshot() is before


def test_what_is_no_action_and_what_has_no_rank_is_passed_over() -> None:
    strange: list[AnyEvent] = [
        Span(t=5, t1=6, rank=0, lane="compute", name="x", step=0, action="quux"),
        Span(t=5, t1=6, rank=99, lane="compute", name="x", step=0, action="0F0"),
        Plan(t=1, rank=0, name="odd", actions=[[PlannedAction("nonsense", 0.0, 1.0)]]),
    ]
    snapshot = snapshot_of(strange, 4)
    assert snapshot.steps == ()
    assert snapshot.planned is None


def test_few_steps_are_kept() -> None:
    snapshot = snapshot_of(events_of("1f1b", 2, 2, steps=30), 2)
    assert [chart.step for chart in snapshot.steps] == list(range(23, 31))


def lane(*times: tuple[str, float, float]) -> tuple[GanttAction, ...]:
    return tuple(
        GanttAction(f"0{text}", "F" if text[0] == "F" else "B", 0, int(text[1:]), start, end)
        for text, start, end in times
    )


def test_equal_cells_are_one_run() -> None:
    found = cells(lane(("F0", 0, 20), ("F1", 20, 40), ("B0", 60, 100)), 0, 100, 10)
    assert [(run.width, run.action.text if run.action else "") for run in found] == [
        (2, "0F0"),
        (2, "0F1"),
        (2, ""),
        (4, "0B0"),
    ]


@pytest.mark.parametrize("width", [1, 3, 40, 77, 500])
def test_a_lane_always_fills_its_width(width: int) -> None:
    dense = lane(*[(f"F{index}", float(index), index + 0.7) for index in range(100)])
    assert sum(run.width for run in cells(dense, 0, 100, width)) == width


@pytest.mark.parametrize("width", [3, 7, 20, 40])
def test_a_rank_that_works_little_does_not_look_idle(width: int) -> None:
    """Naive on 64 ranks: each is idle almost always, and an action is a small part of a cell."""
    schedule = build("naive", 64, 4)
    for row in simulate(schedule).rows:
        one = tuple(gantt_action(t.action, t.start, t.end) for t in row)
        runs = cells(one, 0.0, 768.0, width)
        assert sum(run.width for run in runs) == width
        shown = [run.action for run in runs if run.action is not None]
        assert len(shown) >= min(4, width // 2)
        assert all(width * (action.end - action.start) / 768 < 1 for action in shown)


def test_a_window_shows_its_part_alone() -> None:
    found = cells(lane(("F0", 0, 50), ("F1", 50, 100)), 50, 100, 5)
    assert [(run.width, run.action.text if run.action else "") for run in found] == [(5, "0F1")]


def test_labels_shrink_with_the_room() -> None:
    (action,) = lane(("F12", 0, 1))
    assert [label(action, width, chunks=True) for width in (6, 5, 4, 3, 2, 1)] == [
        "0F12",
        "0F12",
        "F12",
        "F12",
        "F",
        "F",
    ]
    assert label(action, 9, chunks=False) == "F12"


def test_measures_of_nothing_are_zero() -> None:
    found = measures_of(((), ()))
    assert (found.makespan, found.idle_over_total, found.peaks) == (0, 0, (0, 0))


def test_the_manifest_names_the_schedule_before_the_plan_does() -> None:
    manifest = manifest_of("pp", 2)
    named = Manifest(**{f: getattr(manifest, f) for f in manifest.__struct_fields__})
    named.params["schedule"] = "zbv"
    assert GanttView(named).snapshot().name == "zbv"
