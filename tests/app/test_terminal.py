"""The app on a real terminal: it takes a run with it however it ends, and leaves the terminal as it was."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from labs.catalog import GROUPS, catalog
from labs.params import fields_of
from tests.cli.command import TIMEOUT_S, WORKBENCH, begun, family, gone, only_run, result, until
from workbench.options import AppOptions
from workbench.screens.form import common_fields

ALTERNATE_SCREEN, HIDDEN_CURSOR, MOUSE = ("?1049h", "?1049l"), ("?25l", "?25h"), ("?1003h", "?1003l")
COLOUR = re.compile(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")
SEQUENCE = re.compile(rb"\x1b(?:\[[0-9;?<>=]*[a-zA-Z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>78])")
OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
VALUES = {"nproc": b"2", "steps": b"100000"}
DOWN, TAB, ENTER = b"\x1b[B", b"\t", b"\r"


class Terminal:
    """`workbench` on a pseudo-terminal of 120x40, read whenever something is waited for."""

    def __init__(self, runs_dir: Path, *words: str, **environment: str) -> None:
        self.written = b""
        self._pressed = 0
        self.runs_dir = runs_dir
        self._master, slave = pty.openpty()
        os.set_blocking(self._master, False)
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWN_TERMINAL, *WORKBENCH, *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={
                **os.environ,
                "WORLDSIZE_RUNS_DIR": str(runs_dir),
                "TERM": "xterm-256color",
                "COLORTERM": "truecolor",
                "COLUMNS": "120",
                "LINES": "40",
                **environment,
            },
        )
        os.close(slave)

    def shows(self, *words: str) -> bool:
        """Whether these words were written since the last key, control sequences aside."""
        return all(word in self.text for word in words)

    @property
    def text(self) -> str:
        """What was written since the last key, without its control sequences."""
        return SEQUENCE.sub(b"", self.written[self._pressed :]).decode(errors="replace")

    def read(self) -> None:
        """Take what the app has written by now."""
        while self._master >= 0 and select.select([self._master], [], [], 0)[0]:
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:  # Linux tells so that the last process has left the terminal
                return
            if not data:
                return
            self.written += data

    def press(self, *keys: bytes) -> None:
        """Press keys, one after another."""
        self._pressed = len(self.written)
        for key in keys:
            os.write(self._master, key)

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Read until the condition holds; the app must not end meanwhile."""

        def met() -> bool:
            self.read()
            assert self.process.poll() is None, f"the app ended: {self.text[-2000:]}"
            return bool(condition())

        try:
            until(met, TIMEOUT_S, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; the end of what was written: {self.text[-2000:]}") from None

    def ended(self) -> int:
        """Read until the app has ended, and return its exit code."""

        def over() -> bool:
            self.read()
            return self.process.poll() is not None

        until(over, TIMEOUT_S, "the app has ended")
        self.read()
        assert self.process.returncode is not None
        return self.process.returncode

    def hang_up(self) -> None:
        """Close the terminal's window."""
        os.close(self._master)
        self._master = -1

    def last(self, sequences: tuple[str, str]) -> str:
        """Which of the two sequences was written last; empty: none."""
        found = {self.written.rfind(b"\x1b[" + each.encode()): each for each in sequences}
        return found[max(found)] if max(found) >= 0 else ""

    def begin_run(self) -> tuple[Path, list[psutil.Process]]:
        """Start `dp` with more steps than it can do; returns its folder and all processes, once under way."""
        self.until(lambda: self.shows("Worldsize"), "the home screen")
        order = [spec.id for group in GROUPS for spec in catalog().values() if spec.group == group]
        self.press(*[DOWN] * order.index("dp"), ENTER)
        # The agent is warm long after the screen has settled: no key comes too early then.
        self.until(lambda: self.shows("--bucket-mb", "torch 2", "a run starts at once"), "the lab, all warm")
        spec = catalog()["dp"]
        for field in (*common_fields(spec, AppOptions()), *fields_of(spec.params)):
            self.press(TAB)
            self.until(partial(self.shows, f"{field.flag}: "), f"the cursor in {field.flag}")
            if field.name in VALUES:
                self.press(VALUES[field.name])
                command = f"{field.flag} {VALUES[field.name].decode()}"
                self.until(partial(self.shows, command), f"{command} in the command")
            if field.name == "steps":
                break
        self.press(ENTER)
        self.until(lambda: list(self.runs_dir.glob("*/manifest.json")), "a run's folder")
        folder = only_run(self.runs_dir)
        self.until(lambda: begun(folder, 0), "the run under way")
        return folder, family(self.process.pid)


@pytest.fixture
def open_app(runs_dir: Path) -> Iterator[Callable[..., Terminal]]:
    """Opens the app on a terminal; what is left of it afterwards is killed."""
    opened: list[Terminal] = []

    def start(*words: str, **environment: str) -> Terminal:
        opened.append(Terminal(runs_dir, *words, **environment))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.process.kill()
        terminal.process.wait()


def test_it_is_terminated(open_app: Callable[..., Terminal]) -> None:
    terminal = open_app()
    folder, processes = terminal.begin_run()
    assert [terminal.last(each) for each in (ALTERNATE_SCREEN, HIDDEN_CURSOR, MOUSE)] == [
        "?1049h",
        "?25l",
        "?1003h",
    ]
    assert COLOUR.search(terminal.written)
    assert len(processes) >= 5, "the app, its agent, forkserver, collector and ranks"
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.ended() == 143
    gone(processes)
    assert result(folder)["status"] == "interrupted"
    assert [terminal.last(each) for each in (ALTERNATE_SCREEN, HIDDEN_CURSOR, MOUSE)] == [
        "?1049l",
        "?25h",
        "?1003l",
    ]
    assert "Traceback" not in terminal.text


def test_its_window_is_closed(open_app: Callable[..., Terminal]) -> None:
    """The system then sends SIGHUP, and nothing can be written any more."""
    terminal = open_app()
    folder, processes = terminal.begin_run()
    terminal.hang_up()
    assert terminal.ended() == 129
    gone(processes)
    assert result(folder)["status"] == "interrupted"


def test_it_is_killed_and_had_written_no_colour_and_asked_for_no_mouse(
    open_app: Callable[..., Terminal],
) -> None:
    terminal = open_app("--no-mouse", NO_COLOR="1")
    folder, processes = terminal.begin_run()
    assert not COLOUR.search(terminal.written)
    assert not re.search(rb"\x1b\[\?(9|100[0-6]|1015|1016)h", terminal.written.replace(b"\x1b[?1004h", b""))
    terminal.process.kill()
    gone(processes)
    found = result(folder)
    assert (found["status"], found["exit_code"]) == ("interrupted", 129)


def test_a_person_quits_from_a_light_screen(open_app: Callable[..., Terminal]) -> None:
    terminal = open_app("--theme", "textual-light")
    folder, processes = terminal.begin_run()
    assert b";2;224;224;224" in terminal.written, "the background of that theme"
    terminal.press(b"q")
    terminal.until(lambda: terminal.shows("again stops the run"), "being asked")
    terminal.press(b"q")
    assert terminal.ended() == 0
    assert f"--replay {folder.name}".encode() in terminal.written
    gone(processes)
    assert result(folder)["status"] == "interrupted"
    assert terminal.last(ALTERNATE_SCREEN) == "?1049l"
