"""Bytes from a rank's socket into lines, in bounded memory, whatever arrives. Pure."""

from __future__ import annotations

MAX_LINE = 4 << 20
"""A longer line is no event: it is discarded up to its newline, and counted once."""
KEPT = 2_000


class Lines:
    """Cuts a byte stream into lines."""

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._overlong: list[bytes] = []
        self._max = max_line
        self._parts: list[bytes] = []
        self._size = 0
        self._discarding = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take what was received and return the lines that are complete now, without their newlines."""
        head, newline, rest = data.partition(b"\n")
        if not newline:
            self._keep(data)
            return []
        lines = rest.split(b"\n")
        last = lines.pop()
        if not self._discarding:
            self._keep(head)
        if self._discarding:
            self._discarding = False
        else:
            lines.insert(0, b"".join(self._parts))
        self._parts.clear()
        self._size = 0
        self._keep(last)
        return lines

    def take_overlong(self) -> list[bytes]:
        """Return the beginnings of the lines that have been discarded since the last call."""
        found, self._overlong = self._overlong, []
        return found

    def rest(self) -> bytes:
        """Return what came after the last newline, when the stream has ended."""
        return b"".join(self._parts)

    def _keep(self, part: bytes) -> None:
        if self._discarding or not part:
            return
        self._parts.append(part)
        self._size += len(part)
        if self._size > self._max:
            self._overlong.append(b"".join(self._parts)[:KEPT])
            self._parts.clear()
            self._size = 0
            self._discarding = True
