"""A command on a pseudo-terminal of a given size, as a person at an SSH session would have it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from types import TracebackType

SEQUENCE = re.compile(rb"\x1b\[[0-9;?>=<!]*[ -/]*[@-~]|\x1b[\]P_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.")
READ = 65536


class Terminal:
    """Runs a command until `close`; what it wrote is in `written`."""

    def __init__(
        self, command: Sequence[str], columns: int, rows: int, environment: dict[str, str] | None = None
    ) -> None:
        self.master, slave = pty.openpty()
        self.written = bytearray()
        self._set_size(columns, rows)
        self.before = termios.tcgetattr(slave)
        # A test runner may say a size in the environment; it would win over the terminal's own.
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**inherited, "TERM": "xterm-256color", "LANG": "C.UTF-8", **(environment or {})},
            start_new_session=True,
        )
        self.slave = slave

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size and tell the command, as the kernel does with its foreground."""
        self._set_size(columns, rows)
        self.process.send_signal(signal.SIGWINCH)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, keys: bytes) -> None:
        """Type."""
        os.write(self.master, keys)

    def read(self, seconds: float, limit: int = READ) -> bytes:
        """Return what arrives within `seconds`, as soon as something does."""
        if not select.select([self.master], [], [], max(0.0, seconds))[0]:
            return b""
        try:
            data = os.read(self.master, limit)
        except OSError:  # Linux says so that nobody has the terminal open any more
            return b""
        self.written += data
        return data

    def until(self, text: str, seconds: float = 60.0, since: int = 0) -> float:
        """Read until `text` was written after position `since`; returns when (monotonic).

        Raises:
            AssertionError: it was not within the time, or the command has ended; the message has the end of
                what was written.
        """
        wanted = text.encode()
        deadline = time.monotonic() + seconds
        while wanted not in plain(bytes(self.written[since:])):
            data = self.read(min(1.0, deadline - time.monotonic()))
            gone = not data and self.process.poll() is not None
            if gone or time.monotonic() > deadline:
                raise AssertionError(f"{text!r} was not written: {plain(bytes(self.written[-4000:]))!r}")
        return time.monotonic()

    def drain(self, seconds: float) -> int:
        """Read for so long; returns the number of bytes."""
        before, deadline = len(self.written), time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.read(deadline - time.monotonic())
        return len(self.written) - before

    def wait(self, seconds: float = 60.0) -> int:
        """Read until the command has ended; returns its exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still runs: {plain(bytes(self.written[-4000:]))!r}"
            self.read(0.1)
        while self.read(0.0):
            pass
        return self.process.returncode

    def close(self) -> None:
        """End the command if it still runs, and give the terminal back."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for descriptor in (self.slave, self.master):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.slave = self.master = -1


def plain(data: bytes) -> bytes:
    """Return what was written without the control sequences."""
    return SEQUENCE.sub(b"", data)
