"""Where an export goes: written beside its place first, then put there whole; nothing is overwritten."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labs.params import ParameterError

FLAG = "--output"


def refuse(path: Path) -> None:
    """Raise where `path` cannot be the new output, before anything is read or written.

    Raises:
        ParameterError: it exists already, or its folder does not, or is no folder that can be written.
    """
    if path.exists() or path.is_symlink():
        raise ParameterError(FLAG, f"{path} exists already; give another name or remove it first")
    if not path.parent.is_dir():
        raise ParameterError(FLAG, f"{path}: {path.parent} is not a folder; make it or give another")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ParameterError(FLAG, f"{path}: {path.parent} cannot be written; give another folder")


@contextmanager
def placed(path: Path) -> Iterator[Path]:
    """Give a temporary path to write a file or a folder to; after the block it is at `path`, as a whole.

    Where the block raises nothing is left.

    Raises:
        ParameterError: the disk refuses, or `path` has come into being meanwhile.
    """
    refuse(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        _put(temporary, path)
    except OSError as error:
        raise ParameterError(FLAG, f"{path}: {error.strerror or error}") from None
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


def _put(temporary: Path, path: Path) -> None:
    if temporary.is_dir():
        temporary.rename(path)  # refuses a folder that is not empty, and a file
        return
    try:
        os.link(temporary, path)  # unlike a rename it refuses to overwrite
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        refuse(path)
        temporary.rename(path)


def free_name(path: Path) -> Path:
    """Return `path`, or where that is taken the first of `name-2`, `name-3`, ... that is not."""
    stem, dot, ending = path.name.partition(".")
    candidate, number = path, 1
    while candidate.exists() or candidate.is_symlink():
        number += 1
        candidate = path.with_name(f"{stem}-{number}{dot}{ending}")
    return candidate
