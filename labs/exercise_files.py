"""The files of an exercise as modules: the learner's own, the solution, the known mistakes."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType, SimpleNamespace

from labs.exercises import Exercise


class MissingError(ValueError):
    """A learner's file lacks a function that the exercise asks for."""


def load(file: Path, functions: tuple[str, ...]) -> ModuleType:
    """Run the learner's file as a module of its own; it may import files that lie beside it.

    Raises:
        MissingError: it does not define the functions; the message says what it defines.
        BaseException: whatever running it raises.
    """
    module = ModuleType(f"exercise_{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses and pickle look there
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))  # last: a file beside it never hides a library
    exec(compile(file.read_bytes(), str(file), "exec"), vars(module))
    missing = [name for name in functions if not callable(getattr(module, name, None))]
    if missing:
        own = [
            name
            for name, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", "") == module.__name__
        ]
        there = f"it defines {', '.join(own)}" if own else "it defines no function"
        raise MissingError(f"{file.name} does not define {', '.join(missing)}; {there}")
    return module


def solution_of(exercise: Exercise) -> ModuleType:
    """Return the exercise's solution."""
    return importlib.import_module(f"{exercise.package}.solution")


def mistakes_of(exercise: Exercise) -> dict[str, tuple[SimpleNamespace, str]]:
    """Return the known mistakes: name -> (the functions with the mistake in them, what it usually means)."""
    module = importlib.import_module(f"{exercise.package}.mistakes")
    first = importlib.import_module(f"{exercise.package}.check").FUNCTIONS[0]
    found = {}
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", "") != module.__name__:
            continue
        replaced = {first: value}
        if inspect.isclass(value):
            replaced = {key: getattr(value, key) for key in vars(value) if not key.startswith("_")}
        functions = SimpleNamespace(**{**vars(solution_of(exercise)), **replaced})
        found[name.replace("_", " ")] = (functions, " ".join((value.__doc__ or "").split()))
    return found


def line_in(file: Path | None, error: BaseException) -> str:
    """Return the innermost line of a file in an exception's traceback, `file.py:12`."""
    found = ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        if file is not None and frame.f_code.co_filename == str(file):
            found = f"{file.name}:{number}"
    return found or ""


def traceback_of(error: BaseException) -> str:
    """Return the exception's traceback as text."""
    return "".join(traceback.format_exception(error)).rstrip()
