"""A run's folder: its id, its manifest, its result, and how runs are found again.

`manifest.json` is written before anything starts, `events.jsonl` while it runs, `result.json` once at the
end, by rename. Both JSON files are one msgspec struct each, so that what is written can be read again.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from launcher.events import Measured, Status

SCHEMA = 1
MOST_RANKS = 4096
"""A manifest that tells of more is damaged: every view would have a row for each."""
MANIFEST = "manifest.json"
EVENTS = "events.jsonl"
REJECTED = "rejected.jsonl"
RESULT = "result.json"
RESERVE = ".reserve"
"""Disk space held back while a run records, so that its result can be written on a full disk."""


class ProcessId(msgspec.Struct, frozen=True):
    """A process that cannot be mistaken for a later one of the same number: pid and start time."""

    pid: int
    started: float


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, by whom and where, known before the first process starts."""

    run_id: str
    lab: str
    params: dict[str, Any]
    world_size: int
    backend: str
    device: str
    launcher: str
    seed: int
    command: str
    torchrun_command: str
    created: str
    versions: dict[str, str] = {}
    machine: dict[str, str | int] = {}
    why_backend: str = ""
    paced_ms: float = 0.0
    steps: int = 0
    owner: ProcessId | None = None
    """The process that serves the run (the agent), for `--stop`."""
    schema: int = SCHEMA


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """One check in the result file."""

    name: str
    passed: bool
    measured: Measured = None
    expected: Measured = None
    tolerance: float | None = None
    unit: str = ""
    shows: str = ""


class FailureResult(msgspec.Struct, frozen=True, kw_only=True):
    """The first failure of the run: the rank that failed, not its victims."""

    rank: int
    kind: str
    message: str
    collective: str = ""
    traceback: str = ""
    advice: str = ""
    victims: list[int] = []


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `result.json` and of `--json`."""

    run_id: str
    lab: str
    params: dict[str, Any]
    world_size: int
    backend: str
    device: str
    launcher: str
    status: Status
    exit_code: int
    wall_s: float
    ready_s: float | None
    checks: list[CheckResult]
    metrics: dict[str, float]
    failure: FailureResult | None
    events: int
    dropped: int
    record: str
    reason: str = ""
    paced_ms: float = 0.0
    rejected: int = 0
    schema: int = SCHEMA


def new_run_id(lab: str, now: datetime.datetime | None = None) -> str:
    """Return a fresh id that sorts by time: `dp-20261129-163012-4f2a`."""
    moment = now or datetime.datetime.now(datetime.UTC).astimezone()
    return f"{lab}-{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to `path` by a temporary file and a rename, so that nobody reads half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def to_json(struct: msgspec.Struct) -> bytes:
    """Return the struct as indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(struct), indent=2) + b"\n"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `manifest.json` into the run's folder."""
    write_atomically(folder / MANIFEST, to_json(manifest))


def read_manifest(folder: Path) -> Manifest:
    """Read `manifest.json`.

    Raises:
        FileNotFoundError: the folder has none.
        msgspec.DecodeError: it is damaged, or a newer workbench's.
    """
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    if manifest.schema > SCHEMA:
        raise msgspec.ValidationError(f"it is of schema {manifest.schema}, a newer workbench's")
    if not 1 <= manifest.world_size <= MOST_RANKS:
        raise msgspec.ValidationError(f"it tells of {manifest.world_size} ranks, not 1 to {MOST_RANKS}")
    return manifest


def read_result(folder: Path) -> Result | None:
    """Read `result.json`, or None where the run has not ended (or was lost with its machine)."""
    try:
        return msgspec.json.decode((folder / RESULT).read_bytes(), type=Result)
    except FileNotFoundError:
        return None


def run_folders(runs_dir: Path) -> Iterator[Path]:
    """Yield the folders of all runs, the newest first; none where the folder cannot be read."""
    found = []
    with contextlib.suppress(OSError):
        for folder in runs_dir.iterdir():
            with contextlib.suppress(OSError):  # no run, or one that is being removed
                found.append(((folder / MANIFEST).stat().st_mtime_ns, folder))
    yield from (folder for _, folder in sorted(found, reverse=True))
