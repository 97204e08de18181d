"""A command started by a fork: it finds what a fresh interpreter would, and nothing of its parent."""

from __future__ import annotations

import json
import multiprocessing.forkserver
import multiprocessing.util
import os
import signal
import socket
import sys
import threading
from typing import Any

import pytest

from launcher.forked import fork_passing, forking

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the agent forks on Linux alone")

LOOK = """
import json, os, signal, sys
stdin = sys.stdin.read()
handlers = [number for number in signal.valid_signals() if callable(signal.getsignal(number))]
blocked = list(signal.pthread_sigmask(signal.SIG_BLOCK, []))
opened = [int(name) for name in os.listdir("/proc/self/fd")]
os.write({out}, json.dumps([stdin, handlers, blocked, opened, __name__]).encode())
"""

MULTIPROCESSING = """
import multiprocessing.forkserver, multiprocessing.resource_tracker, multiprocessing.util, os
held = multiprocessing.forkserver._forkserver._lock.locked()
tracker = multiprocessing.resource_tracker._resource_tracker._fd
os.write({out}, repr((held, tracker, multiprocessing.util.spawnv_passfds.__module__)).encode())
"""


def run(command: str) -> tuple[bytes, int]:
    """Start a command with the writing end of a pipe; what it wrote, and its exit code."""
    reading, writing = os.pipe()
    pid = fork_passing("", ["python", "-c", command.format(out=writing)], [writing])
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    return told, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_the_child_has_nothing_of_its_parent() -> None:
    ours, theirs = socket.socketpair()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    held = threading.Lock()
    threading.Thread(target=ours.recv, args=(1,), daemon=True).start()
    with held, ours, theirs:
        told, code = run(LOOK)
        theirs.send(b"x")
    signal.signal(signal.SIGUSR1, before)
    stdin, handlers, blocked, opened, name = json.loads(told)
    assert code == 0
    assert stdin == ""
    assert handlers == [signal.SIGINT]
    assert blocked == []
    assert len(opened) == 5, "stdin, stdout, stderr, the pipe, and the listing itself"
    assert name == "__main__"
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set(), "and the parent hears signals again"


def test_the_child_can_start_processes_in_every_way() -> None:
    """It is forked by a multiprocessing that holds its lock and starts helpers by forks."""
    forkserver: Any = multiprocessing.forkserver
    util: Any = multiprocessing.util
    before = util.spawnv_passfds
    with forking(), forkserver._forkserver._lock:
        told, code = run(MULTIPROCESSING)
    assert (told, code) == (b"(False, None, 'multiprocessing.util')", 0)
    assert util.spawnv_passfds is before


def test_what_the_parent_has_not_written_yet_is_written_once(capfd: pytest.CaptureFixture[str]) -> None:
    kept, sys.stdout = sys.stdout, open(os.dup(1), "w")  # noqa: SIM115
    sys.stdout.write("once ")
    run("import sys; sys.stdout.flush()")
    sys.stdout.close()
    sys.stdout = kept
    assert capfd.readouterr().out == "once "


@pytest.mark.parametrize(
    ("command", "expected"),
    [("raise SystemExit", 0), ("raise SystemExit(5)", 5), ("raise SystemExit('no')", 1), ("1 / 0", 1)],
)
def test_it_ends_as_an_interpreter_would(command: str, expected: int) -> None:
    assert run(command) == (b"", expected)
