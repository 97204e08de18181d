"""Runs real agents for tests, and finds what they leave behind.

Processes are found by what they wrote into the run's folder and by the agent's session id, never by name.
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from launcher import lifeline
from launcher.client import AgentClient, Lost
from launcher.protocol import Finished, Reply, RunRequest, Started, Warm
from launcher.rundir import ProcessId, Result, new_run_id, read_result, write_manifest
from tests.manifests import manifest

ROOT = Path(__file__).resolve().parent.parent.parent
START_S = 100.0


def until(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """Poll `condition` until it gives something true and return that."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"after {timeout_s} s still not: {what}"
        time.sleep(0.01)
    return value


def session_members(session: int) -> list[int]:
    """Pids of the living processes of a session."""
    found = []
    for process in lifeline.family([1], []) if session else []:
        try:
            if os.getsid(process.pid) == session:
                found.append(process.pid)
        except ProcessLookupError:
            continue
    return found


def _says_ready(log: Path) -> bool:
    return log.exists() and "is ready" in log.read_text()


class Run:
    """One run of a `Runner`."""

    def __init__(self, runner: Runner, folder: Path, request: RunRequest) -> None:
        self.runner = runner
        self.folder = folder
        self.request = request
        self._known: dict[str, ProcessId] = {}

    def processes(self, pattern: str = "*.*") -> dict[str, ProcessId]:
        """The processes that have written their pid, by file name (`pid.0`, `child.1`)."""
        for file in [*self.folder.glob("pid.*"), *self.folder.glob("child.*")]:
            text = file.read_text()
            if file.name not in self._known and text and (found := lifeline.identify(int(text))):
                self._known[file.name] = found
        return {name: process for name, process in self._known.items() if Path(name).match(pattern)}

    def rank(self, number: int) -> ProcessId:
        """The process of a rank, as soon as it has said so."""
        until(lambda: f"pid.{number}" in self.processes(), START_S, f"rank {number} runs")
        return self._known[f"pid.{number}"]

    def all_ready(self) -> None:
        """Wait until every rank has passed its first barrier."""
        for number in range(self.request.world_size):
            self.rank(number)
            log = self.folder / f"rank{number}.log"
            until(partial(_says_ready, log), START_S, f"{log.name} ready")

    def finished(self, timeout_s: float = START_S) -> Finished:
        """The agent's reply that the run has ended."""
        reply: Finished = self.runner.next(Finished, timeout_s)
        assert reply.run_id == self.request.run_id
        return reply

    def gone(self, timeout_s: float = 3.0) -> None:
        """Wait until no process of the run is alive."""
        self.processes()
        until(
            lambda: not [name for name, process in self._known.items() if lifeline.alive(process)],
            timeout_s,
            f"all of {self._known} gone",
        )

    def result(self, timeout_s: float = 5.0) -> Result:
        """The run's `result.json`."""
        found: Result = until(lambda: read_result(self.folder), timeout_s, "result.json written")
        return found


class Runner:
    """An agent with the folders for its runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.messages: queue.SimpleQueue[Reply | Lost] = queue.SimpleQueue()
        self.client = AgentClient(
            self.messages.put, preload="tests.processes.entry", environment={"PYTHONPATH": str(ROOT)}
        )
        self.client.start()
        self.session = self.client.pid

    def next(self, kind: type[Any], timeout_s: float = START_S) -> Any:
        """The next message, which must be of this kind."""
        message = self.messages.get(timeout=timeout_s)
        assert isinstance(message, kind), f"{message} {self.client.stderr_tail()}"
        return message

    def warm(self) -> Warm:
        """Wait until the agent is warm."""
        reply: Warm = self.next(Warm)
        return reply

    def prepare(self, world_size: int, *, timeout_s: float = 0.0, **argument: Any) -> Run:
        """Make the folder and the manifest of a run of the tests' entrypoint, and its request."""
        run_id = new_run_id("test")
        folder = self.folder / run_id
        folder.mkdir(parents=True)
        write_manifest(folder, manifest("test", world_size, run_id))
        request = RunRequest(
            run_id=run_id,
            folder=str(folder),
            entrypoint="tests.processes.entry:main",
            argument={"folder": str(folder), **argument},
            world_size=world_size,
            timeout_s=timeout_s,
        )
        return Run(self, folder, request)

    def request(self, request: RunRequest) -> None:
        """Send a request and wait until its run is being started."""
        self.client.request(request)
        self.next(Started)

    def start(self, world_size: int = 2, *, timeout_s: float = 0.0, **argument: Any) -> Run:
        """Request a run of the tests' entrypoint and wait until it is being started."""
        run = self.prepare(world_size, timeout_s=timeout_s, **argument)
        self.request(run.request)
        return run


def wait_for_children(run: Run, count: int) -> None:
    """Wait until that many processes that ranks have started are known."""
    until(lambda: len(run.processes("child.*")) >= count, START_S, f"{count} children")
