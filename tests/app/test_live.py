"""A run in progress: it grows on the screen, is stopped, is run again, and the app is left in its middle."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from textual.pilot import Pilot

from launcher.client import Lost
from launcher.events import AnyEvent, encode
from launcher.protocol import Finished, Refused
from launcher.rundir import EVENTS, RESULT, Manifest, read_manifest, read_result, to_json
from tests.app.fakes import WIDE, Outside, app_of
from tests.app.pilot import until, until_over, until_seen
from tests.app.recording import dp_events, result_of
from workbench.screens.home import HomeScreen
from workbench.screens.run import RunScreen


async def start_dp(pilot: Pilot[int], outside: Outside) -> Path:
    """Run the `dp` lab with its defaults; return the folder that was asked for."""
    await until_seen(pilot, "torch 2.13.0")
    await pilot.press("down", "enter")
    await until_seen(pilot, "--nproc 4")
    asked = len(outside.agent.requests)
    await pilot.press("ctrl+r")
    await until(pilot, lambda: len(outside.agent.requests) > asked)
    await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))
    return Path(outside.agent.requests[-1].folder)


def append(folder: Path, events: list[AnyEvent]) -> None:
    """Let the record grow as the collector does."""
    with (folder / EVENTS).open("ab") as file:
        file.write(b"".join(encode(event) for event in events))


def finish(folder: Path, manifest: Manifest, events: list[AnyEvent], outside: Outside) -> None:
    """End the run as the collector and the agent do."""
    (folder / RESULT).write_bytes(to_json(result_of(manifest, events)))
    outside.agent.say(Finished(run_id=manifest.run_id, exit_code=0))


class TestALearnerWatchesARun:
    async def test_it_grows_ends_and_runs_again(self, runs_dir: Path, outside: Outside) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE) as pilot:
            folder = await start_dp(pilot, outside)
            await until_seen(pilot, "0 of 4 ranks ready")
            manifest = read_manifest(folder)
            events = dp_events(manifest, steps=30, end=False)
            append(folder, events)
            await until_seen(pilot, "step 30/60")
            await until_seen(pilot, "s stop")
            whole = dp_events(manifest)
            append(folder, whole[len(events) :])
            finish(folder, manifest, whole, outside)
            await until_over(pilot)
            await until_seen(pilot, "passed: 3 checks")
            await until_seen(pilot, "r run again")
            await pilot.press("r")
            await until(pilot, lambda: len(outside.agent.requests) == 2)
            first, second = outside.agent.requests
            assert second.run_id != first.run_id
            assert second.argument == first.argument
            await until_seen(pilot, "0 of 4 ranks ready")

    async def test_stop_asks_the_agent_and_says_so(self, runs_dir: Path, outside: Outside) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE, notifications=True) as pilot:
            folder = await start_dp(pilot, outside)
            append(folder, dp_events(read_manifest(folder), steps=5, end=False))
            await until_seen(pilot, "step 5/60")
            await pilot.press("s")
            await until_seen(pilot, "stopping")
            await pilot.press("r")
            await until_seen(pilot, "still stopping; once it has, r runs it again")
            assert outside.agent.stops == [(folder.name, "stopped by the person", 130)]

    async def test_one_run_at_a_time_and_the_way_back_to_it(self, runs_dir: Path, outside: Outside) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE, notifications=True) as pilot:
            await start_dp(pilot, outside)
            await pilot.press("escape", "ctrl+r")
            await until_seen(pilot, "is still running: stop it first")
            assert len(outside.agent.requests) == 1
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(app.screen, HomeScreen))
            await until_seen(pilot, "running")
            await pilot.press("tab", "enter")
            await until(pilot, lambda: isinstance(app.screen, RunScreen))
            screen = app.screen
            assert isinstance(screen, RunScreen)
            assert screen.owned


class TestAStartThatFails:
    async def test_refused_is_a_state_on_the_screen(self, runs_dir: Path, outside: Outside) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE) as pilot:
            folder = await start_dp(pilot, outside)
            outside.agent.say(Refused(message="another run is in progress", run_id=folder.name))
            await until_seen(pilot, "refused: another run is in progress")
            await until(pilot, lambda: (folder / RESULT).exists())

    async def test_a_lost_agent_is_a_state_and_the_next_run_has_a_new_one(
        self, runs_dir: Path, outside: Outside
    ) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE) as pilot:
            await start_dp(pilot, outside)
            outside.agent.say(Lost(message="The launcher agent was ended by SIGKILL"))
            await until_seen(pilot, "The launcher agent was ended by SIGKILL")
            await pilot.press("escape")
            await pilot.press("ctrl+r")
            await until(pilot, lambda: len(outside.agents) == 2)
            await until(pilot, lambda: len(outside.agent.requests) == 1)

    async def test_a_folder_that_cannot_be_written_is_told(self, tmp_path: Path, outside: Outside) -> None:
        blocked = tmp_path / "file"
        blocked.write_text("")
        app = app_of(blocked, outside)
        async with app.run_test(size=WIDE) as pilot:
            await pilot.press("down", "enter")
            await until_seen(pilot, "--runs-dir DIR")


class TestALearnerLeaves:
    async def test_q_in_the_middle_of_a_run_is_asked_for_twice_and_closes_the_agent(
        self, runs_dir: Path, outside: Outside
    ) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE, notifications=True) as pilot:
            folder = await start_dp(pilot, outside)
            await pilot.press("question_mark", "q")
            await until(pilot, lambda: isinstance(app.screen, RunScreen))
            await pilot.press("q")
            await until_seen(pilot, "q again stops the run and quits")
            assert app.return_code is None
            assert not outside.agent.closed
            await pilot.press("q")
            await until(pilot, lambda: app.return_code is not None)
        assert outside.agent.closed >= 1
        assert app.return_code == 0
        result = read_result(folder)
        assert result is not None
        assert (result.status, result.exit_code) == ("interrupted", 130)

    async def test_ctrl_c_works_while_a_field_is_edited(self, runs_dir: Path, outside: Outside) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE) as pilot:
            await pilot.press("down", "enter", "tab", "q", "ctrl+c")
            await until(pilot, lambda: app.return_code is not None)
        assert outside.agent.closed >= 1

    async def test_a_quit_signal_ends_it_in_order_and_not_with_a_core(
        self, runs_dir: Path, outside: Outside
    ) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE) as pilot:
            await until_seen(pilot, "torch 2.13.0")
            os.kill(os.getpid(), signal.SIGQUIT)
            await until(pilot, lambda: app.return_code is not None)
        assert (app.return_code, app.left_with) == (131, 131)

    async def test_no_reserved_key_is_bound(self, runs_dir: Path, outside: Outside) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE) as pilot:
            for keys in ((), ("down", "enter"), ("tab",)):
                await pilot.press(*keys)
                bound = set(app.screen.active_bindings)
                assert not bound & {"ctrl+q", "ctrl+z", "ctrl+p", "alt"}
