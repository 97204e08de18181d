"""The guide in the app: reading, predicting, running, comparing, and finding one's place again."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot

from launcher.protocol import Finished
from launcher.rundir import RESULT, read_manifest, to_json
from tests.app.conftest import Compare
from tests.app.fakes import NARROW, WIDE, Outside, app_of, screen_text
from tests.app.pilot import until, until_seen
from tests.app.recording import dp_events, result_of
from workbench.app import WorkbenchApp
from workbench.course import Course
from workbench.screens.lab import LabScreen
from workbench.screens.run import RunScreen

SIZES = pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "120x40"])


async def open_guide(pilot: Pilot[int]) -> None:
    """Open the dp lab and turn to its guide."""
    await until_seen(pilot, "torch 2.13.0")
    await pilot.press("down", "enter")
    await until(pilot, lambda: isinstance(pilot.app.screen, LabScreen))  # home, too, says that it is warm
    await until_seen(pilot, "warm: a run starts at once")
    await pilot.press("g")
    await until_seen(pilot, "read: what is split")


def end_run(outside: Outside, **metrics: float) -> None:
    """Let the run that was asked for end, having measured this."""
    folder = Path(outside.agent.requests[-1].folder)
    manifest = read_manifest(folder)
    result = msgspec.structs.replace(result_of(manifest, dp_events(manifest)), metrics=metrics)
    (folder / RESULT).write_bytes(to_json(result))
    outside.agent.say(Finished(run_id=manifest.run_id, exit_code=0))


class TestALearnerFollowsTheGuide:
    @SIZES
    async def test_from_the_first_text_to_the_summary(
        self, size: tuple[int, int], runs_dir: Path, outside: Outside, same_as_snapshot: Compare
    ) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=size) as pilot:
            await open_guide(pilot)
            await pilot.press("n")
            await until_seen(pilot, "How many rows of 128 does each of 4 ranks take?")
            await pilot.press("3", "0", "enter")
            await until_seen(pilot, "you 30 rows ≠   theory 32 rows")
            await until_seen(pilot, "Each takes its part.")
            await pilot.press("n", "b")
            await until_seen(pilot, "you no ✓   theory no")
            await pilot.press("n")
            await until_seen(pilot, "--nproc 4 --steps 3")
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(app.screen, RunScreen))
            assert outside.agent.requests[-1].argument["params"]["steps"] == 3
            end_run(outside, rows=48.0, loss=0.25)
            await until(pilot, lambda: app.current_run == "")
            if size == NARROW:
                await pilot.press("t")
            await until_seen(pilot, "observe: the shards")
            await pilot.press("enter")
            await until(pilot, lambda: self.pane(app) == "shards")
            if size == NARROW:
                await pilot.press("t")
            await pilot.press("n")
            await until_seen(pilot, "explain: the loss at the end")
            same_as_snapshot(f"guide-{size[0]}x{size[1]}", self.without_times(app))
            await pilot.press("0", "full_stop", "2", "4", "enter")
            await until_seen(pilot, "you 0.24 ✓   measured 0.25")
            await pilot.press("n", "c")
            await until_seen(pilot, "--nproc: 1 rank does not fit dp")
            await pilot.press("n")
            await until_seen(pilot, "what you found out")
            await until_seen(pilot, "Data parallel is done.")
            assert Course().lab("dp").state == "done"

    @staticmethod
    def pane(app: WorkbenchApp) -> str | None:
        """The pane that is shown alone."""
        return app.screen.active if isinstance(app.screen, RunScreen) else None

    @staticmethod
    def without_times(app: WorkbenchApp) -> str:
        """The screen without the header, which has times in it."""
        return "\n".join(screen_text(app).splitlines()[3:-1])

    async def test_while_no_number_is_typed_letters_are_keys(self, runs_dir: Path, outside: Outside) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=NARROW) as pilot:
            await open_guide(pilot)
            await pilot.press("n")
            await until_seen(pilot, "a number in rows, then enter; n leaves it open")
            await pilot.press("b", "n")
            await until_seen(pilot, "its letter chooses")
            await pilot.press("p")
            await until_seen(pilot, "your answer")
            await pilot.press("1", "n")
            await until_seen(pilot, "1n")

    async def test_theory_and_run_that_differ_are_told_with_the_reason(
        self, runs_dir: Path, outside: Outside
    ) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE) as pilot:
            await open_guide(pilot)
            await pilot.press("n", "3", "2", "enter")
            await until_seen(pilot, "Your run will add what it measured.")
            await pilot.press("n", "n", "enter")
            await until(pilot, lambda: isinstance(app.screen, RunScreen))
            end_run(outside, rows=48.0)
            await until_seen(pilot, "observe: the shards")
            await pilot.press("p", "p", "p")
            await until_seen(pilot, "you 32 rows ✓   theory 32 rows   measured 48 rows ≠")
            await until_seen(pilot, "Some rank has taken more")
            await pilot.press("n", "n", "n", "n")
            await until_seen(pilot, "explain: the loss at the end")
            await pilot.press("1", "enter")
            await until_seen(pilot, "Your run did not tell it")


class TestALearnerComesBack:
    async def test_the_place_is_found_again_and_nothing_runs_by_itself(
        self, runs_dir: Path, outside: Outside
    ) -> None:
        async with (app := app_of(runs_dir, outside)).run_test(size=WIDE) as pilot:
            await open_guide(pilot)
            await pilot.press("n", "3", "2", "enter", "n")
            await until_seen(pilot, "predict: losses")
        later = Outside()
        async with (app := app_of(runs_dir, later)).run_test(size=WIDE) as pilot:
            await until_seen(pilot, "torch 2.13.0")
            await pilot.press("down", "enter")
            await until_seen(pilot, "predict: losses")
            await pilot.press("g", "p")
            await until_seen(pilot, "you 32 rows ✓")
            assert isinstance(app.screen, LabScreen)
            assert not later.agent.requests

    async def test_a_run_started_from_the_form_counts_where_it_is_the_same(
        self, runs_dir: Path, outside: Outside
    ) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE) as pilot:
            await open_guide(pilot)
            await pilot.click("#value-steps")
            await pilot.press("end", "backspace", "backspace", "3", "enter")
            await until(pilot, lambda: isinstance(app.screen, RunScreen))
            end_run(outside, rows=32.0)
            await until(pilot, lambda: "plain" in Course().lab("dp").runs)
            await pilot.press("t")
            await until_seen(pilot, "read: what is split")

    async def test_a_number_that_is_none_is_told_and_not_kept(self, runs_dir: Path, outside: Outside) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE) as pilot:
            await open_guide(pilot)
            await pilot.press("n", "3", "x", "enter")
            await until_seen(pilot, "'x' is not the unit rows")
            assert not Course().lab("dp").answers


class TestAGuideThatCannotBeRead:
    async def test_the_lab_still_runs(self, runs_dir: Path, outside: Outside) -> None:
        services = outside.services()
        outside.services = lambda: msgspec.structs.replace(services, guide=lambda _: "")  # type: ignore[method-assign]
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE) as pilot:
            await until_seen(pilot, "torch 2.13.0")
            await pilot.press("down", "enter")
            await until_seen(pilot, "the guide of dp has no front matter")
            await pilot.press("ctrl+r")
            await until(pilot, lambda: isinstance(app.screen, RunScreen))
