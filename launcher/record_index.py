"""An index beside a record, `events.index`: where its rare events stand, and where other lines begin.

Built while recording, so that a long record need not be read from its beginning before it can be seen. A
reader that finds none, or one that does not fit, reads the record itself: the index only saves time.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from launcher.events import AnyEvent, Check, Dropped, End, Failure, Hello, Plan, Shard
from launcher.rundir import EVENTS

INDEX = "events.index"
RARE: frozenset[type] = frozenset({Hello, Plan, Check, Failure, End, Dropped, Shard})
"""What a run has few of, and no picture of it can do without."""
RARE_AT_MOST = 20_000
MARK_EVERY = 1 << 17
BLOCKS = 40
BLOCK_BYTES = 1 << 14
END_BYTES = 1 << 18


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A line of the record begins at byte `at`; `rare`: it is one of the rare events."""

    at: int
    rare: bool


class IndexWriter:
    """Notes where lines stand as they are added; `write` appends what is new. Never fails a recording."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / INDEX
        self._at = 0
        self._next_mark = 0
        self._rare = 0
        self._entries: list[Entry] = []
        self._broken = False

    def add(self, length: int, event: AnyEvent) -> None:
        """A line of so many bytes comes next in the record."""
        if type(event) in RARE and self._rare < RARE_AT_MOST:
            self._rare += 1
            self._entries.append(Entry(self._at, True))
        elif self._at >= self._next_mark:
            self._entries.append(Entry(self._at, False))
            self._next_mark = self._at + MARK_EVERY
        self._at += length

    def write(self) -> None:
        """Append what is new; from the first refusal of the disk on nothing more."""
        if not self._entries or self._broken:
            return
        data = b"".join(msgspec.json.encode(entry) + b"\n" for entry in self._entries)
        self._entries = []
        try:
            with self._path.open("ab") as file:
                file.write(data)
        except OSError:
            self._broken = True
            with contextlib.suppress(OSError):
                self._path.unlink()


def sketch(folder: Path) -> list[bytes]:
    """Return some lines of a long record, in their order: all rare ones, samples from all over, and its end.

    Empty where there is no index, or none that fits the record.
    """
    try:
        entries = [
            msgspec.json.decode(line, type=Entry) for line in (folder / INDEX).read_bytes().splitlines()
        ]
        with (folder / EVENTS).open("rb") as record:
            size = os.fstat(record.fileno()).st_size
            blocks = _blocks(entries, size)
            found = [
                (at, line) for start, stop in blocks for at, line in _lines(record.fileno(), start, stop)
            ]
            inside = {at for at, _ in found}
            for entry in entries:
                if entry.rare and entry.at not in inside:
                    found += _lines(record.fileno(), entry.at, entry.at + 1)
    except (OSError, msgspec.MsgspecError, ValueError):
        return []
    return [line for _, line in sorted(found)]


def _blocks(entries: list[Entry], size: int) -> list[tuple[int, int]]:
    """Choose the bytes to read: blocks at even distances, each from the beginning of a line, and the end."""
    starts = [entry.at for entry in entries]
    if not starts or starts != sorted(starts) or starts[-1] >= size:
        raise ValueError("the index does not fit the record")
    last = next((at for at in reversed(starts) if at <= size - END_BYTES), starts[0])
    few = [at for at in starts if at < last]
    every = max(1, len(few) // BLOCKS)
    blocks = [(at, min(at + BLOCK_BYTES, last)) for at in few[::every]]
    return [*_apart(blocks), (last, size)]


def _apart(blocks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the blocks without what the one before has already."""
    kept: list[tuple[int, int]] = []
    for start, stop in blocks:
        if not kept or start >= kept[-1][1] + BLOCK_BYTES:
            kept.append((start, stop))
    return kept


def _lines(record: int, start: int, stop: int) -> list[tuple[int, bytes]]:
    """Return the whole lines that begin from `start` to before `stop`, with where they begin."""
    data = os.pread(record, stop - start, start)
    while not data.endswith(b"\n"):
        more = os.pread(record, BLOCK_BYTES, start + len(data))
        if not more:
            break
        cut = more.find(b"\n") + 1
        data += more[:cut] if cut else more
    lines = []
    at = start
    for line in data.splitlines(keepends=True):
        if line.endswith(b"\n"):
            lines.append((at, line[:-1]))
        at += len(line)
    return lines
