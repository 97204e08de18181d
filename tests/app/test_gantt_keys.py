"""The keys of the Gantt pane that need an app: compare, critical path, going to a step, many lanes."""

from __future__ import annotations

from tests.app.fakes import NARROW
from tests.app.test_gantt_pane import PaneApp
from tests.views.test_gantt import events_of, view_of
from workbench.panes.gantt import GanttPane


async def test_compare_shows_each_schedule_that_fits_and_then_the_step_again() -> None:
    app = PaneApp(view_of(events_of("1f1b", 4, 8), 4).snapshot())
    async with app.run_test(size=NARROW) as pilot:
        assert any(line.startswith("measured 1f1b") for line in app.lines)
        await pilot.press("c", "c")
        assert app.query_one(GanttPane).other == "gpipe"
        assert any(line.startswith("planned gpipe, 1.00× as long") for line in app.lines)
        assert not any(line.startswith("measured") for line in app.lines)
        await pilot.press("l", "j", "j", "j", "j")
        assert "rank 0" in app.lines[-1]
        await pilot.press("c", "c", "c", "c", "c", "c", "c")
        assert app.query_one(GanttPane).other == ""
        assert any(line.startswith("measured 1f1b") for line in app.lines)


async def test_the_critical_path_and_a_steps_number() -> None:
    app = PaneApp(view_of(events_of("1f1b", 4, 8, steps=20), 4).snapshot())
    async with app.run_test(size=NARROW) as pilot:
        pane = app.query_one(GanttPane)
        before = list(app.lines)
        await pilot.press("x")
        assert "critical path" in str(pane.border_subtitle)
        assert "f2" in app.lines[2]
        await pilot.press("x", "m")
        assert app.lines == before, "a pipeline alone has no collectives"
        await pilot.press("g", "1", "9", "backspace", "2")
        assert "step 12_" in str(pane.border_subtitle)
        await pilot.press("enter")
        assert pane.step == 12
        assert "step 12" in str(pane.border_subtitle)
        await pilot.press("g", "7", "escape")
        assert (pane.step, pane.typed) == (12, None)


async def test_the_cursor_scrolls_to_its_lane() -> None:
    app = PaneApp(view_of(events_of("1f1b", 16, 16), 16).snapshot())
    async with app.run_test(size=NARROW) as pilot:
        pane = app.query_one(GanttPane)
        await pilot.press("l", "k")
        assert pane.lane == 31
        assert pane.scroll_offset.y > 0
        await pilot.press("j")
        assert pane.lane == 0
        assert pane.scroll_offset.y <= 2
