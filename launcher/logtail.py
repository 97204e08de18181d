"""What ranks print: their log files in the run's folder, turned into `log` events as they grow."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from launcher.events import Log

READ_SIZE = 1 << 18
MAX_LINE = 4_000


def log_path(folder: Path, rank: int, stream: Literal["stdout", "stderr"]) -> Path:
    """Where what a rank prints is kept: `rank<N>.log`, and `rank<N>.err.log` for its stderr."""
    return folder / (f"rank{rank}.log" if stream == "stdout" else f"rank{rank}.err.log")


@dataclass
class _Stream:
    rank: int
    stream: Literal["stdout", "stderr"]
    path: Path
    position: int = 0
    rest: bytes = b""


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
        return [event for stream in self._streams for event in self._read(stream)]

    @staticmethod
    def _read(stream: _Stream) -> list[Log]:
        try:
            if stream.path.stat().st_size <= stream.position:
                return []
            with stream.path.open("rb") as file:
                file.seek(stream.position)
                data = file.read(READ_SIZE)
        except OSError:  # not there yet, or gone with the disk it lay on
            return []
        stream.position += len(data)
        *lines, stream.rest = (stream.rest + data).split(b"\n")
        if len(stream.rest) > MAX_LINE:
            lines.append(stream.rest)
            stream.rest = b""
        now = time.monotonic_ns()
        return [
            Log(
                t=now,
                rank=stream.rank,
                stream=stream.stream,
                line=line[:MAX_LINE].decode("utf-8", "replace").rstrip("\r"),
            )
            for line in lines
        ]
