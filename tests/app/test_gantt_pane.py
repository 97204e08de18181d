"""The Gantt pane: what it draws at both sizes, and what cursor, zoom and steps do."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult

from tests.app.fakes import NARROW, WIDE
from tests.views.test_gantt import events_of, view_of
from workbench.panes.gantt import GanttPane
from workbench.panes.registry import PANES
from workbench.views.gantt import GanttSnapshot
from workbench.views.registry import VIEWS


def text_of(pane: GanttPane, snapshot: GanttSnapshot, width: int, height: int) -> list[str]:
    return ["".join(segment.text for segment in line) for line in pane.lines(snapshot, width, height)]


class PaneApp(App[None]):
    """The pane alone, with a finished run."""

    def __init__(self, snapshot: GanttSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def compose(self) -> ComposeResult:
        yield GanttPane()

    def on_mount(self) -> None:
        pane = self.query_one(GanttPane)
        pane.focus()
        pane.show(self.snapshot)

    @property
    def lines(self) -> list[str]:
        pane = self.query_one(GanttPane)
        return [strip.text for strip in pane._strips]


def test_view_and_pane_are_registered_by_one_name() -> None:
    assert VIEWS["gantt"].__name__ == "GanttView"
    assert PANES["gantt"] is GanttPane


@pytest.mark.parametrize(
    ("name", "ranks", "size"), [("1f1b", 4, NARROW), ("zbv", 4, NARROW), ("interleaved_zb", 8, WIDE)]
)
def test_planned_and_measured_fit_the_screen(name: str, ranks: int, size: tuple[int, int]) -> None:
    width, height = size[0] - 4, size[1] - 5
    snapshot = view_of(events_of(name, ranks, 2 * ranks), ranks).snapshot()
    lines = text_of(GanttPane(), snapshot, width, height)
    assert len(lines) <= height
    lanes = [line for line in lines if line.startswith("r")]
    assert len(lanes) == 2 * ranks
    assert all(len(line) == width for line in lanes)
    assert {letter for lane in lanes for letter in lane} >= set("FIW" if name != "1f1b" else "FB")
    assert lines[0].startswith(f"planned {name}  ")
    facts = " ".join(lines)
    assert "of ideal" in facts
    assert "of total" in facts
    assert "zero-bubble measure" in facts


def test_ascii_needs_no_colour_and_no_unicode() -> None:
    snapshot = view_of(events_of("1f1b", 4, 8), 4).snapshot()
    lines = text_of(GanttPane(ascii_only=True), snapshot, 76, 20)
    assert all(line.isascii() for line in lines)
    assert lines[2].startswith("r0  F0F1F2-F3....")
    assert "B0--F4B1---F5B2" in lines[2]


def test_one_rank_alone() -> None:
    pane = GanttPane()
    pane.rank = 2
    snapshot = view_of(events_of("1f1b", 4, 8), 4).snapshot()
    assert [line[:2] for line in text_of(pane, snapshot, 76, 20) if line.startswith("r")] == ["r2", "r2"]


def test_a_dense_schedule_is_few_segments() -> None:
    snapshot = view_of(events_of("1f1b", 8, 64), 8).snapshot()
    assert all(len(line) <= 130 for line in GanttPane().lines(snapshot, 116, 30))


async def test_the_cursor_tells_the_action() -> None:
    app = PaneApp(view_of(events_of("1f1b", 4, 8), 4).snapshot())
    async with app.run_test(size=NARROW) as pilot:
        assert "waiting" in app.lines[-1]
        await pilot.press("l")
        assert app.lines[-1].startswith(" 0F0  forward of micro-batch 0 on stage 0, rank 0, 0.0 to 20.0 ms")
        await pilot.press("l", "l", "l", "l")
        assert app.lines[-1].startswith(" 0B0  backward of micro-batch 0 on stage 0, rank 0")
        await pilot.press("j")
        assert "rank 1" in app.lines[-1]
        await pilot.press("k", "k")
        assert "rank 3" in app.lines[-1]


async def test_zoom_and_pan() -> None:
    app = PaneApp(view_of(events_of("1f1b", 4, 8), 4).snapshot())
    async with app.run_test(size=NARROW) as pilot:
        assert app.lines[-2].strip().startswith("0 ")
        await pilot.press("plus")
        assert app.lines[-2].split()[0:2] == ["165", "ms"]
        await pilot.press("comma", "comma", "comma", "comma")
        assert app.lines[-2].strip().startswith("0 ")
        await pilot.press("full_stop", "minus")
        assert app.lines[-2].strip().startswith("0 ")
        assert app.lines[-2].strip().endswith("660 ms")


async def test_steps_can_be_turned_and_followed_again() -> None:
    app = PaneApp(view_of(events_of("1f1b", 4, 8, steps=3), 4).snapshot())
    async with app.run_test(size=NARROW) as pilot:
        pane = app.query_one(GanttPane)
        assert "step 3" in str(pane.border_subtitle)
        await pilot.press("less_than_sign", "less_than_sign")
        assert "step 1" in str(pane.border_subtitle)
        await pilot.press("greater_than_sign", "greater_than_sign")
        assert "step 3" in str(pane.border_subtitle)
        assert pane.step is None
