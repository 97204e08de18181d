"""The exercises' part of the command line: its flags, its help, and what does not go together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from labs.exercises import HINTS
from labs.flags import take
from labs.params import ParameterError, fields_of, nearest, read


class ExerciseFlags(msgspec.Struct, frozen=True, kw_only=True):
    """What goes with exercises."""

    exercises: Annotated[bool, Meta(description="the exercises, in the order of the course")] = False
    exercise: Annotated[
        str,
        Meta(description="copy an exercise to ./exercises and show its text", extra={"unit": "NAME"}),
    ] = ""
    hint: Annotated[
        int, Meta(ge=0, le=HINTS, description="with --exercise: show this hint, and copy nothing")
    ] = 0
    check: Annotated[str, Meta(description="check what you wrote, on real ranks", extra={"unit": "NAME"})] = (
        ""
    )
    file: Annotated[
        str,
        Meta(description="with --check: your file, if not the one in ./exercises", extra={"unit": "F"}),
    ] = ""
    watch: Annotated[bool, Meta(description="with --check: check again at each save")] = False
    json: Annotated[bool, Meta(description="with --check and --exercises: JSON on stdout, nothing else")] = (
        False
    )


PAGES = ("exercises", "exercise", "check")
GOES_WITH = {"hint": ("exercise",), "file": ("check",), "watch": ("check",), "json": ("check", "exercises")}
OVERVIEW = (
    "workbench --exercises [--json]           the exercises",
    "workbench --exercise NAME [--hint N]     copy an exercise to ./exercises and show what to write",
    "workbench --check NAME [--file F] [--watch | --json]   check what you wrote, on real ranks",
)


def asked(words: Sequence[str]) -> bool:
    """Whether the command line is about exercises."""
    return any(word.partition("=")[0] in {f"--{page}" for page in PAGES} for word in words)


def run(words: Sequence[str]) -> int:
    """Do what the words ask for; returns the exit code.

    Raises:
        ParameterError: a word, a name or a file does not fit.
    """
    fields = fields_of(ExerciseFlags)
    given, rest = take(fields, words)
    flags = read(ExerciseFlags, given)
    pages = [name for name in PAGES if name in given]
    if len(pages) > 1:
        raise ParameterError(f"--{pages[1]}", f"does not go with --{pages[0]}; give one of them")
    page = pages[0]
    if rest:
        word = rest[0].partition("=")[0]
        known = [f"--{page}", *(f"--{name}" for name, with_page in GOES_WITH.items() if page in with_page)]
        hint = nearest(word, known)
        raise ParameterError(word, f"does not go with --{page}; {hint}allowed: {', '.join(known)}")
    for name, with_page in GOES_WITH.items():
        if given.get(name) and page not in with_page:
            raise ParameterError(f"--{name}", f"goes with --{' and --'.join(with_page)}")

    from workbench import exercises, watch

    if page == "exercises":
        return exercises.show(as_json=flags.json)
    if page == "exercise":
        return watch.show_exercise(flags.exercise, flags.hint)
    return watch.check(flags.check, flags.file, watch=flags.watch, as_json=flags.json)
