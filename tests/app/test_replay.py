"""The run screen on recorded runs: the grid, one pane at a time, the panes' content, the verdicts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.rundir import EVENTS, RESULT
from tests.app.conftest import Compare
from tests.app.fakes import NARROW, WIDE, Outside, app_of, screen_text
from tests.app.pilot import until, until_over, until_seen
from tests.app.recording import collectives_events, failed_events, manifest_of, result_of, write_run

Recorded = Callable[[str], Path]


def strange(text: str) -> set[str]:
    """The characters of a screen that are not ASCII."""
    return {character for character in text if not character.isascii()}


class TestALearnerReplaysARun:
    @pytest.mark.parametrize(
        ("digit", "pane"),
        [
            ("1", "loss"),
            ("2", "ranks"),
            ("3", "shards"),
            ("4", "communication"),
            ("5", "timeline"),
            ("6", "utilisation"),
            ("7", "checks"),
            ("8", "log"),
        ],
    )
    async def test_a_digit_shows_one_pane_alone_and_again_the_grid(
        self,
        digit: str,
        pane: str,
        recorded: Recorded,
        runs_dir: Path,
        outside: Outside,
        same_as_snapshot: Compare,
    ) -> None:
        app = app_of(runs_dir, outside, recorded("dp"))
        async with app.run_test(size=WIDE) as pilot:
            screen = await until_over(pilot)
            await pilot.press(digit)
            assert [name for name, shown in screen.panes.items() if shown.display] == [pane]
            same_as_snapshot(f"pane-{pane}", screen_text(app))
            await pilot.press(digit)
            assert sum(shown.display for shown in screen.panes.values()) == 8

    async def test_arrows_turn_the_panes_on_a_small_terminal(
        self, recorded: Recorded, runs_dir: Path, outside: Outside
    ) -> None:
        app = app_of(runs_dir, outside, recorded("dp"))
        async with app.run_test(size=NARROW) as pilot:
            screen = await until_over(pilot)
            assert screen.active == "loss"
            await pilot.press("right")
            assert screen.active == "ranks"
            await pilot.press("left", "left")
            assert screen.active == "log"

    async def test_growing_and_shrinking_the_terminal(
        self, recorded: Recorded, runs_dir: Path, outside: Outside
    ) -> None:
        app = app_of(runs_dir, outside, recorded("dp"))
        async with app.run_test(size=WIDE) as pilot:
            screen = await until_over(pilot)
            assert screen.active is None
            await pilot.resize_terminal(*NARROW)
            await until(pilot, lambda: screen.active == "loss")
            await pilot.resize_terminal(*WIDE)
            await until(pilot, lambda: screen.active is None)

    async def test_brackets_choose_a_rank(self, recorded: Recorded, runs_dir: Path, outside: Outside) -> None:
        app = app_of(runs_dir, outside, recorded("dp-killed"))
        async with app.run_test(size=WIDE) as pilot:
            await until_over(pilot)
            await pilot.press("right_square_bracket")
            await until_seen(pilot, "[ ] rank 0")
            await pilot.press("left_square_bracket", "left_square_bracket")
            await until_seen(pilot, "[ ] rank 7")

    async def test_help_lists_the_keys(
        self, recorded: Recorded, runs_dir: Path, outside: Outside, same_as_snapshot: Compare
    ) -> None:
        app = app_of(runs_dir, outside, recorded("dp"))
        async with app.run_test(size=NARROW) as pilot:
            await until_over(pilot)
            await pilot.press("question_mark")
            await until_seen(pilot, "pane alone")
            same_as_snapshot("help-80x24", screen_text(app))


class TestWhatTheRunShows:
    async def test_buffers_name_the_rank_each_element_came_from(
        self, runs_dir: Path, outside: Outside
    ) -> None:
        manifest = manifest_of("collectives", 4)
        events = collectives_events(manifest)
        folder = write_run(runs_dir / "c", manifest, events, result_of(manifest, events))
        app = app_of(runs_dir, outside, folder)
        async with app.run_test(size=NARROW) as pilot:
            await until_over(pilot)
            assert "r2   20₂ 21₂ 22₂ 23₂  →   60Σ 64Σ 68Σ 72Σ" in screen_text(app)

    async def test_the_failure_comes_by_itself_with_its_traceback_once(
        self, runs_dir: Path, outside: Outside
    ) -> None:
        manifest = manifest_of("dp")
        events, failure = failed_events(manifest)
        folder = write_run(runs_dir / "f", manifest, events, result_of(manifest, events, failure))
        app = app_of(runs_dir, outside, folder)
        async with app.run_test(size=NARROW) as pilot:
            screen = await until_over(pilot)
            assert screen.active == "failure"
            text = screen_text(app)
            assert "rank 3 failed first: exception" in text
            assert text.count("Traceback") == 1
            assert "ranks 0-2, 4-7 only noticed it" in text

    @pytest.mark.parametrize("name", ["dp", "dp-killed", "collectives"])
    @pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "120x40"])
    async def test_ascii_draws_nothing_but_ascii(
        self, name: str, size: tuple[int, int], recorded: Recorded, runs_dir: Path, outside: Outside
    ) -> None:
        app = app_of(runs_dir, outside, recorded(name), ascii_only=True)
        async with app.run_test(size=size) as pilot:
            screen = await until_over(pilot)
            for digit in "1234567890":
                await pilot.press(digit)
                text = screen_text(app)
                assert strange(text) == set()
            await pilot.press("question_mark")
            assert strange(screen_text(app)) == set()
            assert screen.feed.result is not None

    async def test_ascii_on_home_and_lab(self, runs_dir: Path, outside: Outside) -> None:
        app = app_of(runs_dir, outside, ascii_only=True)
        async with app.run_test(size=WIDE) as pilot:
            await until_seen(pilot, "warm: a run starts at once")
            assert strange(screen_text(app)) == set()
            await pilot.press("down", "enter")
            await until_seen(pilot, "--variant")
            assert strange(screen_text(app)) == set()

    async def test_a_folder_that_is_no_run_is_a_notice(self, runs_dir: Path, outside: Outside) -> None:
        app = app_of(runs_dir, outside, runs_dir)
        async with app.run_test(size=WIDE, notifications=True) as pilot:
            await until_seen(pilot, "is no run")


class TestARecordThatIsNotWhole:
    async def test_half_a_line_and_strange_lines_are_passed_over(
        self, recorded: Recorded, runs_dir: Path, outside: Outside
    ) -> None:
        folder = recorded("dp")
        record = folder / EVENTS
        record.write_bytes(b'{"event":"of the future"}\nnonsense\n' + record.read_bytes() + b'{"event":"sca')
        app = app_of(runs_dir, outside, folder)
        async with app.run_test(size=WIDE) as pilot:
            await until_over(pilot)
            assert "12 of 12 passed" in screen_text(app)

    async def test_without_a_result_it_stays_a_run_in_progress(
        self, recorded: Recorded, runs_dir: Path, outside: Outside
    ) -> None:
        folder = recorded("dp")
        (folder / RESULT).unlink()
        app = app_of(runs_dir, outside, folder)
        async with app.run_test(size=WIDE) as pilot:
            await until_seen(pilot, "12 of 12 passed")
            assert "running" in screen_text(app)

    async def test_a_damaged_result_is_said(
        self, recorded: Recorded, runs_dir: Path, outside: Outside
    ) -> None:
        folder = recorded("dp")
        (folder / RESULT).write_text("{")
        app = app_of(runs_dir, outside, folder)
        async with app.run_test(size=WIDE) as pilot:
            await until_seen(pilot, "result.json cannot be read")
