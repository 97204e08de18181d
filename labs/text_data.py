"""Text as examples for a language model: each a run of bytes, with the same bytes one further on as targets.

The text comes from `labs.text_files`; `labs.sharded_data` deals the examples out to the ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.utils.data import Dataset

from labs.supply import Supply
from labs.text_files import DataError, corpus


class ByteDataset(Dataset[tuple[Tensor, Tensor]]):
    """Examples of `context` bytes, each with the same bytes one further on as its targets.

    Example i covers bytes i * context to (i + 1) * context, so no byte is an input twice in an epoch.
    """

    def __init__(self, text: bytes, context: int, examples: int | None = None) -> None:
        available = examples_in(len(text), context)
        self.examples = available if examples is None else examples
        if not 0 < self.examples <= available:
            raise DataError(
                f"{len(text)} bytes hold {available} examples of {context} bytes, {self.examples} "
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

    def entropy(self) -> float:
        """Return the entropy in nats a byte of the bytes' frequencies: what knowing no neighbour gives."""
        return entropy(self.tokens[: self.examples * self.context + 1])


def examples_in(num_bytes: int, context: int) -> int:
    """Return how many examples so many bytes hold; the last byte is a target only."""
    return max(0, (num_bytes - 1) // context)


def supplied_text(folder: str, context: int, supply: Supply) -> ByteDataset:
    """Return what a run reads of a person's folder of text, or of the standard library.

    Raises:
        DataError: the folder cannot be read, or holds less text than a step needs.
    """
    text = corpus(folder, supply.text_limit(context))
    return ByteDataset(text, context, supply.examples_an_epoch(examples_in(len(text), context)))


def whole_batch(dataset: ByteDataset, indices: Iterable[int]) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of the examples named, stacked; what one process trains on as reference."""
    pairs = [dataset[index] for index in indices]
    return torch.stack([pair[0] for pair in pairs]), torch.stack([pair[1] for pair in pairs])


def entropy(symbols: Tensor) -> float:
    """Return the entropy in nats of the symbols' frequencies; `symbols` holds integers from 0."""
    shares = (torch.bincount(symbols).double() / len(symbols)).tolist()
    return float(-sum(share * math.log(share) for share in shares if share))
