"""Exporting from the run screen: one key, a format, and the place of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.fakes import NARROW, WIDE, Outside, app_of, screen_text
from tests.app.pilot import until, until_over, until_seen
from tests.exports.runs import data_parallel_run
from workbench.app import WorkbenchApp


def said(app: WorkbenchApp) -> str:
    """What the app's notices say, whole: on the screen they are broken into lines over the panes."""
    return " ".join(notice.message for notice in app._notifications)


async def test_e_exports_in_the_format_that_is_chosen_and_says_where(
    runs_dir: Path, outside: Outside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = data_parallel_run(tmp_path / "run-1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run-1.html").write_text("somebody else's")
    app = app_of(runs_dir, outside, run)
    async with app.run_test(size=WIDE) as pilot:
        await until_over(pilot)
        await pilot.press("e")
        await until_seen(pilot, "export this run as")
        assert "chrome" in screen_text(app)
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: (tmp_path / "run-1-2.html").exists())
        await until(pilot, lambda: f"run-1-2.html in {tmp_path}" in said(app))
    assert (tmp_path / "run-1.html").read_text() == "somebody else's"


async def test_escape_exports_nothing_and_trouble_is_said(
    runs_dir: Path, outside: Outside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = data_parallel_run(tmp_path / "run-1")
    monkeypatch.chdir(tmp_path)
    app = app_of(runs_dir, outside, run)
    async with app.run_test(size=NARROW) as pilot:
        screen = await until_over(pilot)
        await pilot.press("e")
        await until_seen(pilot, "export this run as")
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is screen)
        (run / "result.json").write_text("{")
        await pilot.press("e")
        await until_seen(pilot, "export this run as")
        await pilot.press("enter")
        await until(pilot, lambda: "result cannot be read" in said(app))
    assert not list(tmp_path.glob("run-1?*"))
