"""The whole log of a run on a screen; and what all screens can do: hold, copy, write, find a command."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.events import Log, encode
from launcher.rundir import EVENTS, RESULT
from tests.app.conftest import Compare
from tests.app.fakes import NARROW, WIDE, Outside, app_of, screen_text
from tests.app.pilot import until, until_over, until_seen
from workbench.screens import keep
from workbench.screens.keep import osc52
from workbench.screens.log import LogScreen
from workbench.screens.run import RunScreen

SECOND = 1_000_000_000
Recorded = Callable[[str], Path]


def write(folder: Path, *lines: tuple[float, int, str]) -> None:
    """Append lines (seconds, rank, text) to the run's record."""
    with (folder / EVENTS).open("ab") as file:
        for seconds, rank, text in lines:
            stream = "stderr" if "warn" in text else "stdout"
            file.write(encode(Log(t=int(seconds * SECOND), rank=rank, stream=stream, line=text)))  # type: ignore[arg-type]


@pytest.fixture
def chatty(recorded: Recorded) -> Path:
    """A run whose ranks printed: all the same, one a warning, and a long story on rank 2."""
    folder = recorded("dp")
    write(folder, *((1 + rank / 100, rank, "loading data") for rank in range(8)))
    write(folder, (2, 3, "warning: slow disk"), *((3 + n, 2, f"chapter {n}") for n in range(60)))
    return folder


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["80x24", "120x40"])
async def test_a_person_reads_the_log(
    size: tuple[int, int], chatty: Path, runs_dir: Path, outside: Outside, same_as_snapshot: Compare
) -> None:
    app = app_of(runs_dir, outside, chatty)
    async with app.run_test(size=size, notifications=True) as pilot:
        await until_over(pilot)
        await pilot.press("L")
        await until_seen(pilot, "chapter 59")
        await pilot.press("home")
        await until_seen(pilot, "r0-7 x8")
        await until_seen(pilot, "stays")
        same_as_snapshot(f"log-{size[0]}x{size[1]}", screen_text(app))
        await pilot.press("slash", *"slow", "enter")
        await until_seen(pilot, "1 with 'slow'")
        screen = app.screen
        assert isinstance(screen, LogScreen)
        assert screen.pane.at == 1
        await pilot.press("slash", *["backspace"] * 4, *"chapter 5", "enter")
        await until_seen(pilot, "11 with 'chapter 5'")
        await pilot.press("n", "n", "N")
        assert screen.pane._entries[screen.pane.at].text == "chapter 50"
        await pilot.press(*["right_square_bracket"] * 4)
        await until_seen(pilot, "rank 3")
        assert "chapter 1" not in screen_text(app)
        assert "! warning: slow disk" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))


async def test_the_log_follows_a_run_that_goes_on(
    recorded: Recorded, runs_dir: Path, outside: Outside
) -> None:
    folder = recorded("dp")
    (folder / RESULT).rename(folder / "later")
    app = app_of(runs_dir, outside, folder)
    async with app.run_test(size=NARROW) as pilot:
        await pilot.press("L")
        await until_seen(pilot, "nothing yet")
        write(folder, *((n, 0, f"line {n}") for n in range(40)))
        await until_seen(pilot, "line 39")
        await pilot.press("pageup")
        await until_seen(pilot, "stays")
        write(folder, (50, 0, "line 50"))
        await until_seen(pilot, "41 lines")
        assert "line 50" not in screen_text(app)
        await pilot.press("f")
        await until_seen(pilot, "line 50")


async def test_holding_the_view_does_not_hold_the_run(
    recorded: Recorded, runs_dir: Path, outside: Outside
) -> None:
    folder = recorded("dp")
    record = (folder / EVENTS).read_bytes()
    half = record.index(b"\n", len(record) // 2) + 1
    (folder / EVENTS).write_bytes(record[:half])
    (folder / RESULT).rename(folder / "later")
    app = app_of(runs_dir, outside, folder)
    async with app.run_test(size=WIDE) as pilot:
        screen = app.screen
        assert isinstance(screen, RunScreen)
        await until(pilot, lambda: screen.feed._tail.position == half)
        await pilot.press("space")
        await until_seen(pilot, "view held")
        (folder / EVENTS).write_bytes(record)
        (folder / "later").rename(folder / RESULT)
        before = screen_text(app)
        for _ in range(3):
            screen.tick()
            await pilot.pause()
        assert screen_text(app) == before
        await pilot.press("space")
        await until_seen(pilot, "passed: ")
        assert "view held" not in screen_text(app)


class TestTakingAPaneAlong:
    async def test_copy_and_file_hold_the_focused_pane(
        self, chatty: Path, runs_dir: Path, outside: Outside, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("TMUX", raising=False)
        app = app_of(runs_dir, outside, chatty)
        written: list[str] = []
        async with app.run_test(size=WIDE, notifications=True) as pilot:
            screen = await until_over(pilot)
            screen.panes["checks"].focus()
            await pilot.pause()
            assert app._driver is not None
            monkeypatch.setattr(app._driver, "write", written.append)
            await pilot.press("y")
            await until(pilot, lambda: any("]52;" in text for text in written))
            await pilot.press("w")
            await until_seen(pilot, "wrote ")
        copied = next(text for text in written if "]52;" in text)
        text = base64.b64decode(copied.removeprefix("\x1b]52;c;").removesuffix("\x07")).decode()
        assert "parameters" in text
        assert (chatty / "checks-1.txt").read_text() == text + "\n"

    def test_through_tmux_the_sequence_is_wrapped_with_its_escapes_doubled(self) -> None:
        plain = osc52("a", {})
        assert plain == "\x1b]52;c;YQ==\x07"
        assert osc52("a", {"TMUX": "/tmp/t,1,0"}) == f"{plain}\x1bPtmux;\x1b\x1b]52;c;YQ==\x07\x1b\\"
        assert osc52("a", {"STY": "1.x"}) == f"\x1bP{plain}\x1b\\"

    def test_a_folder_that_cannot_be_written_is_passed_over(self, tmp_path: Path) -> None:
        assert keep.save("a", "pane", (tmp_path / "none", tmp_path)) == tmp_path / "pane-1.txt"
        assert keep.save("b", "pane", (tmp_path,)) == tmp_path / "pane-2.txt"
        with pytest.raises(FileNotFoundError):
            keep.save("c", "pane", (tmp_path / "none",))


async def test_the_palette_has_every_action_and_does_it(
    recorded: Recorded, runs_dir: Path, outside: Outside
) -> None:
    app = app_of(runs_dir, outside, recorded("dp"))
    async with app.run_test(size=WIDE) as pilot:
        await until_over(pilot)
        await pilot.press("colon", *"whole log")
        await until_seen(pilot, "key L")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, LogScreen))
        await pilot.press("colon", *"next rank")
        await until_seen(pilot, "choose the next rank")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, LogScreen) and app.screen.pane.rank == 0)
        await pilot.press("colon", *"theme nord")
        await until_seen(pilot, "theme nord")
        await pilot.press("enter")
        await until(pilot, lambda: app.theme == "nord")
