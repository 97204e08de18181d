"""`--exercise` and `--check`: the stub is copied, the file is checked once, or again at every save.

Ctrl-C and the other ending signals are one exception here, so that the agent and the ranks of a check in
progress are always ended in order. Loads neither torch nor textual.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import msgspec

from labs.exercises import EXIT_CODES, Exercise, Verdict, exercise_of
from labs.params import ParameterError
from workbench import exercises
from workbench.console import is_terminal, say, tell
from workbench.course import Course
from workbench.exercises import Checker

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INDENT = "  "
MAX_WIDTH = 100
ITEM = re.compile(r"\n(?=- |\d+\. )")
MARK = re.compile(r"- |\d+\. ")
"""A list item begins a line of its own."""


class Ended(BaseException):
    """A signal that ends the command."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextlib.contextmanager
def ending() -> Iterator[list[int]]:
    """Raise `Ended` for the first ending signal inside of the block; those that are ignored (nohup) stay
    so."""

    def leave(number: int, _frame: FrameType | None) -> None:
        for other in heard:
            signal.signal(other, signal.SIG_IGN)  # once is enough: what follows is only cleaning up
        came.append(number)
        raise Ended(number)

    came: list[int] = []
    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, leave) for number in heard}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def show_exercise(name: str, hint: int = 0) -> int:
    """Copy the stub, unless the learner has it already, and show what to write; or show a hint only."""
    exercise = exercise_of(name)
    if hint:
        say(f"{exercise.title}: hint {hint} of {len(exercise.hints)}\n\n{reflow(exercise.hints[hint - 1])}")
        return 0
    folder = Path(exercises.FOLDER)
    there = exercises.path_of(name, folder).exists()
    path = exercises.copy_stub(name, folder)
    remember(exercise)
    say(f"{exercise.title} ({exercise.ranks} ranks, about {exercise.minutes} minutes)\n")
    say(reflow(exercise.text) + "\n")
    say(f"{path} {'is yours already and stays as it is' if there else 'is yours: write your code there'}.")
    say(f"Check it:  workbench --check {exercise.name}")
    say(f"Stuck?     workbench --exercise {exercise.name} --hint 1   (of {len(exercise.hints)})")
    return 0


def reflow(markdown: str) -> str:
    """Fill paragraphs and list items to the terminal's width; indented blocks stay as they are."""
    width = min(MAX_WIDTH, shutil.get_terminal_size().columns)
    shown: list[str] = []
    for block in markdown.split("\n\n"):
        if block.startswith("    "):
            shown.append(block)
            continue
        items = [match for match in ITEM.split(block) if match.strip()]
        filled = []
        for item in items:
            mark = MARK.match(item)
            indent = " " * len(mark[0]) if mark else ""
            filled.append(textwrap.fill(" ".join(item.split()), width, subsequent_indent=indent))
        shown.append("\n".join(filled))
    return "\n\n".join(shown)


def check(name: str, file: str, *, watch: bool, as_json: bool) -> int:
    """Check a learner's file, or check it at every save until a signal comes; returns the exit code.

    Raises:
        ParameterError: there is no such exercise or no such file, or no agent; nothing was started.
    """
    exercise = exercise_of(name, "--check")
    path = exercises.file_to_check(name, file, Path(exercises.FOLDER))
    if watch and as_json:
        raise ParameterError("--watch", "does not go with --json: a watch never comes to one result")

    def show(verdict: Verdict) -> None:
        say(to_json(verdict) if as_json else render(exercise, path, verdict))
        remember(exercise, verdict)

    try:
        with ending() as signals, Checker() as checker:
            if is_terminal(sys.stderr) and not as_json:
                tell("workbench: loading torch for the ranks; this takes a moment, once")
            content = _content(path)
            verdict = checker.check(exercise.name, path)
            show(verdict)
            if watch:
                follow(checker, exercise, path, content, show)
            return 128 + signals[0] if signals else verdict.exit_code
    except Ended as signalled:
        return signalled.exit_code


def remember(exercise: Exercise, verdict: Verdict | None = None) -> None:
    """Keep in the progress file that an exercise was begun, or what its check came to."""
    course = Course()
    if verdict is None:
        course.begun(exercise.name)
    else:
        course.checked(exercise.name, passed=verdict.passed)
    if course.problem:
        tell(f"workbench: {course.problem}")


def follow(
    checker: Checker, exercise: Exercise, path: Path, seen: bytes, show: Callable[[Verdict], None]
) -> None:
    """Check the file again whenever its content is another than `seen`, until a signal comes."""
    from watchfiles import watch

    tell(f"workbench: watching {path}; ctrl-C ends it")
    # An editor may save by a rename, after which the old file's watch is deaf: so the folder is watched.
    with contextlib.suppress(KeyboardInterrupt):  # what the watch makes of any signal; `ending` has noted it
        for _ in watch(
            path.parent,
            watch_filter=None,
            recursive=False,
            raise_interrupt=True,
            rust_timeout=500,
            yield_on_timeout=True,
            debounce=200,
            step=20,
        ):
            content = _content(path)
            if content in (seen, b""):
                continue
            seen = content
            show(checker.check(exercise.name, path))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # between an editor's removing and its writing
        return b""


def to_json(verdict: Verdict) -> str:
    """The verdict as one JSON object, its exit code with it."""
    fields = {**msgspec.to_builtins(verdict), "passed": verdict.passed, "exit_code": verdict.exit_code}
    return msgspec.json.format(msgspec.json.encode(fields), indent=2).decode()


def render(exercise: Exercise, path: Path, verdict: Verdict, *, width: int = 0, hints: str = "") -> str:
    """The verdict as text: what differs, where, what it usually means, and what to do next.

    In the app `width` is that of its pane, and `hints` says which key shows one.
    """
    name = exercise.name
    width = width or min(MAX_WIDTH, shutil.get_terminal_size().columns)
    took = f"{exercise.ranks} ranks, {verdict.seconds:.2f} s"
    printed = [f"{INDENT}printed by {line}" for line in verdict.printed]
    if verdict.passed:
        return "\n".join([f"{name}: passed ({took})", f"{INDENT}{verdict.message}", *printed])
    lines = [f"{name}: {'not passed' if verdict.kind in EXIT_CODES else 'FAILED'} ({took})"]
    on = f"on {verdict.case}, " if verdict.case and verdict.kind != "unwritten" else ""
    lines += _wrapped(f"{on}{verdict.message}", width)
    if verdict.kind == "stuck":
        lines += [f"{INDENT}  {wait}" for wait in verdict.got.split("; ")]
    if verdict.line and verdict.line not in verdict.message:
        lines.append(f"{INDENT}in {verdict.line} ({path})")
    if verdict.kind in ("exception", "file") and verdict.traceback:
        lines += [f"{INDENT}| {line}" for line in _learners_part(verdict.traceback, path)]
    if verdict.mistake:
        lines.append(f"{INDENT}This mistake has a name: {verdict.mistake}.")
    lines += [*_wrapped(verdict.meaning, width), *printed]
    lines.append(INDENT + (hints or f"Hints: workbench --exercise {name} --hint 1, 2 or 3"))
    return "\n".join(lines)


def _learners_part(trace: str, path: Path) -> list[str]:
    """The traceback from the learner's own file on: what is above is ours."""
    lines = trace.splitlines()
    own = [number for number, line in enumerate(lines) if f'File "{path}"' in line]
    return lines[own[0] :] if own else lines[-1:]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=INDENT, subsequent_indent=INDENT)
