"""Exercises as a person meets them: the list, the copied stub, and the check of their own file on real ranks.

The app uses `prepare` and `conclude` around a request to its own agent; the command line uses `Checker`,
which has an agent of its own and keeps it warm from check to check. A learner's code never runs in this
process.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from labs.exercises import Exercise, Verdict, exercise_of, exercises
from labs.params import ParameterError
from launcher.client import AgentClient, Lost
from launcher.protocol import Finished, Refused, Reply, RunRequest, Warm
from launcher.rank import log_path
from launcher.rundir import Manifest, Result, new_run_id, read_result, write_manifest
from workbench.console import say

ENTRYPOINT = "labs.exercise_worker:main"
VERDICT = "verdict.json"
LIMIT_S = 10.0
"""How long a learner's code may take, on all of its cases together."""
LAUNCH_S = 8.0
"""How much longer the launcher waits for ranks that are deaf to the limit: launch, reports, last words."""
WARM_S = 120.0
FOLDER = "exercises"
MAX_BYTES = 1 << 20
PRINTED_LINES = 10
PRINTED_BYTES = 4000
"""So much of what a rank prints is shown."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A check that can be requested of an agent; `conclude` turns what it left into a verdict."""

    exercise: Exercise
    file: Path
    request: RunRequest
    began: float


def listing() -> tuple[Exercise, ...]:
    """Return every exercise in the order of the course: lab, title, text and hints are its fields."""
    return exercises()


def path_of(name: str, folder: Path) -> Path:
    """Return where the learner's copy of an exercise lies, or would lie.

    Raises:
        ParameterError: there is no such exercise.
    """
    return folder / exercise_of(name).file_name


def copy_stub(name: str, folder: Path) -> Path:
    """Copy an exercise's stub into `folder`, made where it is missing; a file that is there stays as it is.

    Raises:
        ParameterError: there is no such exercise, or the folder cannot be written.
    """
    exercise = exercise_of(name)
    path = folder / exercise.file_name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), path.open("xb") as file:
            file.write(exercise.stub.read_bytes())
    except OSError as error:
        raise ParameterError(
            "--exercise", f"{path}: {error.strerror}; go to a folder you may write"
        ) from None
    return path


def file_to_check(name: str, file: str, folder: Path) -> Path:
    """Return the learner's file: `file` where it is given, else the copy in `folder`.

    Raises:
        ParameterError: there is none, or it is not a file of reasonable size; says what to do.
    """
    exercise = exercise_of(name, "--check")
    path = Path(file).expanduser().absolute() if file else (folder / exercise.file_name).absolute()
    flag = "--file" if file else "--check"
    try:
        size = path.stat().st_size
    except OSError as error:
        first = f"workbench --exercise {exercise.name} copies the stub to {FOLDER}/{exercise.file_name}"
        raise ParameterError(flag, f"{path}: {error.strerror}; first {first}") from None
    if not path.is_file():
        raise ParameterError(flag, f"{path} is no file; give the Python file that you wrote: --file FILE")
    if size > MAX_BYTES:
        raise ParameterError(flag, f"{path} has {size} bytes; allowed: Python files up to {MAX_BYTES}")
    return path


def prepare(name: str, file: Path, *, limit_s: float = LIMIT_S) -> Prepared:
    """Make the folder of a check and its request, for an agent that is warm.

    Raises:
        ParameterError: there is no such exercise.
        OSError: no temporary folder can be made.
    """
    exercise = exercise_of(name, "--check")
    run_id = new_run_id("check")
    folder = Path(tempfile.mkdtemp(prefix="worldsize-check-"))
    argument: dict[str, Any] = {
        "exercise": exercise.name,
        "file": str(file),
        "folder": str(folder),
        "limit_s": limit_s,
    }
    write_manifest(folder, _manifest(run_id, exercise))
    request = RunRequest(
        run_id=run_id,
        folder=str(folder),
        entrypoint=ENTRYPOINT,
        argument=argument,
        world_size=exercise.ranks,
        environment={"TORCH_DISTRIBUTED_DEBUG": "OFF"},
        timeout_s=limit_s + LAUNCH_S,
    )
    return Prepared(exercise=exercise, file=file, request=request, began=time.monotonic())


def conclude(prepared: Prepared) -> Verdict:
    """Return the verdict of a check whose `Finished` has come, and remove its folder."""
    folder = Path(prepared.request.folder)
    try:
        verdict = _read(folder)
        if verdict is None or verdict.kind == "worker":
            verdict = _without_a_word(prepared, read_result(folder))
    finally:
        printed = list(_printed(folder, prepared.exercise.ranks))
        shutil.rmtree(folder, ignore_errors=True)
    seconds = round(time.monotonic() - prepared.began, 3)
    return msgspec.structs.replace(verdict, seconds=seconds, printed=printed)


def abandon(prepared: Prepared) -> None:
    """Remove the folder of a check that will not be concluded."""
    shutil.rmtree(prepared.request.folder, ignore_errors=True)


class Checker:
    """An agent for checks, one after another; use it as a context manager."""

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        self._inbox: queue.SimpleQueue[Reply | Lost] = queue.SimpleQueue()
        self.client = AgentClient(self._inbox.put, environment=environment)

    def __enter__(self) -> Checker:
        try:
            self.client.start()
        except OSError as error:
            raise ParameterError("launcher agent", f"cannot be started: {error}") from None
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def warm(self) -> None:
        """Wait until torch is loaded; the time limit of a check counts from there.

        Raises:
            ParameterError: the agent ended, or did not get there.
        """
        if not self.client.warm:
            self._next(Warm, "", WARM_S)

    def check(self, name: str, file: Path, limit_s: float = LIMIT_S) -> Verdict:
        """Check a file and return the verdict.

        Raises:
            ParameterError: there is no such exercise, or the agent was lost.
        """
        self.warm()
        prepared = prepare(name, file, limit_s=limit_s)
        try:
            return self.run(prepared)
        finally:
            abandon(prepared)

    def run(self, prepared: Prepared) -> Verdict:
        """Have a prepared check done."""
        self.client.request(prepared.request)
        self._next(Finished, prepared.request.run_id, prepared.request.timeout_s + WARM_S)
        return conclude(prepared)

    def _next(self, kind: type[Warm | Finished], run_id: str, timeout_s: float) -> None:
        """Wait for a reply of this kind; short waits let a signal's handler run in between."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                message = self._inbox.get(timeout=0.2)
            except queue.Empty:
                continue
            if isinstance(message, Lost):
                raise ParameterError("launcher agent", f"{message.message}; see workbench --doctor")
            if isinstance(message, Refused):
                raise ParameterError("launcher agent", message.message)
            if isinstance(message, kind) and getattr(message, "run_id", run_id) == run_id:
                return
        raise ParameterError(
            "launcher agent", f"did not answer within {timeout_s:g} s; see workbench --doctor"
        )


def _read(folder: Path) -> Verdict | None:
    try:
        return msgspec.json.decode((folder / VERDICT).read_bytes(), type=Verdict)
    except FileNotFoundError:
        return None


def _printed(folder: Path, ranks: int) -> Iterator[str]:
    """The first lines that each rank printed."""
    for rank in range(ranks):
        with contextlib.suppress(OSError), log_path(folder, rank, "stdout").open("rb") as log:
            for line in itertools.islice(log.read(PRINTED_BYTES).splitlines(), PRINTED_LINES):
                yield f"rank {rank}: {line.decode(errors='replace')}"


def _without_a_word(prepared: Prepared, result: Result | None) -> Verdict:
    """The verdict where the ranks could write none: from what the launcher saw of their end."""
    failure = result.failure if result is not None else None
    if failure is None:
        reason = result.reason if result is not None else ""
        message, rank, trace = reason or "the check left no verdict", -1, ""
    else:
        message, rank, trace = (
            failure.message.replace("the lab did", "your code had returned"),
            failure.rank,
            failure.traceback,
        )
    late = failure is not None and failure.kind in ("timeout", "hang")
    line = _last_line(trace, prepared.file)
    meaning = "Code that ends its process, or waits inside a call of its own, takes the rank with it."
    if late:
        limit = prepared.request.argument["limit_s"]
        message = f"the ranks did not come to an end within {limit:g} s: {message}"
        meaning = "A call that never returns: nothing in Python can end it, so the ranks were ended."
    return Verdict(
        exercise=prepared.exercise.name,
        kind="late" if late else "worker",
        message=message,
        rank=rank,
        line=line,
        traceback=trace,
        meaning=meaning,
    )


def _last_line(trace: str, file: Path) -> str:
    """The innermost line of the learner's file in a traceback or a stack, `file.py:12`."""
    marked = [line for line in trace.splitlines() if f'File "{file}", line ' in line]
    if not marked:
        return ""
    number = marked[-1].split(", line ")[1].split(",")[0].split()[0]
    return f"{file.name}:{number}"


def _manifest(run_id: str, exercise: Exercise) -> Manifest:
    return Manifest(
        run_id=run_id,
        lab=exercise.name,
        params={},
        world_size=exercise.ranks,
        backend="gloo",
        device="cpu",
        launcher="warm",
        seed=0,
        command=f"workbench --check {exercise.name}",
        torchrun_command="",
        created="",
    )


def show(*, as_json: bool) -> int:
    """Print the list of exercises; returns the exit code."""
    say(to_json(listing()) if as_json else page(listing()))
    return 0


def page(found: Sequence[Exercise]) -> str:
    """The list of exercises: a line each."""
    width = max((len(exercise.name) for exercise in found), default=0)
    lines = [f"{each.number:>2}  {each.name:<{width}}  {each.title} ({each.minutes} min)" for each in found]
    return "\n".join([*lines, "", "workbench --exercise NAME copies one to ./exercises and shows its text."])


def to_json(found: Sequence[Exercise]) -> str:
    """The exercises as one JSON array; texts and hints included."""
    fields = ("name", "number", "lab", "title", "ranks", "minutes", "text", "hints")
    listed = [{field: getattr(each, field) for field in fields} for each in found]
    return msgspec.json.format(msgspec.json.encode(listed), indent=2).decode()
