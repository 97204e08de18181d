"""The exercises that exist, and what a check says: read from the labs' folders. Loads no torch.

An exercise is a folder `labs/<lab>/exercises/<name>/` with `exercise.md` (front matter, text, three hints),
`stub.py` (what a learner gets), `solution.py`, `check.py` and `mistakes.py` (see `labs.exercise_judge`).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from labs.params import ParameterError, nearest

FOLDER = Path(__file__).parent
HINTS = 3
_FRONT = re.compile(r"---\n(.*?)\n---\n(.*)", re.DOTALL)
_HINT = re.compile(r"^## Hint (\d)\n", re.MULTILINE)

Kind = Literal[
    "passed", "unwritten", "file", "differs", "unwaited", "exception", "stuck", "mismatch", "late", "worker"
]
EXIT_CODES: dict[Kind, int] = {"passed": 0, "unwritten": 1, "file": 1, "differs": 1, "unwaited": 1}
"""What a check ends with; every other kind is a rank that failed or hung: 3."""
WORKER_FAILED = 3


class Exercise(msgspec.Struct, frozen=True, kw_only=True):
    """One exercise as its folder declares it."""

    name: str
    """As on the command line: `ring-all-reduce`."""
    number: int
    """Its place in the course, from 1."""
    lab: str
    """The folder of its lab below `labs/`."""
    title: str
    ranks: int
    minutes: int
    text: str
    """What to write, in Markdown."""
    hints: tuple[str, ...]
    """From a first push to nearly all of it."""
    folder: Path

    @property
    def file_name(self) -> str:
        """What the learner's own copy is called."""
        return f"{self.folder.name}.py"

    @property
    def stub(self) -> Path:
        """What is copied for the learner."""
        return self.folder / "stub.py"

    @property
    def package(self) -> str:
        """The import package of its folder."""
        return f"labs.{self.lab}.exercises.{self.folder.name}"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of a learner's file came to; if it failed, why, where, and what that usually means."""

    exercise: str
    kind: Kind
    message: str
    """One sentence: what differs, or what happened."""
    rank: int = -1
    """The rank where it shows first; -1 where it is no single one's."""
    case: str = ""
    """The input on which it shows."""
    item: str = ""
    """Which of the things compared: a tensor, an action list, a count."""
    index: str = ""
    """First place inside the item that differs: `[2]`, `[3].grad`."""
    expected: str = ""
    got: str = ""
    meaning: str = ""
    """What that usually means."""
    mistake: str = ""
    """The mistake recognised by name, or empty."""
    line: str = ""
    """The learner's `file.py:12`, where one is to blame."""
    traceback: str = ""
    printed: list[str] = []
    """What the learner's code printed, `rank 1: ...`, all cases after another; its beginning."""
    seconds: float = 0.0
    """From the request to the verdict."""

    @property
    def passed(self) -> bool:
        """Whether the learner's code does what is asked."""
        return self.kind == "passed"

    @property
    def exit_code(self) -> int:
        """0 passed, 1 failed, 3 a rank failed or hung."""
        return EXIT_CODES.get(self.kind, WORKER_FAILED)


@cache
def exercises() -> tuple[Exercise, ...]:
    """Return every exercise, in the order of the course."""
    found = [read(path.parent) for path in FOLDER.glob("*/exercises/*/exercise.md")]
    return tuple(sorted(found, key=lambda exercise: (exercise.number, exercise.name)))


def exercise_of(name: str, flag: str = "--exercise") -> Exercise:
    """Return the exercise of that name; underscores and `.py` are forgiven.

    Raises:
        ParameterError: there is none; the message names the nearest and all of them.
    """
    wanted = name.removesuffix(".py").replace("_", "-")
    known = {exercise.name: exercise for exercise in exercises()}
    if wanted not in known:
        hint = nearest(wanted, list(known))
        raise ParameterError(flag, f"no exercise named {name!r}; {hint}exercises: {', '.join(known)}")
    return known[wanted]


def read(folder: Path) -> Exercise:
    """Return the exercise that a folder declares.

    Raises:
        ValueError: its `exercise.md` has no front matter, lacks a field, or has not three hints.
    """
    path = folder / "exercise.md"
    match = _FRONT.fullmatch(path.read_text(encoding="utf-8"))
    if match is None:
        raise ValueError(f"{path}: no front matter between two lines of ---")
    front = dict(line.split(": ", 1) for line in match[1].splitlines())
    text, *rest = _HINT.split(match[2])
    hints = tuple(hint.strip("\n") for hint in rest[1::2])
    if len(hints) != HINTS or not all(hints):
        raise ValueError(f"{path}: {len(hints)} hints; allowed: {HINTS}, each under its heading `## Hint 1`")
    return Exercise(
        name=folder.name.replace("_", "-"),
        number=int(front["number"]),
        lab=folder.parent.parent.name,
        title=front["title"],
        ranks=int(front["ranks"]),
        minutes=int(front["minutes"]),
        text=text.strip("\n"),
        hints=hints,
        folder=folder,
    )
