"""The course as a map: the labs in order, what each needs and gives, what to read beside it, how far one is.

One list of stops, which the page of `--progress` and the app's map both draw.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from typing import Any

import msgspec

from labs.catalog import catalog, package_of
from labs.exercises import exercises
from labs.params import ParameterError, nearest
from workbench import guides
from workbench.course import Course, ExerciseProgress, LabProgress, State

MARKS: dict[State, str] = {"open": "[ ]", "started": "[~]", "done": "[x]"}
WIDTH = 100


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """An exercise on the map."""

    name: str
    title: str
    minutes: int
    state: State


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """A lab on the map. `needs` are labs, `gives` what it teaches; `next` is the first step that is open."""

    lab: str
    title: str
    minutes: int
    state: State
    steps: int
    steps_done: int
    next: str
    needs: tuple[str, ...]
    gives: tuple[str, ...]
    texts: tuple[str, ...]
    papers: tuple[str, ...]
    exercises: tuple[Task, ...]


def stops(course: Course) -> tuple[Stop, ...]:
    """Return the whole course with how far one is in it."""
    labs, tasks = course.labs(), course.exercises()
    return tuple(_stop(lab, labs.get(lab, LabProgress()), tasks) for lab in catalog())


def _stop(lab: str, progress: LabProgress, tasks: dict[str, ExerciseProgress]) -> Stop:
    spec = catalog()[lab]
    guide = guides.load(spec)
    left = [step for step in guide.steps if step.id not in progress.done]
    folder = package_of(lab).partition(".")[2]
    return Stop(
        lab=lab,
        title=guide.title,
        minutes=guide.minutes,
        state=progress.state,
        steps=len(guide.steps),
        steps_done=len(guide.steps) - len(left),
        next=f"{left[0].kind}: {left[0].title}" if left else "",
        needs=guide.prerequisites,
        gives=spec.teaches,
        texts=guide.texts,
        papers=guide.papers,
        exercises=tuple(
            Task(
                name=one.name,
                title=one.title,
                minutes=one.minutes,
                state=tasks.get(one.name, ExerciseProgress()).state,
            )
            for one in exercises()
            if one.lab == folder
        ),
    )


def page(found: Sequence[Stop], course: Course) -> str:
    """The page of `workbench --progress`."""
    width = min(WIDTH, shutil.get_terminal_size().columns)
    tasks = [task for stop in found for task in stop.exercises]
    lines = [
        f"{sum(stop.state == 'done' for stop in found)} of {len(found)} labs done, "
        f"{sum(task.state == 'done' for task in tasks)} of {len(tasks)} exercises done",
    ]
    for stop in found:
        lines += ["", *_stop_lines(stop, width)]
    lines += ["", f"kept in {course.path}"]
    return "\n".join(lines)


def _stop_lines(stop: Stop, width: int) -> list[str]:
    needs = f", after {', '.join(stop.needs)}" if stop.needs else ""
    head = f"{MARKS[stop.state]} {stop.lab:<12} {stop.title}: {stop.minutes} min{needs}"
    lines = [f"{head}, {stop.steps_done} of {stop.steps} steps"]
    if stop.state == "started":
        lines += _hanging("next:   ", stop.next, width)
    for label, entries in (("gives:  ", stop.gives), ("texts:  ", stop.texts), ("papers: ", stop.papers)):
        lines += _hanging(label, "; ".join(entries), width)
    lines += [f"      {MARKS[task.state]} {task.name}: {task.title}" for task in stop.exercises]
    return lines


def _hanging(label: str, text: str, width: int) -> list[str]:
    indent = " " * 4
    return textwrap.wrap(
        label + text, width, initial_indent=indent, subsequent_indent=indent + " " * len(label)
    )


def as_json(found: Sequence[Stop], course: Course) -> str:
    """The map as one JSON object, with each lab's answers and measured values."""
    kept = course.labs()
    labs: list[dict[str, Any]] = []
    for stop in found:
        progress = kept.get(stop.lab, LabProgress())
        own = {"answers": progress.answers, "runs": progress.runs}
        labs.append({**msgspec.to_builtins(stop), **msgspec.to_builtins(own)})
    told = {"file": str(course.path), "labs": labs}
    return msgspec.json.format(msgspec.json.encode(told), indent=2).decode()


def reset(course: Course, name: str) -> str:
    """Set a lab or an exercise back to open, and say so; what the learner wrote and the runs stay.

    Raises:
        ParameterError: nothing is called so, or the file cannot be written.
    """
    known = [*catalog(), *(exercise.name for exercise in exercises())]
    if name not in known:
        hint = nearest(name, known)
        raise ParameterError(
            "--reset", f"no lab or exercise named {name!r}; {hint}allowed: {', '.join(known)}"
        )
    found = course.forget(name)
    if course.problem:
        raise ParameterError("--reset", course.problem)
    return f"{name} is open again" if found else f"{name} was open already"
