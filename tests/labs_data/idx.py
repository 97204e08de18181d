"""Writes small IDX sets as the people who publish such sets do."""

from __future__ import annotations

import gzip
import random
import struct
from pathlib import Path


def idx(sizes: tuple[int, ...], data: bytes, magic: bytes = b"\0\0\x08") -> bytes:
    """The bytes of an IDX file of unsigned bytes."""
    return magic + bytes([len(sizes)]) + struct.pack(f">{len(sizes)}I", *sizes) + data


def write_set(folder: Path, count: int, side: int = 4, classes: int = 3, packed: bool = False) -> Path:
    """Write images that show their class: noise, and a bright row for each label."""
    dice = random.Random(0)
    labels = bytes(dice.randrange(classes) for _ in range(count))
    rows = [
        bytes(255 if row == label else dice.randrange(64) for _ in range(side))
        for label in labels
        for row in range(side)
    ]
    files = {
        "train-images-idx3-ubyte": idx((count, side, side), b"".join(rows)),
        "train-labels-idx1-ubyte": idx((count,), labels),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return folder
