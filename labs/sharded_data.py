"""Examples dealt out to ranks by `DataLoader` and `DistributedSampler`, and the proof that it was fair.

All ranks shuffle all examples alike (seed + epoch), then rank r takes every world_size-th from the r-th on.
Without `set_epoch` at its beginning every epoch deals the same examples in the same order. `Reader` calls it
and keeps what was read; `reads_of_all` and `fairness` turn that into numbers that a lab can check.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from labs.comms import Comms

Example = tuple[Tensor, Tensor]


class Examples(Sized, Protocol):
    """A map-style dataset of (input, target)."""

    def __getitem__(self, index: int) -> Example: ...


class Numbered(Dataset[tuple[int, Tensor, Tensor]]):
    """A dataset whose examples carry their number, so that what a loader hands out can be told."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> tuple[int, Tensor, Tensor]:
        """Return (number, input, target)."""
        return (index, *self.examples[index])


Loader = DataLoader[tuple[int, Tensor, Tensor]]
Sampler = DistributedSampler[Any]
"""Yields the numbers of the examples (torch annotates it with the type of the examples themselves)."""


def rank_loader(
    examples: Examples, rank: int, world_size: int, batch: int, seed: int
) -> tuple[Loader, Sampler]:
    """Return this rank's loader of `batch` examples a step, and the sampler whose `set_epoch` reshuffles."""
    numbered = Numbered(examples)
    sampler: Sampler = DistributedSampler(
        numbered, num_replicas=world_size, rank=rank, shuffle=True, seed=seed
    )
    return DataLoader(numbered, batch_size=batch, sampler=sampler, drop_last=True), sampler


class Reader:
    """An endless stream of one rank's batches, epoch after epoch.

    Args:
        examples: what all ranks share; their number must divide by `world_size * batch`, else a sampler
            repeats examples to fill up and a loader drops the rest.
        rank, world_size: this reader's place; 0 of 1 reads what all ranks together read, in the same steps.
        batch: examples a batch of this rank.
        seed: of the shuffling, the same on every rank.

    Raises:
        ValueError: the examples do not divide.
    """

    def __init__(self, examples: Examples, rank: int, world_size: int, batch: int, seed: int) -> None:
        if not len(examples) or len(examples) % (world_size * batch):
            raise ValueError(
                f"{len(examples)} examples do not divide into batches of {batch} on {world_size} ranks"
            )
        self.num_examples = len(examples)
        self.loader, self.sampler = rank_loader(examples, rank, world_size, batch, seed)
        self.epoch = -1
        self.epochs: list[array[int]] = []
        """By epoch, the numbers of the examples in the order they were read."""
        self._batches = self._stream()

    def next(self) -> Example:
        """Return the next batch's inputs and targets; begins the next epoch where the last one is over."""
        return next(self._batches)

    @property
    def share(self) -> int:
        """Examples that this rank reads in an epoch."""
        return len(self.sampler)

    def _stream(self) -> Iterator[Example]:
        while True:
            self.epoch += 1
            self.sampler.set_epoch(self.epoch)
            self.epochs.append(array("q"))
            for numbers, inputs, targets in self.loader:
                self.epochs[-1].extend(torch.as_tensor(numbers).tolist())
                yield inputs, targets


@dataclass
class Fairness:
    """What was read: epochs that were complete, and what was wrong in any."""

    complete: int = 0
    repeated: int = 0
    """Reads of an example that had been read in its epoch before, by any rank."""
    missed: int = 0
    """Examples that nobody read in a complete epoch."""
    same_order: list[int] = field(default_factory=list)
    """Epochs whose first examples came in the same order as those of the epoch before."""


def reads_of_all(comms: Comms, epochs: Sequence[Sequence[int]]) -> list[list[list[int]]]:
    """Return by epoch, by rank, the numbers read; every rank calls this, having read as much."""
    mine = torch.tensor([number for epoch in epochs for number in epoch], dtype=torch.int64)
    mine = mine.to(comms.recorder.device)
    everyone = mine.new_empty(mine.numel() * comms.world_size)
    comms.all_gather(everyone, mine)
    sizes = [len(epoch) for epoch in epochs]
    by_rank = [torch.split(row, sizes) for row in everyone.view(comms.world_size, -1).cpu()]
    return [[row[epoch].tolist() for row in by_rank] for epoch in range(len(sizes))]


def fairness(reads: Sequence[Sequence[Sequence[int]]], examples: int) -> Fairness:
    """Judge the reads by epoch, by rank: each example once an epoch, another order each epoch.

    The last epoch may be cut short; of it only repeats count, and its order as far as it goes.
    """
    found = Fairness()
    for epoch, by_rank in enumerate(reads):
        numbers = [number for rank in by_rank for number in rank]
        distinct = set(numbers)
        found.repeated += len(numbers) - len(distinct)
        if len(numbers) >= examples:
            found.complete += 1
            found.missed += examples - len(distinct)
        if epoch and all(
            list(now) == list(before[: len(now)])
            for now, before in zip(by_rank, reads[epoch - 1], strict=True)
        ):
            found.same_order.append(epoch)
    return found
