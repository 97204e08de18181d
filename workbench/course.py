"""Progress through the course: one readable file in the user's data folder, changed under a lock, by rename.

The file is JSON: `labs` by id and `exercises` by name. Only what this version knows is changed; keys that it
does not know stay, so that a newer version finds its own again. A damaged file is kept aside, never deleted.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from launcher.rundir import write_atomically

SCHEMA = 1
DATA_DIR_VARIABLE = "WORLDSIZE_DATA_DIR"
FILE = "progress.json"
T = TypeVar("T", bound=msgspec.Struct)
State = Literal["open", "started", "done"]
Content = dict[str, Any]
PARTS = ("labs", "exercises")


class RunDone(msgspec.Struct, frozen=True, kw_only=True):
    """A run step that was run: which run, how it ended, and what it measured for each question."""

    run_id: str = ""
    status: str = ""
    at: str = ""
    values: dict[str, float | str | bool] = {}
    missing: dict[str, str] = {}


class LabProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far one lab is: the step in view, the steps that are done, the answers, the runs by name."""

    state: State = "open"
    place: str = ""
    done: tuple[str, ...] = ()
    answers: dict[str, float | str | bool] = {}
    runs: dict[str, RunDone] = {}


class ExerciseProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far one exercise is, and how often it was checked."""

    state: State = "open"
    checks: int = 0


def data_dir() -> Path:
    """Return the folder of what is kept of a person: `WORLDSIZE_DATA_DIR`, else the user's data folder."""
    if chosen := os.environ.get(DATA_DIR_VARIABLE):
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("worldsize")


class Course:
    """The progress file. `problem` says in one sentence what is wrong with it, empty where nothing is."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path if path is not None else data_dir() / FILE
        self.problem = ""

    def lab(self, lab_id: str) -> LabProgress:
        """Return how far a lab is."""
        return _read_as(self.content()["labs"].get(lab_id), LabProgress)

    def labs(self) -> dict[str, LabProgress]:
        """Return all labs that were begun."""
        return {name: _read_as(entry, LabProgress) for name, entry in self.content()["labs"].items()}

    def exercises(self) -> dict[str, ExerciseProgress]:
        """Return all exercises that were begun."""
        return {
            name: _read_as(entry, ExerciseProgress) for name, entry in self.content()["exercises"].items()
        }

    def keep_lab(self, lab_id: str, progress: LabProgress) -> None:
        """Write how far a lab is."""
        self._update(lambda content: _merge(content["labs"], lab_id, progress))

    def checked(self, exercise: str, *, passed: bool) -> None:
        """Note that an exercise was checked; what was done once stays done."""

        def change(content: Content) -> None:
            before = _read_as(content["exercises"].get(exercise), ExerciseProgress)
            state: State = "done" if passed or before.state == "done" else "started"
            after = ExerciseProgress(state=state, checks=before.checks + 1)
            _merge(content["exercises"], exercise, after)

        self._update(change)

    def begun(self, exercise: str) -> None:
        """Note that an exercise's stub was taken."""

        def change(content: Content) -> None:
            before = _read_as(content["exercises"].get(exercise), ExerciseProgress)
            if before.state == "open":
                _merge(content["exercises"], exercise, msgspec.structs.replace(before, state="started"))

        self._update(change)

    def forget(self, name: str) -> bool:
        """Reset one lab or exercise to open; returns whether there was anything to reset."""
        found = [part for part in PARTS if name in self.content()[part]]
        if found:
            self._update(lambda content: [content[part].pop(name, None) for part in found])
        return bool(found)

    def content(self) -> Content:
        """Return the whole file; an empty one where there is none or it is damaged (kept aside then)."""
        try:
            return self._load()
        except OSError as error:
            self.problem = f"{self.path} cannot be read: {error.strerror or error}"
            return _empty()

    def _load(self) -> Content:
        """The content as `content` returns it.

        Raises:
            OSError: there is a file that cannot be read, so it must not be written over either.
        """
        try:
            raw = self.path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):  # HOME=/dev/null
            return _empty()
        try:
            return _checked(msgspec.json.decode(raw))
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError):
            self._set_aside()
            return _empty()

    def _set_aside(self) -> None:
        aside = self.path.with_name(f"{self.path.name}.damaged")
        number = 1
        while aside.exists():
            number += 1
            aside = self.path.with_name(f"{self.path.name}.damaged{number}")
        self.problem = f"{self.path} was damaged; it is kept as {aside.name}, and progress begins anew"
        with contextlib.suppress(FileNotFoundError):  # another process was quicker
            self.path.rename(aside)

    def _update(self, change: Callable[[Content], Any]) -> None:
        """Read, change and write under a lock; a file that cannot be written is a `problem`, not an end."""
        try:
            with self._lock():
                content = self._load()
                change(content)
                content["schema"] = max(SCHEMA, content.get("schema", SCHEMA))
                text = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
                write_atomically(self.path, text)
        except OSError as error:
            self.problem = f"progress cannot be kept: {self.path}: {error.strerror or error}"

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        import fcntl

        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_name(f".{self.path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def now() -> str:
    """Return this moment as it stands in the file."""
    return datetime.datetime.now(datetime.UTC).astimezone().isoformat(timespec="seconds")


def _empty() -> Content:
    return {"schema": SCHEMA, "labs": {}, "exercises": {}}


def _checked(content: Any) -> Content:
    """The file's content, with the parts that this version reads.

    Raises:
        TypeError: it has another shape.
    """
    if not isinstance(content, dict) or not isinstance(content.get("schema", SCHEMA), int):
        raise TypeError("not an object with a number as its schema")
    for part in PARTS:
        if not isinstance(content.setdefault(part, {}), dict):
            raise TypeError(f"{part} is no object")
    return content


def _read_as(entry: Any, kind: type[T]) -> T:
    """One entry as this version knows it; what it cannot read counts as not begun."""
    try:
        return msgspec.convert(entry, kind) if entry is not None else kind()
    except msgspec.ValidationError:
        return kind()


def _merge(part: Content, name: str, progress: msgspec.Struct) -> None:
    """Write what this version knows of an entry over it, and leave its other keys."""
    before = part.get(name)
    part[name] = {**(before if isinstance(before, dict) else {}), **msgspec.to_builtins(progress)}
