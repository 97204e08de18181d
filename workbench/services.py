"""What the app reaches outside of itself: machine, labs, agent, runs. Tests put their own here."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from labs.catalog import catalog
from labs.params import LabSpec
from launcher.client import AgentClient, Lost
from launcher.collector_client import result_from_record
from launcher.control import Ending
from launcher.protocol import Reply, RunRequest
from launcher.rundir import RESULT, Manifest, ProcessId, Result, read_manifest, read_result, run_folders
from workbench import guides
from workbench.course import Course
from workbench.machine import Machine, probe

POLL_S = 0.05


class Agent(Protocol):
    """What the app asks of an agent; `launcher.client.AgentClient` is the real one."""

    warm: bool

    @property
    def identity(self) -> ProcessId | None:
        """Its pid and start time, once started."""

    def start(self) -> None:
        """Start the process."""

    def request(self, request: RunRequest) -> None:
        """Ask for a run."""

    def stop(self, run_id: str, reason: str, exit_code: int) -> None:
        """End the run in progress."""

    def close(self, timeout_s: float = 5.0) -> None:
        """Leave the agent, a run in progress is stopped first."""

    def kill(self) -> None:
        """End it and all it started, at once."""


AgentFactory = Callable[[Callable[[Reply | Lost], None]], Agent]


class RecentRun(msgspec.Struct, frozen=True):
    """A run as the home screen lists it; `result` is None while it runs, or where it was lost."""

    folder: Path
    manifest: Manifest
    result: Result | None


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """The outside world, by functions."""

    probe: Callable[[], Machine] = probe
    labs: Callable[[], dict[str, LabSpec]] = catalog
    agent: AgentFactory = AgentClient
    guide: Callable[[str], str] = guides.read
    course: Callable[[], Course] = Course


def conclude(folder: Path, requested_ns: int, ending: Ending, patience_s: float) -> None:
    """Write the result of a run whose agent is gone, unless its collector does so within `patience_s`."""
    deadline = time.monotonic() + patience_s
    while not (folder / RESULT).exists():
        if time.monotonic() >= deadline:
            result_from_record(folder, requested_ns, {}, ending)
            return
        time.sleep(POLL_S)


def recent_runs(runs_dir: Path, limit: int = 20) -> Iterator[RecentRun]:
    """Yield the newest runs; a folder whose manifest or result cannot be read is passed over."""
    for folder in list(run_folders(runs_dir))[:limit]:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            yield RecentRun(folder, read_manifest(folder), read_result(folder))
