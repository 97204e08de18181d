"""Text to train on that every machine has: the Python standard library's own source files, as bytes.

`corpus` reads them (or a person's own folder) in a fixed order, so that all ranks see the same text;
`ByteDataset` cuts it into examples; `rank_loader` deals the examples out with a `DistributedSampler`.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SUFFIXES = (".py", ".txt", ".md", ".rst", ".csv", ".json", ".html")


class DataError(ValueError):
    """A folder that a person gave and that holds nothing to train on; the message says what to place."""


def standard_library() -> Path:
    """Return the folder that holds the running Python's own library."""
    return Path(sysconfig.get_paths()["stdlib"])


def corpus(folder: str = "", limit: int = 1 << 20) -> bytes:
    """Read text, in the order of the files' names, until `limit` bytes are read.

    Args:
        folder: a folder of text files, searched with its subfolders; empty for the standard library.
        limit: the most bytes to return.

    Raises:
        DataError: the folder does not exist, or holds no text file with content.
    """
    if folder:
        root = Path(folder).expanduser()
        if not root.is_dir():
            raise DataError(f"--data: {folder!r} is not a folder; give a folder with {_allowed()} files")
        files = sorted(path for path in root.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    else:
        files = sorted(standard_library().glob("*.py"))
    text = _read(files, limit)
    if not text:
        raise DataError(f"--data: {folder!r} holds no text; place {_allowed()} files in it")
    return text


def _allowed() -> str:
    return ", ".join(SUFFIXES)


def _read(files: Iterable[Path], limit: int) -> bytes:
    parts: list[bytes] = []
    room = limit
    for path in files:
        if room <= 0:
            break
        with path.open("rb") as file:
            parts.append(file.read(room))
        room -= len(parts[-1])
    return b"".join(parts)


class ByteDataset(Dataset[tuple[Tensor, Tensor]]):
    """Examples of `context` bytes, each with the same bytes one further on as its targets.

    Example i covers bytes i * context to (i + 1) * context, so no byte is an input twice in an epoch.
    """

    def __init__(self, text: bytes, context: int, examples: int | None = None) -> None:
        available = max(0, (len(text) - 1) // context)
        self.examples = available if examples is None else examples
        if not 0 < self.examples <= available:
            raise DataError(
                f"--data: {len(text)} bytes hold {available} examples of {context} bytes, {self.examples} "
                "are needed; give more text, fewer steps, or a smaller batch"
            )
        self.context = context
        self.tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8)

    def __len__(self) -> int:
        return self.examples

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return (inputs, targets), both int64 of shape (context,)."""
        if not 0 <= index < self.examples:
            raise IndexError(index)
        start = index * self.context
        window = self.tokens[start : start + self.context + 1].long()
        return window[:-1], window[1:]


Loader = DataLoader[tuple[Tensor, Tensor]]
Sampler = DistributedSampler[Any]
"""Yields the numbers of the examples (torch annotates it with the type of the examples themselves)."""


def rank_loader(
    dataset: ByteDataset, rank: int, world_size: int, batch: int, seed: int
) -> tuple[Loader, Sampler]:
    """Return this rank's loader of `batch` examples a step, and the sampler whose `set_epoch` reshuffles it.

    All ranks shuffle all examples alike (`seed` + epoch), then rank r takes every world_size-th from the r-th
    on. Without `set_epoch` every epoch deals the same examples in the same order.
    """
    sampler: Sampler = DistributedSampler(
        dataset, num_replicas=world_size, rank=rank, shuffle=True, seed=seed
    )
    return DataLoader(dataset, batch_size=batch, sampler=sampler, drop_last=True), sampler


def whole_batch(dataset: ByteDataset, indices: Iterable[int]) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of the examples named, stacked; what one process trains on as reference."""
    pairs = [dataset[index] for index in indices]
    return torch.stack([pair[0] for pair in pairs]), torch.stack([pair[1] for pair in pairs])
