"""Sizes as nccl-tests writes them (`8M` is 8 MiB) and the sweep from `-b` to `-e` by `-f`. Loads no torch."""

from __future__ import annotations

import re

SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LARGEST = 64 << 30
ELEMENT_BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8}

_SIZE = re.compile(r"(\d+)\s*([KMG]?)(?:i?B)?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Return the bytes that `text` means; suffixes are binary as in nccl-tests, so `8M` is 8,388,608.

    Raises:
        ValueError: not a whole number with an optional K, M or G, zero, or more than 64G.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text!r} is not a size; allowed: a whole number of bytes, or with K, M or G, as 8M"
        )
    size = int(match[1]) * SUFFIXES[match[2].upper()]
    if not 1 <= size <= LARGEST:
        raise ValueError(f"{text} is out of bounds; allowed: 1 to {format_size(LARGEST)}")
    return size


def format_size(size: int) -> str:
    """Return `size` (bytes) in the largest binary suffix that divides it: 8388608 is `8M`, 1000 is `1000`."""
    for suffix, unit in reversed(SUFFIXES.items()):
        if size and size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)


def sweep(smallest: int, largest: int, factor: int) -> list[int]:
    """Return `smallest`, `smallest * factor`, ... up to and including `largest` (bytes).

    Raises:
        ValueError: the factor is below 2 (the sweep would not end) or `smallest` is above `largest`.
    """
    if factor < 2:
        raise ValueError(f"factor {factor} never leaves {smallest}: allowed 2 and more")
    if not 1 <= smallest <= largest:
        raise ValueError(f"no size from {smallest} to {largest}")
    sizes = [smallest]
    while sizes[-1] * factor <= largest:
        sizes.append(sizes[-1] * factor)
    return sizes


def whole_elements(size: int, pieces: int, element_bytes: int) -> int:
    """Return how many elements fit in `size` bytes when every one of `pieces` ranks holds equally many.

    nccl-tests rounds down in the same way: 1024 bytes of float32 over 3 ranks are 255 elements, 1020 bytes.
    """
    return size // (pieces * element_bytes) * pieces
