"""Opening the app: what there is, on which machine, and where one can go from here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.app.conftest import Compare
from tests.app.fakes import NARROW, WIDE, ColdAgent, Outside, app_of, screen_text
from tests.app.pilot import until_over, until_seen
from tests.app.recording import dp_events, manifest_of, result_of, write_run
from workbench.screens.help import HelpScreen
from workbench.screens.home import HomeScreen
from workbench.screens.lab import LabScreen


class TestALearnerOpensTheApp:
    @pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "120x40"])
    async def test_labs_machine_and_agent_are_shown(
        self, size: tuple[int, int], runs_dir: Path, outside: Outside, same_as_snapshot: Compare
    ) -> None:
        manifest = manifest_of("dp")
        events = dp_events(manifest)
        write_run(runs_dir / manifest.run_id, manifest, events, result_of(manifest, events))
        app = app_of(runs_dir, outside)
        async with app.run_test(size=size) as pilot:
            await until_seen(pilot, "warm: a run starts at once")
            await until_seen(pilot, "torch 2.13.0")
            same_as_snapshot(f"home-{size[0]}x{size[1]}", screen_text(app))

    async def test_the_cursor_shows_what_a_lab_teaches(self, runs_dir: Path, outside: Outside) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=NARROW) as pilot:
            await until_seen(pilot, "where each element came from")
            await pilot.press("down")
            await until_seen(pilot, "why the replicas must start equal")

    async def test_what_is_longer_than_its_box_is_scrolled_to(self, runs_dir: Path, outside: Outside) -> None:
        app = app_of(runs_dir, outside)
        facts = tuple(f"fact {n}" for n in range(20))
        app.labs["dp"] = msgspec.structs.replace(app.labs["dp"], teaches=facts)
        async with app.run_test(size=NARROW) as pilot:
            await pilot.press("down", "tab", "end")
            await until_seen(pilot, "fact 19")
            await pilot.press("enter")
            assert isinstance(app.screen, LabScreen)

    async def test_without_an_agent_it_says_so_and_stays(self, runs_dir: Path) -> None:
        app = app_of(runs_dir, Outside(ColdAgent))
        async with app.run_test(size=WIDE) as pilot:
            await until_seen(pilot, "no agent: the launcher agent cannot be started: Cannot allocate memory")
            await pilot.press("enter")
            assert isinstance(app.screen, LabScreen)


class TestALearnerMovesByKeys:
    async def test_enter_opens_the_lab_and_escape_returns(self, runs_dir: Path, outside: Outside) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=NARROW) as pilot:
            await pilot.press("down", "enter")
            screen = app.screen
            assert isinstance(screen, LabScreen)
            assert screen.spec.id == "dp"
            await pilot.press("escape")
            assert isinstance(app.screen, HomeScreen)

    async def test_tab_leads_to_the_runs_and_enter_replays_one(
        self, runs_dir: Path, outside: Outside, recorded: Callable[[str], Path]
    ) -> None:
        recorded("dp").rename(runs_dir / "dp")
        app = app_of(runs_dir, outside)
        async with app.run_test(size=NARROW) as pilot:
            await until_seen(pilot, "12/12 checks")
            await pilot.press("tab", "enter")
            screen = await until_over(pilot)
            assert screen.feed.folder == runs_dir / "dp"

    async def test_help_is_made_from_the_keys_of_the_screen(self, runs_dir: Path, outside: Outside) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=NARROW) as pilot:
            await pilot.press("question_mark")
            assert isinstance(app.screen, HelpScreen)
            await until_seen(pilot, "reload runs")
            await until_seen(pilot, "up down pgup pgdn home end move")
            assert "open" in screen_text(app).splitlines()[2]  # what one can do here comes before how to move
            assert "Scroll" not in screen_text(app)
            await pilot.press("escape")
            assert isinstance(app.screen, HomeScreen)
