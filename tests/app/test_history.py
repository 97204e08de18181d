"""The history: finding runs, keeping a note, deleting with a question first, marking runs to compare."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from labs.params import ParameterError
from launcher.lifeline import identify
from launcher.rundir import MANIFEST, RESULT, read_manifest, write_manifest
from tests.app.conftest import RECORDED, Compare
from tests.app.fakes import NARROW, WIDE, Outside, app_of, screen_text
from tests.app.pilot import until, until_seen
from workbench import history
from workbench.screens.dialog import Confirm
from workbench.screens.history import HistoryScreen
from workbench.screens.run import RunScreen


@pytest.fixture
def kept(runs_dir: Path) -> Path:
    """A folder with three recorded runs; dp-killed is the newest."""
    for age, name in enumerate(("dp-killed", "dp", "collectives")):
        folder = Path(shutil.copytree(RECORDED / name, runs_dir / name))
        moment = 1_700_000_000 - age
        os.utime(folder / MANIFEST, (moment, moment))
    return runs_dir


def names(found: list[history.HistoryRun]) -> list[str]:
    return [run.manifest.run_id for run in found]


class TestFinding:
    def test_the_newest_first(self, kept: Path) -> None:
        assert names(history.load(kept)) == ["dp-killed", "dp", "collectives"]

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("dp", ["dp-killed", "dp"]),
            ("DP passed", ["dp"]),
            ("nproc=4", ["collectives"]),
            ("steps=12 error", ["dp-killed"]),
            ("nothing", []),
        ],
    )
    def test_every_word_must_occur(self, kept: Path, query: str, expected: list[str]) -> None:
        assert names(history.chosen(history.load(kept), query, "newest")) == expected

    def test_a_note_is_found_too(self, kept: Path) -> None:
        history.write_note(kept / "collectives", "  for\nthe talk ")
        found = history.chosen(history.load(kept), "the talk", "newest")
        assert [run.note for run in found] == ["for the talk"]

    @pytest.mark.parametrize(
        ("order", "expected"),
        [
            ("lab", ["collectives", "dp-killed", "dp"]),
            ("status", ["dp-killed", "dp", "collectives"]),
            ("ranks", ["dp-killed", "dp", "collectives"]),
        ],
    )
    def test_orders(self, kept: Path, order: history.Order, expected: list[str]) -> None:
        assert names(history.chosen(history.load(kept), "", order)) == expected

    def test_the_longest_first(self, kept: Path) -> None:
        walls = [run.result.wall_s for run in history.chosen(history.load(kept), "", "longest") if run.result]
        assert walls == sorted(walls, reverse=True)

    def test_every_status_has_its_place(self) -> None:
        assert set(history.STATUS_ORDER) == {
            *("passed", "failed", "error", "interrupted"),
            *("running", "lost", "no result"),
        }

    def test_damaged_folders_are_passed_over(self, kept: Path) -> None:
        (kept / "dp" / MANIFEST).write_text("{")
        (kept / "collectives" / RESULT).write_text("{")
        assert [(run.manifest.run_id, run.status) for run in history.load(kept)] == [
            ("dp-killed", "error"),
            ("collectives", "no result"),
        ]

    def test_only_what_differs_from_the_defaults(self, kept: Path) -> None:
        manifest = read_manifest(kept / "dp")
        changed = history.changed_params(manifest)
        assert "steps=12" in changed
        assert len(changed) < len(manifest.params)
        assert len(history.changed_params(msgspec.structs.replace(manifest, lab="gone"))) == len(
            manifest.params
        )


class TestChanging:
    def test_an_empty_note_leaves_no_file(self, kept: Path) -> None:
        history.write_note(kept / "dp", "x")
        history.write_note(kept / "dp", " ")
        assert not (kept / "dp" / history.NOTE).exists()

    def test_a_run_in_progress_is_not_deleted_nor_any_with_it(self, kept: Path) -> None:
        manifest = msgspec.structs.replace(
            read_manifest(kept / "dp"), owner=identify(os.getpid()), machine={}
        )
        write_manifest(kept / "dp", manifest)
        (kept / "dp" / RESULT).unlink()
        with pytest.raises(ParameterError, match="dp: still runs"):
            history.delete(history.load(kept))
        assert len(history.load(kept)) == 3


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "120x40"])
async def test_a_person_goes_through_the_history(
    size: tuple[int, int], kept: Path, outside: Outside, same_as_snapshot: Compare
) -> None:
    app = app_of(kept, outside)
    async with app.run_test(size=size, notifications=True) as pilot:
        await pilot.press("h")
        await until_seen(pilot, "history: 3 of 3 runs")
        unseen = Confirm("sure?")
        app.push_screen(unseen)
        unseen.action_answer(True)
        await until_seen(pilot, "sure?")
        await pilot.press("n")
        await pilot.press("n", *"see", "enter")
        await until_seen(pilot, " see ")
        assert history.read_note(kept / "dp-killed") == "see"
        await pilot.press("down", "m")
        await until_seen(pilot, "1 marked")
        same_as_snapshot(f"history-{size[0]}x{size[1]}", screen_text(app))
        await pilot.press("tab", "end")
        await until_seen(pilot, "all_to_all.bytes")  # the last of the key figures, below the small box
        await pilot.press("shift+tab")
        await pilot.press("d")
        await until_seen(pilot, "Delete dp, record and all?")
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, HistoryScreen))
        assert (kept / "dp").exists()
        await pilot.press("d")
        await until_seen(pilot, "Delete dp")
        await pilot.press("y")
        await until_seen(pilot, "history: 2 of 2 runs")
        assert not (kept / "dp").exists()
        await pilot.press("slash", *"coll", "enter")
        await until_seen(pilot, "history: 1 of 2 runs")
        await pilot.press("c")
        await until_seen(pilot, "mark two runs or more")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        assert app.screen.feed.folder == kept / "collectives"  # type: ignore[attr-defined]


async def test_with_ascii_alone_no_screen_writes_anything_else(kept: Path, outside: Outside) -> None:
    app = app_of(kept, outside, ascii_only=True)
    async with app.run_test(size=WIDE) as pilot:
        for keys, text in (
            (["h"], "history: 3 of 3 runs"),
            (["m"], "1 marked"),
            (["n"], "note of dp"),
            (["escape", "d"], "Delete dp-killed, record"),
            (["n", "m", "c"], "runs side by side"),
            (["escape", "enter"], "esc back"),
            (["L"], "follows"),
            (["colon"], "an action, a lab, a theme"),
        ):
            await pilot.press(*keys)
            await until_seen(pilot, text)
            assert screen_text(app).isascii(), screen_text(app)


async def test_an_empty_history_says_what_to_do(runs_dir: Path, outside: Outside) -> None:
    app = app_of(runs_dir, outside)
    async with app.run_test(size=NARROW) as pilot:
        await pilot.press("h")
        await until_seen(pilot, "no run yet: choose a lab and run it")
        await pilot.press("d", "n", "space", "enter", "escape")
        await until_seen(pilot, "recent runs")
