"""What ranks print: their log files in the run's folder, turned into `log` events as they grow."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from launcher.events import Log
from launcher.rank import log_path

READ_SIZE = 1 << 18
LAST_SIZE = 8 << 20
MAX_LINE = 4_000


@dataclass
class _Stream:
    rank: int
    stream: Literal["stdout", "stderr"]
    path: Path
    position: int = 0
    rest: bytes = b""

    def read(self) -> list[Log]:
        """Return the lines that were completed since the last call."""
        try:
            if self.path.stat().st_size <= self.position:
                return []
            with self.path.open("rb") as file:
                file.seek(self.position)
                data = file.read(READ_SIZE)
        except OSError:  # not there yet, or gone with the disk it lay on
            return []
        self.position += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        if len(self.rest) > READ_SIZE:
            lines.append(self.rest)
            self.rest = b""
        return [self._event(line) for line in lines]

    def finish(self) -> list[Log]:
        """Return the last line, if it has no newline."""
        rest, self.rest = self.rest, b""
        return [self._event(rest)] if rest else []

    def _event(self, line: bytes) -> Log:
        text = line.decode("utf-8", "replace").rstrip("\r")
        if len(text) > MAX_LINE:
            text = f"{text[:MAX_LINE]} ... ({len(text)} characters)"
        return Log(t=time.monotonic_ns(), rank=self.rank, stream=self.stream, line=text)


class LogTail:
    """Reads the log files of all ranks of one run; files appear when their rank starts."""

    def __init__(self, folder: Path, world_size: int) -> None:
        self._streams = [
            _Stream(rank, stream, log_path(folder, rank, stream))
            for rank in range(world_size)
            for stream in ("stdout", "stderr")
        ]

    def read(self) -> list[Log]:
        """Return the lines that were completed since the last call, bytes that are not UTF-8 replaced."""
        return [event for stream in self._streams for event in stream.read()]

    def finish(self) -> list[Log]:
        """Return what is left when all ranks are gone, the last line without newline included.

        At most `LAST_SIZE` a file: one that printed more has it all in its file.
        """
        events: list[Log] = []
        for stream in self._streams:
            began, before = stream.position, -1
            while before < stream.position < began + LAST_SIZE:
                before = stream.position
                events += stream.read()
            events += stream.finish()
        return events
