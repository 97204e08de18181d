"""The source beside a run, in the app: a span is chosen, its line is marked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from labs.catalog import catalog
from tests.app.fakes import NARROW, WIDE, Outside, app_of, screen_text
from tests.app.pilot import until, until_over, until_seen
from workbench.screens.lab import LabScreen
from workbench.screens.run import RunScreen
from workbench.screens.source import SourceScreen


class TestALearnerLooksAtTheCode:
    @pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "120x40"])
    async def test_a_span_chosen_in_the_timeline_marks_its_line(
        self, size: tuple[int, int], recorded: Callable[[str], Path], runs_dir: Path
    ) -> None:
        app = app_of(runs_dir, Outside(labs=catalog()), recorded("mesh"))
        async with app.run_test(size=size) as pilot:
            screen = await until_over(pilot)
            await pilot.press(screen.digit("timeline"), "l")
            await until_seen(pilot, "o: source")
            chosen = screen.panes["timeline"].chosen_span()
            assert chosen
            await pilot.press("o")
            await until_seen(pilot, f"{chosen}: ")
            assert isinstance(app.screen, SourceScreen)
            place = app.screen.places[0]
            await until_seen(pilot, f":{place.line} ")
            await until_seen(pilot, f">{place.line:>4} ")
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(app.screen, RunScreen))

    async def test_spans_of_the_run_are_listed_and_files_can_be_read(
        self, recorded: Callable[[str], Path], runs_dir: Path
    ) -> None:
        app = app_of(runs_dir, Outside(labs=catalog()), recorded("mesh"))
        async with app.run_test(size=WIDE) as pilot:
            await until_over(pilot)
            await pilot.press("o")
            await until_seen(pilot, "spans of the run")
            await pilot.press("home", "enter")
            await until_seen(pilot, ":")
            screen = app.screen
            assert isinstance(screen, SourceScreen)
            await until(pilot, lambda: screen.span == screen.spans[0].name)
            await pilot.press("shift+tab", "home", "enter")
            await until_seen(pilot, "The mesh lab")
            assert "\n>" not in screen_text(app)

    async def test_a_lab_shows_its_source_without_a_run(self, runs_dir: Path) -> None:
        app = app_of(runs_dir, Outside(labs=catalog()))
        async with app.run_test(size=WIDE) as pilot:
            await until_seen(pilot, "torch 2.13.0")
            await pilot.press("down", "enter")
            await until(pilot, lambda: isinstance(app.screen, LabScreen))
            await pilot.press("o")
            await until_seen(pilot, "source of Collectives")
            assert "spans of the run" not in screen_text(app)
