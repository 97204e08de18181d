"""Runs `workbench` as a process, and finds what a run of it leaves behind.

Processes of a run are found by the session that they were started in and by its folder, never by name.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

TIMEOUT_S = 110.0
WORKBENCH = (sys.executable, "-m", "workbench")
STARTED: list[subprocess.Popen[str]] = []


def workbench(
    *words: str,
    cwd: Path | None = None,
    environment: dict[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, without a terminal."""
    return subprocess.run(
        [*WORKBENCH, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        timeout=timeout_s,
        check=False,
    )


def started(words: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """Start the command in a session of its own, with pipes for its output; it ends with its test."""
    process = subprocess.Popen(
        [*WORKBENCH, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )
    STARTED.append(process)
    return process


def end_started() -> None:
    """Kill what a failed test has left running: its load would make others fail."""
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            for member in family(process.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            process.communicate()


def until(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """Poll `condition` until it gives something true and return that."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"after {timeout_s} s still not: {what}"
        time.sleep(0.02)
    return value


def only_run(runs_dir: Path) -> Path:
    """The folder of the one run that is being made."""
    found = until(lambda: list(runs_dir.glob("*/manifest.json")), TIMEOUT_S, "a run's folder")
    assert len(found) == 1
    return Path(found[0]).parent


def events(folder: Path) -> list[dict[str, Any]]:
    """The whole events of a record; a line that is still being written is left out."""
    file = folder / "events.jsonl"
    if not file.exists():
        return []
    lines = file.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


def begun(folder: Path, steps: int = 2) -> bool:
    """Whether every rank has said that it is beyond so many steps."""
    world_size = int(json.loads((folder / "manifest.json").read_text())["world_size"])
    ranks = {
        event["rank"]
        for event in events(folder)
        if event["event"] == "phase" and event.get("phase") == "running" and event.get("step", -1) >= steps
    }
    return len(ranks) == world_size


def family(pid: int) -> list[psutil.Process]:
    """The process and all that descend from it."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def gone(processes: Sequence[psutil.Process], timeout_s: float = 3.0) -> None:
    """Wait until none of them is alive; a zombie is not alive."""

    def living() -> list[psutil.Process]:
        found = []
        for process in processes:
            try:
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found

    deadline = time.monotonic() + timeout_s
    while rest := living():
        assert time.monotonic() < deadline, f"after {timeout_s} s still alive: {rest}"
        time.sleep(0.02)


def result(folder: Path, timeout_s: float = 5.0) -> dict[str, Any]:
    """The run's `result.json`."""
    file = folder / "result.json"
    until(file.exists, timeout_s, f"{file} written")
    found: dict[str, Any] = json.loads(file.read_text())
    return found
