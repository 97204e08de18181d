"""A terminal that misbehaves, and an app that does: strange bytes, sizes that change, a crash."""

from __future__ import annotations

import sys
import termios
from collections.abc import Callable
from pathlib import Path

from launcher.rundir import RESULT
from tests.cli.command import WORKBENCH
from tests.terminal import Terminal

CRASHING = """
import workbench.app
from workbench.__main__ import main
def boom(self):
    raise RuntimeError("this app was asked to crash")
workbench.app.WorkbenchApp.action_help = boom
main()
"""
SPLIT_MOUSE = (b"\x1b[<35;4", b"0;12M")
NOT_UTF8 = (
    b"\xff\xfe\x80",
    b"\xc3(",
    b"\xe2\x82",
    b"\x1b[<\xff\xff;1M",
    b"\x1b[200~\xf0\x28\x8c\x28\x1b[201~",
)


def test_strange_bytes_and_new_sizes_in_the_middle_of_a_run(recorded: Callable[[str], Path]) -> None:
    folder = recorded("dp")
    (folder / RESULT).unlink()
    with Terminal([*WORKBENCH, "--attach", str(folder)], 120, 40) as terminal:
        terminal.until("attached, read-only")
        for data in (*SPLIT_MOUSE, *NOT_UTF8):
            terminal.send(data)
            terminal.drain(0.1)
        since = len(terminal.written)
        terminal.resize(80, 24)
        terminal.until("1 loss  2 ranks", since=since)
        since = len(terminal.written)
        terminal.resize(20, 5)
        terminal.drain(0.3)
        terminal.resize(120, 40)
        # Of a split report the rest may count as keys, on a slow machine: which pane is shown is open.
        terminal.until("L whole log", since=since)
        since = len(terminal.written)
        terminal.send(b" ")
        terminal.until("view held", since=since)
        terminal.send(b"q")
        assert terminal.wait() == 0


def test_after_a_crash_the_terminal_is_as_it_was(recorded: Callable[[str], Path]) -> None:
    command = [sys.executable, "-c", CRASHING, "--replay", str(recorded("dp"))]
    with Terminal(command, 120, 40) as terminal:
        terminal.until("passed: ")
        since = len(terminal.written)
        terminal.send(b"?")
        code = terminal.wait()
        rest = bytes(terminal.written[since:])
        assert b"\x1b[?1049l" in rest
        assert b"\x1b[?25h" in rest
        assert b"\x1b[?1003l" in rest
        assert termios.tcgetattr(terminal.slave) == terminal.before
    assert code == 2
    said = rest.rpartition(b"\x1b[?1049l")[2]
    assert b"this app was asked to crash" in said
    assert b"Traceback" not in said
