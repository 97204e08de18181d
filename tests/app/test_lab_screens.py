"""The screens of the labs on recorded runs: the panes that their own specs name, at both sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from labs.catalog import spec_of
from tests.app.conftest import Compare
from tests.app.fakes import NARROW, WIDE, Outside, app_of, screen_text
from tests.app.pilot import until_over, until_seen

Recorded = Callable[[str], Path]
LABS = {lab: spec_of(lab) for lab in ("bootstrap", "collectives", "bandwidth", "mesh", "dp", "pp", "3d")}


@pytest.fixture
def outside() -> Outside:
    """Stand-ins, but for the labs: these are the real ones."""
    return Outside(labs=LABS)


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "120x40"])
@pytest.mark.parametrize(
    "name",
    ["bootstrap", "collectives", "collectives-ring", "bandwidth", "mesh", "dp", "dp-killed", "pp", "3d"],
)
async def test_the_screen_of_a_lab(
    name: str,
    size: tuple[int, int],
    recorded: Recorded,
    runs_dir: Path,
    outside: Outside,
    same_as_snapshot: Compare,
) -> None:
    app = app_of(runs_dir, outside, recorded(name))
    async with app.run_test(size=size) as pilot:
        await until_over(pilot)
        await until_seen(pilot, "esc back")
        same_as_snapshot(f"run-{name}-{size[0]}x{size[1]}", screen_text(app))


@pytest.mark.parametrize(
    ("name", "pane"),
    [
        ("bandwidth", "topology"),
        ("collectives-ring", "timeline"),
    ],
)
async def test_a_pane_alone_on_a_small_terminal(
    name: str, pane: str, recorded: Recorded, runs_dir: Path, outside: Outside, same_as_snapshot: Compare
) -> None:
    app = app_of(runs_dir, outside, recorded(name))
    async with app.run_test(size=NARROW) as pilot:
        screen = await until_over(pilot)
        await pilot.press(str(list(screen.panes).index(pane) + 1))
        assert screen.active == pane
        same_as_snapshot(f"pane-{pane}-80x24", screen_text(app))
