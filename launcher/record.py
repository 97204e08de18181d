"""The record of a run, `events.jsonl`: written by the collector alone, read by everybody else.

The writer appends whole lines, as the ranks sent them, each with its arrival number in front. The reader is
a tail: live, replay and attach are the same code on the same file. It never hands out half a line.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from launcher.events import AnyEvent, decode

READ_CHUNK = 4 << 20


class RecordWriter:
    """Appends lines to a file in large writes; a full disk is remembered, not raised."""

    def __init__(self, path: Path) -> None:
        self.error: OSError | None = None
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._lines: list[bytes] = []

    def add(self, line: bytes) -> None:
        """Queue one line, newline included, for the next `write`."""
        self._lines.append(line)

    def write(self) -> bool:
        """Write what is queued; False once the disk has refused, from which on nothing more is written.

        A write that stops in the middle of a line is cut back to the line before, so that the record parses.
        """
        data, self._lines = b"".join(self._lines), []
        if self.error is not None:
            return False
        while data:
            try:
                data = data[os.write(self._file, data) :]
            except OSError as error:
                self.error = error
                self._cut_torn_line()
                return False
        return True

    def close(self) -> None:
        """Write the rest and close the file."""
        self.write()
        os.close(self._file)

    def _cut_torn_line(self) -> None:
        end = os.fstat(self._file).st_size
        reader = os.open(f"/proc/self/fd/{self._file}", os.O_RDONLY) if os.path.isdir("/proc/self/fd") else -1
        if reader < 0:
            return  # without /proc the readers' own care for a torn last line remains
        try:
            while end > 0:
                start = max(0, end - 65536)
                last = os.pread(reader, end - start, start).rfind(b"\n")
                if last >= 0:
                    os.ftruncate(self._file, start + last + 1)
                    return
                end = start
            os.ftruncate(self._file, 0)
        finally:
            os.close(reader)


class Tail:
    """Reads a record as it grows. `position` is the byte up to which lines were handed out."""

    def __init__(self, path: Path, position: int = 0) -> None:
        self.path = path
        self.position = position
        self.unreadable = 0

    def read(self, limit: int = READ_CHUNK) -> list[AnyEvent]:
        """Return the events that were completed since the last call, from at most `limit` bytes.

        A record that does not exist yet has no events; a line that is no event (from a newer version, or a
        damaged disk) is counted in `unreadable` and passed over.

        Raises:
            OSError: the file exists and cannot be read.
        """
        events: list[AnyEvent] = []
        for line in self.read_lines(limit):
            try:
                events.append(decode(line))
            except msgspec.DecodeError:
                self.unreadable += 1
        return events

    def read_lines(self, limit: int = READ_CHUNK) -> list[bytes]:
        """Return the complete lines since the last call, without their newlines."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.position)
                data = file.read(limit)
                while data and b"\n" not in data:
                    more = file.read(limit)
                    if not more:
                        break
                    data += more
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self.position += len(whole)
        return whole.split(b"\n")[:-1]

    @property
    def behind(self) -> int:
        """Bytes of the record that were not handed out yet."""
        try:
            return self.path.stat().st_size - self.position
        except FileNotFoundError:
            return 0


def read_record(path: Path) -> list[AnyEvent]:
    """Return all events of a finished record."""
    tail = Tail(path)
    events = tail.read()
    while chunk := tail.read():
        events += chunk
    return events
