"""64 ranks stay readable: a cell a rank, a line for those that stand out, three curves in place of 64."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.app.conftest import Compare
from tests.app.fakes import NARROW, WIDE, Outside, app_of, screen_text
from tests.app.pilot import until_over, until_seen
from tests.app.recording import dp_events, manifest_of, result_of, write_run
from tests.views.test_gantt import events_of, view_of
from workbench.panes.base import Pane, S
from workbench.panes.gantt import GanttPane
from workbench.panes.loss import VALUE, extremes, shown_value
from workbench.panes.ranks import RanksPane
from workbench.views.loss import LossView
from workbench.views.ranks import RankRow, RanksSnapshot

RANKS = 64


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run of 64 ranks."""
    manifest = manifest_of("dp", RANKS)
    events = dp_events(manifest, steps=4, total=4)
    return write_run(tmp_path / "dp-64", manifest, events, result_of(manifest, events))


def drawn(pane: Pane[S], snapshot: S, width: int, height: int) -> list[str]:
    lines = pane.lines(snapshot, width, height)
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


def ranks(*changed: RankRow) -> RanksSnapshot:
    rows = {rank: RankRow(rank, phase="running", step=7, total_steps=9) for rank in range(RANKS)}
    return RanksSnapshot(tuple({**rows, **{row.rank: row for row in changed}}.values()), heard=True)


def test_those_that_stand_out_have_a_line_and_every_rank_a_cell() -> None:
    failed = RankRow(5, phase="failed", step=6, total_steps=9, detail="ValueError: bad batch")
    waiting = RankRow(40, phase="waiting", step=7, total_steps=9, detail="all_reduce #3 in world")
    differs = RankRow(63, phase="running", step=7, total_steps=9, sync="differs")
    lines = drawn(RanksPane(), ranks(failed, waiting, differs), 60, 8)
    assert lines[0] == "● 62 running  ◌ 1 waiting  ✗ 1 failed  step 6-7"
    assert [line.split()[0] for line in lines[1:4]] == ["r5", "r40", "r63"]
    assert "ValueError: bad batch" in lines[1]
    cells = " ".join(lines[4:])
    assert all(f"{rank}●" in cells for rank in range(RANKS) if rank not in (5, 40))
    assert "5✗" in cells
    assert "40◌" in cells
    assert "63●≠" in cells


def test_few_ranks_have_a_line_each() -> None:
    snapshot = ranks()
    few = msgspec.structs.replace(snapshot, rows=snapshot.rows[:16])
    assert len(drawn(RanksPane(), few, 60, 8)) == 16
    assert len(drawn(RanksPane(), snapshot, 60, 70)) == 64


def test_of_many_curves_the_lowest_and_the_highest() -> None:
    manifest = manifest_of("dp", RANKS)
    view = LossView(manifest)
    for event in dp_events(manifest, steps=4, total=4):
        view.feed(event)
    snapshot = view.snapshot()
    lasts = {curve.rank: curve.last for curve in snapshot.ranks if curve.last is not None}
    chosen = extremes(snapshot)
    assert {curve.last for curve in chosen} == {min(lasts.values()), max(lasts.values())}
    assert len(chosen) == 2


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "120x40"])
async def test_the_screen_of_64_ranks(
    size: tuple[int, int], run: Path, runs_dir: Path, outside: Outside, same_as_snapshot: Compare
) -> None:
    app = app_of(runs_dir, outside, run)
    async with app.run_test(size=size) as pilot:
        await until_over(pilot)
        await until_seen(pilot, "of 64 ranks the lowest and the highest")
        if size == NARROW:
            await pilot.press("2")
            await until_seen(pilot, "63✓")
        await until_seen(pilot, "esc back")
        same_as_snapshot(f"ranks-64-{size[0]}x{size[1]}", screen_text(app))


def test_a_value_is_never_cut_in_its_exponent() -> None:
    texts = [shown_value(value) for value in (0.0032271, -1.2345e-06, 9.7491e-313, None)]
    assert texts == ["0.003227", "-1.23e-06", "9.75e-313", "-"]
    assert max(map(len, texts)) <= VALUE


@pytest.mark.parametrize(("width", "height"), [(76, 19), (116, 35)])
def test_the_schedule_of_64_ranks_has_a_lane_each_and_short_measures(width: int, height: int) -> None:
    snapshot = view_of(events_of("1f1b", RANKS, RANKS, steps=1), RANKS).snapshot()
    drawn_lines = GanttPane().lines(snapshot, width, height)
    lines = ["".join(segment.text for segment in line).rstrip() for line in drawn_lines]
    lanes = [line for line in lines if line.startswith("r")]
    assert [line.split()[0] for line in lanes] == [f"r{rank}" for rank in range(RANKS)] * 2
    assert all("F" in line and "B" in line for line in lanes)
    assert sum("keeps 1 to 64 on a rank" in line for line in lines) == 2
    assert max(map(len, lines)) <= width
