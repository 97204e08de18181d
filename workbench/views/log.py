"""What the ranks printed, the newest lines of it, with the count of older ones that are no longer held."""

from __future__ import annotations

import re
from collections import deque

import msgspec

from launcher.events import AnyEvent, Log
from launcher.rundir import Manifest
from workbench.views.base import View

CAPACITY = 2000
MAX_LINE = 2000
_CONTROL = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


def clean(line: str) -> str:
    """Return a printed line as it would stand on a terminal: no control sequences, the last of overwrites."""
    return _CONTROL.sub("", line.rstrip("\r\n").rsplit("\r", 1)[-1].expandtabs(4))[:MAX_LINE]


class LogLine(msgspec.Struct, frozen=True):
    """One line of one rank; -1 is the launcher."""

    rank: int
    stream: str
    text: str


class LogSnapshot(msgspec.Struct, frozen=True):
    """The newest lines, the newest last; `older` were let go."""

    lines: tuple[LogLine, ...] = ()
    older: int = 0
    over: bool = False


class LogView(View[LogSnapshot]):
    """Takes log lines, without the control sequences that would disturb the screen."""

    takes = (Log,)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._lines: deque[LogLine] = deque(maxlen=CAPACITY)
        self._count = 0

    def fold(self, event: AnyEvent) -> None:
        """Take one line."""
        assert isinstance(event, Log)
        self._lines.append(LogLine(event.rank, event.stream, clean(event.line)))
        self._count += 1

    def build(self) -> LogSnapshot:
        """Return the lines held."""
        return LogSnapshot(tuple(self._lines), self._count - len(self._lines), self.result is not None)
