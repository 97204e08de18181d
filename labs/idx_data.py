"""MNIST-style IDX files: images and labels as the people who publish such sets pack them, plain or gzipped.

An IDX file (LeCun, Cortes, Burges: The MNIST database) begins with two zero bytes, the type of its elements
(8: unsigned bytes) and the number of dimensions, then each dimension's size as a big-endian 32-bit integer;
the elements follow, the last dimension fastest. Loads no torch: a lab's spec asks here before a run starts.
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from dataclasses import dataclass
from math import prod
from pathlib import Path

from labs.text_files import DataError, folder_of

IMAGES = ("train-images-idx3-ubyte", "train-images.idx3-ubyte")
LABELS = ("train-labels-idx1-ubyte", "train-labels.idx1-ubyte")
UNSIGNED_BYTES = 8
MOST_PIXELS = 1 << 16


@dataclass(frozen=True)
class IdxImages:
    """The first images of a set, a byte a pixel, and their labels, a byte each."""

    rows: int
    columns: int
    pixels: bytes
    labels: bytes

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> int:
        """Labels run from 0 to this, exclusive."""
        return max(self.labels) + 1


def what_to_place() -> str:
    """Which files a folder must hold, in words."""
    return f"{IMAGES[0]} and {LABELS[0]} (or the same with .gz)"


def read_images(folder: str, limit: int) -> IdxImages:
    """Read the first `limit` images and labels of a folder.

    Raises:
        DataError: the folder or a file is missing, is no IDX file of that kind, ends too early, or the two
            do not belong together; the message names the file and what is wrong.
    """
    root = folder_of(folder)
    images, labels = _find(root, IMAGES), _find(root, LABELS)
    (count, rows, columns), pixels = _read(images, 3, limit)
    (labelled,), marks = _read(labels, 1, limit)
    if count != labelled:
        raise DataError(
            f"'{images}' holds {count} images and '{labels}' {labelled} labels; they do not belong together"
        )
    return IdxImages(rows, columns, pixels, marks)


def _find(root: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        for path in (root / name, root / f"{name}.gz"):
            if path.is_file():
                return path
    raise DataError(f"'{root}' has no {names[0]}; place {what_to_place()} there")


def _read(path: Path, num_dims: int, limit: int) -> tuple[tuple[int, ...], bytes]:
    """Return the sizes in the header and the first `limit` elements along the first dimension."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            head = file.read(4 + 4 * num_dims)
            sizes = _header(path, head, num_dims)
            wanted = min(limit, sizes[0]) * prod(sizes[1:])
            data = file.read(wanted)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"'{path}' is no whole gzip file: {error}; fetch it again") from None
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror or error}") from None
    promised = len(head) + prod(sizes)
    held = _length(path) if len(data) == wanted else len(head) + len(data)
    if held < promised:
        raise DataError(
            f"'{path}' is cut short: its header promises {promised} bytes, {held} are there; fetch it again"
        )
    if path.suffix == ".gz" and held != promised % (1 << 32):
        raise DataError(f"'{path}' is no whole gzip file: it does not end with its length; fetch it again")
    return sizes, data


def _length(path: Path) -> int:
    """Bytes of the file, of a gzipped one those it was packed from (its last four bytes, RFC 1952)."""
    if path.suffix != ".gz":
        return path.stat().st_size
    with path.open("rb") as file:
        file.seek(-4, os.SEEK_END)
        return int.from_bytes(file.read(4), "little")


def _header(path: Path, head: bytes, num_dims: int) -> tuple[int, ...]:
    magic = bytes((0, 0, UNSIGNED_BYTES, num_dims))
    if head[:4] != magic:
        raise DataError(
            f"'{path}' begins with {head[:4].hex(' ') or 'nothing'}, an IDX file of {num_dims} dimension"
            f"{'s' * (num_dims > 1)} with {magic.hex(' ')}; place {what_to_place()} there"
        )
    if len(head) < 4 + 4 * num_dims:
        raise DataError(f"'{path}' is cut short: it ends within its header; fetch it again")
    sizes = struct.unpack(f">{num_dims}I", head[4:])
    if not all(sizes):
        raise DataError(f"'{path}' is empty: its sizes are {' x '.join(map(str, sizes))}")
    if prod(sizes[1:]) > MOST_PIXELS:
        raise DataError(f"'{path}' has images of {prod(sizes[1:])} pixels; at most {MOST_PIXELS} are allowed")
    return sizes
