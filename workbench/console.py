"""Writing to stdout and stderr so that a reader who has gone, or a terminal that has, is no error."""

from __future__ import annotations

import errno
import os
import sys
from typing import TextIO

from labs.params import ParameterError

NAME = "workbench"


def prepare() -> None:
    """Let output never fail on a character that the terminal's encoding lacks, nor for want of a stream."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, _nowhere(number))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _nowhere(number: int) -> TextIO:
    """A stream for a standard descriptor that was closed when this process began (`>&-`).

    The descriptor must not stay free: a pipe to the agent would be given its number.
    """
    opened = os.open(os.devnull, os.O_RDWR)
    try:
        os.fstat(number)
    except OSError:
        os.dup2(opened, number)
        os.close(opened)
        opened = number
    if opened == number:
        os.set_inheritable(number, True)
    return open(opened, "w" if number else "r")  # it lives as long as the process does


def say(text: str) -> None:
    """Write a line to stdout; quiet where its reader has left (`| head`).

    Raises:
        ParameterError: it leads to a disk that is full, and somebody will look for it there.
    """
    trouble = write(sys.stdout, text + "\n")
    if trouble in (errno.ENOSPC, errno.EDQUOT):
        raise ParameterError("stdout", f"{os.strerror(trouble)}; free some space, or write it elsewhere")


def tell(text: str) -> None:
    """Write a line to stderr."""
    write(sys.stderr, text + "\n")


def complain(message: str) -> None:
    """Write one line of error, with the command's name, to stderr."""
    tell(f"{NAME}: " + " ".join(message.split()))


def write(stream: TextIO, text: str) -> int:
    """Write and flush; from the first failure on the stream leads nowhere, so that no later write fails.

    Returns that failure's error number, else 0.
    """
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        lead_nowhere(stream)
        return error.errno or errno.EIO
    return 0


def lead_nowhere(stream: TextIO) -> None:
    """Point the stream at nothing: its reader has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def is_text(word: str) -> bool:
    """Whether it is text, and not bytes that the locale's encoding has no characters for."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


SET_TERM = "set TERM to what yours is, such as xterm-256color: one of this name cannot move its cursor"


def is_terminal(stream: TextIO) -> bool:
    """Whether the stream is a terminal that can move its cursor."""
    try:
        return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
    except ValueError:  # closed
        return False
