"""The zero lab's screen on a recorded run, two replicas of two shards: all panes, and memory alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from labs.catalog import spec_of
from tests.app.conftest import Compare
from tests.app.fakes import NARROW, WIDE, Outside, app_of, screen_text
from tests.app.pilot import until_over, until_seen

Recorded = Callable[[str], Path]


@pytest.fixture
def outside() -> Outside:
    """Stand-ins, but for the lab: this is the real one."""
    return Outside(labs={"zero": spec_of("zero")})


async def test_all_panes_on_a_wide_terminal(
    recorded: Recorded, runs_dir: Path, outside: Outside, same_as_snapshot: Compare
) -> None:
    app = app_of(runs_dir, outside, recorded("zero"))
    async with app.run_test(size=WIDE) as pilot:
        await until_over(pilot)
        await until_seen(pilot, "esc back")
        same_as_snapshot("run-zero-120x40", screen_text(app))


async def test_memory_alone_on_a_small_one(
    recorded: Recorded, runs_dir: Path, outside: Outside, same_as_snapshot: Compare
) -> None:
    app = app_of(runs_dir, outside, recorded("zero"))
    async with app.run_test(size=NARROW) as pilot:
        screen = await until_over(pilot)
        await pilot.press(str(list(screen.panes).index("memory") + 1))
        assert screen.active == "memory"
        same_as_snapshot("pane-memory-80x24", screen_text(app))
