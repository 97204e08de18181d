"""A lab's source beside its run: which files it is made of, and which lines may have made a span.

Nothing is imported: files are read and searched by their syntax. A span's name does not say its line, so the
answer is a list of candidates, each with the rule by which it was found: the call that times a block by that
name, the call of that collective, or the function of that action.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from labs.catalog import FOLDER, package_of
from launcher.events import Span, decode

Rule = Literal["times it", "calls it", "does it"]
TIMERS = ("span", "spanning", "booked")
LAB, COMMS = "lab.py", "comms.py"
READ_BYTES = 4 << 20
"""How much of a record is read to learn which spans a run has: the first steps have them all."""
WAIT = "wait "


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A line that may have made a span."""

    file: Path
    line: int
    rule: Rule


class SpanName(msgspec.Struct, frozen=True, kw_only=True):
    """What a run timed under one name."""

    lane: str
    name: str
    count: int


def files_of(lab_id: str) -> tuple[Path, ...]:
    """Return the files of a lab: its narrative, its other files, the algorithms it imports, `comms.py`."""
    folder = FOLDER.parent / package_of(lab_id).replace(".", "/")
    own = sorted(folder.glob("*.py"), key=lambda file: (file.name != LAB, file.name))
    own = [file for file in own if file.name != "__init__.py"]
    algorithms: list[Path] = []
    waiting = list(own)
    while waiting:
        for file in _imported(waiting.pop(0)):
            if file not in algorithms and file not in own:
                algorithms.append(file)
                waiting.append(file)
    return (*own, *algorithms, FOLDER / COMMS)


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _imported(file: Path) -> Iterator[Path]:
    """The files of `labs.parallel` that a file imports."""
    for node in ast.walk(_tree(file)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            found = FOLDER.parent / (name.replace(".", "/") + ".py")
            if name.startswith("labs.parallel.") and found.is_file():
                yield found


def places_of(lab_id: str, span: str) -> tuple[Place, ...]:
    """Return the lines that may have made a span of this name; empty where none is known."""
    files = files_of(lab_id)
    timed = [
        Place(file=file, line=call.lineno, rule="times it")
        for file in files
        if file.name != COMMS
        for call in _calls(file)
        if _name_of(call) in TIMERS and any(_says(argument, span) for argument in call.args)
    ]
    if timed:
        return tuple(timed)
    operation = span.removeprefix(WAIT).split(" ")[0]
    called = [
        Place(file=file, line=call.lineno, rule="calls it")
        for file in files
        if file.name != COMMS
        for call in _calls(file)
        if _name_of(call) in (operation, f"i{operation}")
    ]
    return tuple(called) or tuple(_functions(files, span))


def _calls(file: Path) -> Iterator[ast.Call]:
    calls = [node for node in ast.walk(_tree(file)) if isinstance(node, ast.Call)]
    return iter(sorted(calls, key=lambda call: call.lineno))


def _name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _says(argument: ast.expr, span: str) -> bool:
    """Whether an argument is that name, or a text with holes that it fits."""
    match argument:
        case ast.Constant(value=str() as text):
            return text == span
        case ast.JoinedStr(values=parts):
            pattern = "".join(
                re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+" for part in parts
            )
            return bool(re.fullmatch(pattern, span))
    return False


def _functions(files: tuple[Path, ...], span: str) -> Iterator[Place]:
    """Functions of the algorithms that bear the name of an action: `_input_gradient` for `input gradient`."""
    names = (span.replace(" ", "_"), span.split(" ")[-1])
    for name in names:
        found = [
            Place(file=file, line=node.lineno, rule="does it")
            for file in files
            for node in ast.walk(_tree(file))
            if isinstance(node, ast.FunctionDef) and node.name.strip("_") == name
        ]
        if found:  # an action is done by a function of the engine, `_forward`, before any module's `forward`
            yield from sorted(found, key=lambda place: not _is_private(place))
            return


def _is_private(place: Place) -> bool:
    line = place.file.read_text(encoding="utf-8").splitlines()[place.line - 1]
    return line.strip().startswith("def _")


def spans_of(record: Path) -> tuple[SpanName, ...]:
    """Return the names under which a run timed something, in the order of their first appearance.

    Raises:
        OSError: the record cannot be read.
    """
    counts: dict[tuple[str, str], int] = {}
    with record.open("rb") as file:
        lines = file.read(READ_BYTES).splitlines()
    for line in lines:
        if b'"span"' not in line:
            continue
        try:
            event = decode(line)
        except msgspec.DecodeError:
            continue  # the line at which reading stopped
        if isinstance(event, Span):
            key = (event.lane, event.name)
            counts[key] = counts.get(key, 0) + 1
    return tuple(SpanName(lane=lane, name=name, count=count) for (lane, name), count in counts.items())
