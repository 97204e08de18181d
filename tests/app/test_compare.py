"""Runs side by side: the facts that differ, ratios, curves in one plot, schedules on one scale of time."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from launcher.events import Plan, PlannedAction, encode
from launcher.rundir import EVENTS, read_manifest, read_result, write_manifest
from tests.app.conftest import RECORDED, Compare
from tests.app.fakes import NARROW, WIDE, Outside, app_of, screen_text
from tests.app.pilot import until, until_seen
from workbench.feed import Feed
from workbench.screens.compare import CompareScreen
from workbench.views import compare
from workbench.views.compare import Compared, Row


def planned(milliseconds: float) -> Plan:
    """A plan for two ranks: one forward and one backward of a micro-batch on each stage."""

    def action(text: str, start: float) -> PlannedAction:
        return PlannedAction(text, start * milliseconds, milliseconds)

    return Plan(
        t=1,
        name="gpipe",
        actions=[[action("0F0", 0), action("0B0", 3)], [action("1F0", 1), action("1B0", 2)]],
    )


@pytest.fixture
def two(runs_dir: Path) -> tuple[Path, Path]:
    """Two runs of dp with schedules, of which the second took three times as long."""
    folders = []
    for name, lr, milliseconds in (("dp-a", 0.001, 10.0), ("dp-b", 0.01, 30.0)):
        folder = Path(shutil.copytree(RECORDED / "dp", runs_dir / name))
        manifest = read_manifest(folder)
        params = {**manifest.params, "lr": lr}
        write_manifest(folder, msgspec.structs.replace(manifest, run_id=name, params=params, world_size=8))
        with (folder / EVENTS).open("ab") as file:
            file.write(encode(planned(milliseconds)))
        folders.append(folder)
    return folders[0], folders[1]


class TestTable:
    def test_only_what_differs(self) -> None:
        facts = [{"a": 1, "b": "x", "c": True}, {"a": 1, "b": "y"}]
        assert compare.differing(facts) == (Row("b", ("x", "y")), Row("c", ("yes", "-")))

    def test_figures_have_ratios_to_the_first(self) -> None:
        facts = [{"t": 2.0, "zero": 0.0}, {"t": 5.0, "zero": 1.0}, {"other": 1.0}]
        assert compare.figures(facts) == (
            Row("t", ("2", "5", "-"), ("", "2.50x", "")),
            Row("zero", ("0", "1", "-"), ("", "", "")),
            Row("other", ("-", "-", "1"), ("", "", "")),
        )

    @pytest.mark.parametrize(
        ("value", "first", "text"),
        [(1.0, 3.0, "0.33x"), (5e9, 1.0, "5.0e+09x"), (float("nan"), 1.0, ""), (1.0, None, "")],
    )
    def test_ratios(self, value: float, first: float | None, text: str) -> None:
        assert compare.ratio(value, first) == text

    def test_checks_and_verdicts(self) -> None:
        manifest, result = read_manifest(RECORDED / "dp"), read_result(RECORDED / "dp")
        assert result is not None
        first, *others = result.checks
        broken = msgspec.structs.replace(
            result, status="failed", checks=[msgspec.structs.replace(first, passed=False), *others]
        )
        table = compare.table([Compared(manifest, result), Compared(manifest, broken), Compared(manifest)])
        assert table.params == ()
        count = len(result.checks)
        assert table.verdicts == (f"passed {count}/{count}", f"failed {count - 1}/{count}", "no result yet")
        assert table.checks[0].values == ("passed", "FAILED", "-")


def test_schedules_share_the_scale_of_the_longest(two: tuple[Path, Path]) -> None:
    found = []
    for folder in two:
        feed = Feed(folder, ("loss", "gantt"))
        while feed.result is None:
            feed.poll()
        views = feed.views
        found.append(
            Compared(feed.manifest, feed.result, views["loss"].snapshot(), views["gantt"].snapshot())
        )
    stack = compare.stack(found)
    assert [title for title, _ in stack.charts] == ["A gpipe, planned", "B gpipe, planned"]
    assert [chart.end for _, chart in stack.charts] == [40.0, 120.0]
    assert stack.end == 120.0
    overlay = compare.overlay(found)
    assert [place for place, _ in overlay.curves] == [0, 1]
    assert overlay.over


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "120x40"])
async def test_a_person_compares_two_runs(
    size: tuple[int, int], two: tuple[Path, Path], runs_dir: Path, outside: Outside, same_as_snapshot: Compare
) -> None:
    app = app_of(runs_dir, outside)
    async with app.run_test(size=size) as pilot:
        await pilot.press("h", "m", "m", "c")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen))
        screen = app.screen
        assert isinstance(screen, CompareScreen)
        await until(pilot, lambda: all(feed.result is not None for feed in screen.feeds))
        await until_seen(pilot, "what was asked differs in")
        assert "lr" in screen_text(app)
        same_as_snapshot(f"compare-{size[0]}x{size[1]}", screen_text(app))
        await pilot.press("3")
        await until_seen(pilot, "B gpipe, planned")
        await pilot.press("plus")
        await until_seen(pilot, "zoom 2")
        await pilot.press("2")
        await until_seen(pilot, "mean loss")
        assert "gpipe" not in screen_text(app)
        if size == NARROW:
            same_as_snapshot("compare-loss-80x24", screen_text(app))
        await pilot.press(*["escape"] * (1 if size == NARROW else 2))
        await until_seen(pilot, "history: ")
