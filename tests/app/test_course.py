"""The course in the app: the map with what is done, and exercises taken, hinted at and checked."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from labs.exercises import Verdict
from launcher.client import Lost
from launcher.protocol import Finished
from tests.app.fakes import NARROW, WIDE, Outside, app_of, screen_text
from tests.app.pilot import until, until_seen
from workbench.course import Course, LabProgress
from workbench.exercises import ENTRYPOINT, VERDICT
from workbench.screens.course import CourseScreen
from workbench.screens.exercise import ExerciseScreen
from workbench.screens.lab import LabScreen

SIZES = pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "120x40"])


class TestALearnerLooksAtTheMap:
    @SIZES
    async def test_labs_with_needs_gives_and_progress(
        self, size: tuple[int, int], runs_dir: Path, outside: Outside
    ) -> None:
        Course().keep_lab("collectives", LabProgress(state="done"))
        Course().keep_lab("dp", LabProgress(state="started"))
        app = app_of(runs_dir, outside)
        async with app.run_test(size=size) as pilot:
            await until_seen(pilot, "torch 2.13.0")
            await pilot.press("m")
            await until_seen(pilot, "1 of 2 labs done")
            await until_seen(pilot, "✓ collectives")
            await pilot.press("down")
            await until_seen(pilot, "needs  collectives")
            await until_seen(pilot, "next  read: one model, many readers")
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(app.screen, LabScreen))
            await pilot.press("escape", "escape")
            await until_seen(pilot, "recent runs")

    async def test_what_was_done_meanwhile_is_seen_on_coming_back(
        self, runs_dir: Path, outside: Outside
    ) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE) as pilot:
            await pilot.press("m")
            await until_seen(pilot, "0 of 2 labs done")
            await pilot.press("x")
            await until(pilot, lambda: isinstance(app.screen, ExerciseScreen))
            Course().keep_lab("dp", LabProgress(state="done"))
            await pilot.press("escape")
            await until_seen(pilot, "1 of 2 labs done")
            assert isinstance(app.screen, CourseScreen)

    async def test_home_marks_what_is_done_and_tells_of_a_damaged_file_once(
        self, runs_dir: Path, outside: Outside, data_dir: Path
    ) -> None:
        (data_dir / "progress.json").write_text("{")
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE, notifications=True) as pilot:
            await until_seen(pilot, "progress.json.damaged")
            Course().keep_lab("dp", LabProgress(state="done", answers={"predict-rows-of-a-rank": 5.0}))
            await pilot.press("m", "down")
            await until_seen(pilot, "what you found out")
            await until_seen(pilot, "you 5 rows")
            await pilot.press("escape")
            await until_seen(pilot, "✓ dp")
            assert app.course.problem == ""


class TestALearnerDoesAnExercise:
    async def test_stub_hint_check_and_the_verdicts(
        self, runs_dir: Path, outside: Outside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        app = app_of(runs_dir, outside)
        async with app.run_test(size=(120, 70)) as pilot:
            await until_seen(pilot, "warm: a run starts at once")
            await pilot.press("enter", "x")
            await until_seen(pilot, "Ring all-reduce from send and recv")
            await pilot.press("c")
            await until_seen(pilot, "No such file")
            assert not outside.agent.requests
            await pilot.press("s")
            await until_seen(pilot, "yours: write your code there")
            assert (tmp_path / "exercises" / "ring_all_reduce.py").is_file()
            assert Course().exercises()["ring-all-reduce"].state == "started"
            await pilot.press("s")
            await until_seen(pilot, "stays as it is")
            await pilot.press("h", "h")
            await until_seen(pilot, "hint 2 of 3")
            assert "hint 3 of 3" not in screen_text(app)
            await pilot.press("c")
            await until_seen(pilot, "checking on real ranks")
            self.end_check(outside, kind="differs", message="it differs", meaning="Summed, not averaged.")
            await until_seen(pilot, "Summed, not averaged.")
            assert Course().exercises()["ring-all-reduce"].state == "started"
            await pilot.press("c")
            await until_seen(pilot, "checking on real ranks")
            self.end_check(outside, kind="passed", message="all right")
            await until_seen(pilot, "ring-all-reduce: passed")
            assert Course().exercises()["ring-all-reduce"].state == "done"
            assert Course().exercises()["ring-all-reduce"].checks == 2

    async def test_a_lost_agent_ends_the_check(
        self, runs_dir: Path, outside: Outside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        app = app_of(runs_dir, outside)
        async with app.run_test(size=(120, 70)) as pilot:
            await until_seen(pilot, "warm: a run starts at once")
            await pilot.press("enter", "x", "s", "c")
            await until_seen(pilot, "checking on real ranks")
            folder = Path(outside.agent.requests[-1].folder)
            outside.agent.say(Lost(message="the launcher agent is gone"))
            await until_seen(pilot, "the launcher agent is gone")
            assert not folder.exists()
            assert app.check_exercise("ring-all-reduce", tmp_path / "exercises").startswith("torch is still")

    async def test_a_save_is_checked_while_watching(
        self, runs_dir: Path, outside: Outside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        app = app_of(runs_dir, outside)
        async with app.run_test(size=(120, 70)) as pilot:
            await until_seen(pilot, "warm: a run starts at once")
            await pilot.press("enter", "x", "s", "a")
            await until_seen(pilot, "watching: it is checked at every save")
            assert not outside.agent.requests
            (tmp_path / "exercises" / "ring_all_reduce.py").write_text("x = 1\n")
            await until(pilot, lambda: bool(outside.agent.requests))
            assert outside.agent.requests[-1].entrypoint == ENTRYPOINT
            self.end_check(outside, kind="file", message="no function")
            await until_seen(pilot, "no function")

    @staticmethod
    def end_check(outside: Outside, **fields: str) -> None:
        """Let the check that was asked for come to this verdict."""
        request = outside.agent.requests[-1]
        verdict = msgspec.convert({"exercise": request.argument["exercise"], **fields}, Verdict)
        (Path(request.folder) / VERDICT).write_bytes(msgspec.json.encode(verdict))
        outside.agent.say(Finished(run_id=request.run_id, exit_code=verdict.exit_code))
