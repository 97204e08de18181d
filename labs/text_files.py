"""Text that every machine has, the Python standard library's own source files, or a person's own folder.

Reads bytes in a fixed order of files, so that every rank sees the same text. Loads no torch: a lab's spec
asks here, before anything is started, whether a folder holds what the run would read.
"""

from __future__ import annotations

import os
import stat
import sysconfig
from collections.abc import Iterator
from pathlib import Path

SUFFIXES = (".py", ".txt", ".md", ".rst", ".csv", ".json", ".html")
MOST_FILES = 50_000
"""Files looked at, whatever their names, before a folder counts as one without (enough) text."""


class DataError(ValueError):
    """A folder that a person gave and that cannot be trained on; the message says what to place where."""


def standard_library() -> Path:
    """Return the folder that holds the running Python's own library."""
    return Path(sysconfig.get_paths()["stdlib"])


def folder_of(given: str) -> Path:
    """Return the folder that a person named.

    Raises:
        DataError: there is none, or it may not be listed.
    """
    folder = Path(given).expanduser()
    try:
        if not folder.exists():
            raise DataError(f"{given!r} does not exist; give a folder")
        if not folder.is_dir():
            raise DataError(f"{given!r} is not a folder; give the folder that holds the files")
        os.listdir(folder)
    except OSError as error:
        raise DataError(f"{given!r} cannot be read: {error.strerror or error}") from None
    return folder


def corpus(folder: str = "", limit: int = 1 << 20) -> bytes:
    """Read text, in the order of the files' names, until `limit` bytes are read.

    Args:
        folder: a folder of text files, searched with its subfolders but for hidden ones; empty for the
            standard library, its top folder.
        limit: the most bytes to return.

    Raises:
        DataError: the folder does not exist, holds no text file with content, or one that cannot be read.
    """
    parts: list[bytes] = []
    room = limit
    for path in _files(folder):
        if room <= 0:
            break
        parts.append(_head(path, room))
        room -= len(parts[-1])
    text = b"".join(parts)
    if not text:
        raise DataError(f"{folder!r} holds no text; place files there that end in {allowed()}")
    return text


def allowed() -> str:
    """The endings of the files that are read, in words."""
    return ", ".join(SUFFIXES)


def _files(folder: str) -> Iterator[Path]:
    if not folder:
        yield from sorted(standard_library().glob("*.py"))
        return
    root = folder_of(folder)
    seen = 0
    for where, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            seen += 1
            if seen > MOST_FILES:
                return
            path = Path(where, name)
            if path.suffix.lower() in SUFFIXES and _is_file(path):
                yield path


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:  # a link that leads nowhere
        return False


def _head(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(limit)
    except OSError as error:
        raise DataError(
            f"'{path}' cannot be read: {error.strerror or error}; make it readable or move it away"
        ) from None
