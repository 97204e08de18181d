"""A kept run as a stream: its manifest, its result where it has one, and its events a piece at a time.

A record may hold a million events; nothing here keeps more than one piece of it in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from labs.params import ParameterError
from launcher.events import AnyEvent
from launcher.record import Tail
from launcher.rundir import EVENTS, Manifest, Result, read_manifest, read_result

PIECE = 1 << 20
"""Bytes of the record that are decoded at once."""
FLAG = "--export"


class Source:
    """The run in a folder, as far as it had come when this was made: a run that goes on does not shift under
    an export that reads it twice. `unreadable` counts the lines that were no events, once a pass is over.

    Raises:
        ParameterError: the folder's manifest or result cannot be read.
    """

    def __init__(self, folder: Path, flag: str = FLAG) -> None:
        """`flag` is the one by which the run was asked for."""
        self.folder = folder
        self._flag = flag
        self.unreadable = 0
        record = folder / EVENTS
        self._end = record.stat().st_size if record.exists() else 0
        try:
            self.manifest: Manifest = read_manifest(folder)
            self.result: Result | None = read_result(folder)
        except FileNotFoundError:
            raise ParameterError(self._flag, f"{folder} holds no run: it has no manifest.json") from None
        except (OSError, msgspec.DecodeError) as error:
            raise ParameterError(
                self._flag, f"{folder}: its manifest or result cannot be read: {error}"
            ) from None

    def events(self) -> Iterator[AnyEvent]:
        """Yield the events of the record, each pass from the first.

        Raises:
            ParameterError: the record cannot be read.
        """
        tail = Tail(self.folder / EVENTS)
        try:
            while pieces := self._read(tail):
                yield from pieces
        except OSError as error:
            raise ParameterError(self._flag, f"{tail.path}: {error.strerror or error}") from None
        self.unreadable = tail.unreadable

    def _read(self, tail: Tail) -> list[AnyEvent]:
        """The next events; a piece of nothing but damaged lines is not the end."""
        position = -1
        while position != tail.position < self._end:
            position = tail.position
            if events := tail.read(min(PIECE, self._end - position)):
                return events
        return []

    def lines(self) -> Iterator[bytes]:
        """Yield the whole lines of the record as they are, damaged ones too."""
        tail = Tail(self.folder / EVENTS)
        try:
            while tail.position < self._end and (
                lines := tail.read_lines(min(PIECE, self._end - tail.position))
            ):
                yield from lines
        except OSError as error:
            raise ParameterError(self._flag, f"{tail.path}: {error.strerror or error}") from None
