"""Real runs of `dp` by the command: what is printed where, the exit code, and the commands that it shows."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

from launcher.rundir import Result
from tests.cli.command import (
    TIMEOUT_S,
    WORKBENCH,
    begun,
    events,
    family,
    gone,
    only_run,
    result,
    started,
    workbench,
)

SHORT = ("--run", "dp", "--nproc", "2", "--steps", "4", "--dim", "16")
LONG = ("--run", "dp", "--nproc", "2", "--steps", "100000", "--dim", "16")
CONTRACT = {
    "schema",
    "run_id",
    "lab",
    "params",
    "world_size",
    "backend",
    "device",
    "launcher",
    "status",
    "exit_code",
    "wall_s",
    "ready_s",
    "checks",
    "metrics",
    "failure",
    "events",
    "dropped",
    "record",
}


@pytest.mark.parametrize("launcher", ["warm", "torchrun"])
def test_json_is_one_object_and_nothing_else(runs_dir: Path, launcher: str) -> None:
    done = workbench(*SHORT, "--seed", "3", "--launcher", launcher, "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert set(printed) >= CONTRACT
    folder = only_run(runs_dir)
    assert json.loads((folder / "result.json").read_text()) == printed
    found = msgspec.convert(printed, Result)
    assert (found.lab, found.world_size, found.launcher, found.status) == ("dp", 2, launcher, "passed")
    assert found.params["steps"] == 4
    assert found.checks
    assert all(check.passed for check in found.checks)
    assert found.ready_s is not None
    assert 0 < found.ready_s < found.wall_s
    assert found.events == len(events(folder))
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["seed"] == 3
    assert manifest["why_backend"]
    lines = done.stderr.splitlines()
    assert lines
    assert all(line.startswith("dp: ") for line in lines)
    assert "\x1b" not in done.stderr
    assert "\r" not in done.stderr


def test_quiet_says_nothing_and_the_verdict_has_every_check(runs_dir: Path) -> None:
    done = workbench(*SHORT, "--quiet")
    assert done.returncode == 0
    assert done.stderr == ""
    for check in result(only_run(runs_dir))["checks"]:
        assert f"passed  {check['name']}" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("passed: ")
    listed = json.loads(workbench("--runs", "--json").stdout)
    assert [(run["lab"], run["status"], run["world_size"]) for run in listed] == [("dp", "passed", 2)]
    assert "passed" in workbench("--runs").stdout


def test_on_a_terminal_progress_is_a_bar_that_is_taken_away(runs_dir: Path) -> None:
    """stderr is a terminal, stdout is not: the bar goes to the one, the verdict to the other."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*WORKBENCH, *SHORT],
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"},
    )
    os.close(slave)
    shown = b""
    try:
        while chunk := os.read(master, 65536):
            shown += chunk
    except OSError:  # Linux tells so that the last process has closed the terminal
        pass
    verdict = process.communicate(timeout=TIMEOUT_S)[0].decode()
    os.close(master)
    assert process.returncode == 0
    assert "█".encode() in shown or "░".encode() in shown
    assert b"100%" in shown or b"step" in shown
    assert shown.endswith(b"\r\x1b[K")
    assert b"passed" not in shown
    assert verdict.splitlines()[-1].startswith("passed: ")
    assert only_run(runs_dir)


def test_the_dry_run_command_works_when_pasted(tmp_path: Path) -> None:
    line = workbench(*SHORT, "--seed", "3", "--dry-run").stdout.strip()
    words = shlex.split(line)
    done = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert words[words.index("--seed") + 1] == "3"
    assert "passed" in done.stdout
    assert "FAILED" not in done.stdout


def test_out_of_time_is_an_error(runs_dir: Path) -> None:
    done = workbench(*LONG, "--timeout", "6", "--json")
    assert done.returncode == 3
    printed = json.loads(done.stdout)
    assert (printed["status"], printed["exit_code"]) == ("error", 3)
    assert printed["failure"]["kind"] == "timeout"
    assert "6 s" in printed["reason"] + printed["failure"]["message"]
    assert printed == result(only_run(runs_dir))


def test_a_killed_rank_is_named_and_the_others_are_not(runs_dir: Path) -> None:
    process = started(LONG)
    folder = only_run(runs_dir)
    while not begun(folder):
        assert process.poll() is None, process.communicate()
    pid = next(event["pid"] for event in events(folder) if event["event"] == "hello" and event["rank"] == 1)
    processes = family(process.pid)
    os.kill(pid, signal.SIGKILL)
    verdict, progress = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 3
    assert "rank 1 failed first (signal" in verdict
    assert verdict.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in progress
    failure = result(folder)["failure"]
    assert (failure["rank"], failure["kind"]) == (1, "signal")
    gone(processes)
