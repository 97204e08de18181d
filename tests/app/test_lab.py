"""The lab screen: the form, what is wrong with a value, the commands, the guide, and Run."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input

from labs.catalog import catalog
from labs.params import fields_of
from launcher.rundir import read_manifest
from tests.app.conftest import Compare
from tests.app.fakes import NARROW, WIDE, Outside, app_of, screen_text
from tests.app.pilot import until, until_seen
from workbench.app import WorkbenchApp
from workbench.options import AppOptions
from workbench.screens.form import common_fields, hint
from workbench.screens.lab import LabScreen
from workbench.screens.run import RunScreen


def text_of(app: WorkbenchApp, widget: str) -> str:
    """What a Static on the lab screen says."""
    return str(app.screen.query_one(widget).render())


class TestALearnerReadsTheLab:
    @pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "120x40"])
    async def test_form_guide_and_commands(
        self,
        size: tuple[int, int],
        outside: Outside,
        same_as_snapshot: Compare,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("workbench.screens.lab.torchrun_command", lambda *_: "torchrun ...")
        app = app_of(Path("runs"), outside)
        async with app.run_test(size=size) as pilot:
            await pilot.press("down", "enter")
            await until_seen(pilot, "warm: a run starts at once")
            await until_seen(pilot, "torch 2.13.0")
            same_as_snapshot(f"lab-{size[0]}x{size[1]}", screen_text(app))

    async def test_on_a_small_terminal_g_turns_to_the_guide_and_back(
        self, runs_dir: Path, outside: Outside
    ) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=NARROW) as pilot:
            await pilot.press("down", "enter")
            await until_seen(pilot, "--variant")
            await pilot.press("g")
            await until_seen(pilot, "Every rank holds the whole model")
            assert "--variant" not in screen_text(app)
            await pilot.press("escape")
            await until_seen(pilot, "--variant")
            assert isinstance(app.screen, LabScreen)


class TestALearnerChangesParameters:
    async def test_a_wrong_value_names_its_flag_and_does_not_run(
        self, runs_dir: Path, outside: Outside
    ) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE) as pilot:
            await pilot.press("down", "enter")
            await until_seen(pilot, "torch 2.13.0")
            await pilot.click("#value-steps")
            await pilot.press("end", "x")
            await until_seen(pilot, "--steps: '60x' is not a whole number")
            assert app.screen.query_one("#field-steps").has_class("-refused")
            await pilot.press("enter", "ctrl+r")
            assert isinstance(app.screen, LabScreen)
            assert not outside.agent.requests
            await pilot.press("backspace")
            await until(pilot, lambda: not app.screen.query_one("#field-steps").has_class("-refused"))

    @pytest.mark.parametrize(
        ("keys", "message"),
        [
            (("backspace", "1"), "--nproc: 1 rank does not fit dp: allowed 2 to 64"),
            (("backspace", "x"), "--nproc: 'x' is not a whole number"),
            (("backspace",), "--nproc: '' is not a whole number"),
        ],
    )
    async def test_ranks_are_checked_too(
        self, keys: tuple[str, ...], message: str, runs_dir: Path, outside: Outside
    ) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE) as pilot:
            await pilot.press("down", "enter", "tab")
            assert app.focused is app.screen.query_one("#value-nproc")
            await pilot.press("end", *keys)
            await until_seen(pilot, message)

    async def test_a_combination_that_the_lab_refuses(self, runs_dir: Path, outside: Outside) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE) as pilot:
            await pilot.press("down", "enter", "tab", "end", "backspace", "6", "4")
            await pilot.click("#value-batch")
            await pilot.press("end", "backspace")
            await until_seen(pilot, "--batch: 12 rows do not fit 64 ranks")

    async def test_the_commands_follow_the_form(self, runs_dir: Path, outside: Outside) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE) as pilot:
            await pilot.press("down", "enter", "tab", "end", "backspace", "8")
            await until(pilot, lambda: "--nproc 8" in text_of(app, "#commands"))
            assert "--nproc-per-node 8" in text_of(app, "#commands")
            assert "-m labs.worker dp" in text_of(app, "#commands")
            await pilot.press("escape")
            assert app.focused is app.screen.query_one("#run")

    async def test_keys_that_come_together_act_in_their_order(self, runs_dir: Path, outside: Outside) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE) as pilot:
            await pilot.press("down", "enter", "tab", "end")
            for key, character in (
                ("backspace", None),
                ("8", "8"),
                ("1", "1"),
                ("backspace", None),
                ("6", "6"),
            ):
                app.post_message(events.Key(key, character))
            await until(pilot, lambda: isinstance(app.focused, Input) and app.focused.value == "86")

    async def test_run_makes_a_folder_and_asks_the_agent(self, runs_dir: Path, outside: Outside) -> None:
        app = app_of(runs_dir, outside)
        async with app.run_test(size=WIDE) as pilot:
            await pilot.press("down", "enter")
            await until_seen(pilot, "torch 2.13.0")
            await pilot.press("tab", "end", "backspace", "3", "enter")
            await until(pilot, lambda: isinstance(app.screen, RunScreen))
            request = outside.agent.requests[-1]
            assert request.world_size == 3
            manifest = read_manifest(Path(request.folder))
            assert manifest.lab == "dp"
            assert manifest.params["broadcast"] is True
            await until_seen(pilot, "starting")


def test_a_hint_says_as_much_as_it_has_room_for_and_ends_at_a_word() -> None:
    spec = catalog()["dp"]
    fields = {field.name: field for field in (*common_fields(spec, AppOptions()), *fields_of(spec.params))}
    said = {
        ("nproc", 30): "number of ranks  >=2 <=64",
        ("nproc", 18): "number of ranks",
        ("bucket_mb", 25): "MiB a bucket",
        ("data", 25): "your own folder",
        ("variant", 30): "bucketed, ddp, flat, naive",
        ("variant", 20): "bucketed, ddp,~",
        ("batch", 25): "rows, sequences or~",
    }
    for (name, room), expected in said.items():
        assert hint(fields[name], room, "~") == expected
