"""The screens of the pipeline and the 3D lab on recorded runs: the schedule, the cube, at both sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from labs.catalog import spec_of
from tests.app.conftest import Compare
from tests.app.fakes import NARROW, WIDE, Outside, app_of, screen_text
from tests.app.pilot import until_over, until_seen

Recorded = Callable[[str], Path]


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "120x40"])
@pytest.mark.parametrize("name", ["pp", "3d"])
async def test_the_screen_of_a_model_parallel_lab(
    name: str, size: tuple[int, int], recorded: Recorded, runs_dir: Path, same_as_snapshot: Compare
) -> None:
    app = app_of(runs_dir, Outside(labs={name: spec_of(name)}), recorded(name))
    async with app.run_test(size=size) as pilot:
        await until_over(pilot)
        await until_seen(pilot, "esc back")
        same_as_snapshot(f"run-{name}-{size[0]}x{size[1]}", screen_text(app))
