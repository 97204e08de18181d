"""Examples dealt to ranks once an epoch, in another order each, and the proof that sees it otherwise."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from labs.context import Context
from labs.sharded_data import Fairness, Reader, fairness, reads_of_all
from tests.ranks import on_ranks, values


class Squares:
    """Example i is (i, i squared)."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return torch.tensor(index), torch.tensor(index * index)


def read(world_size: int, epochs: int, seed: int = 3) -> list[Reader]:
    """Readers of 24 examples, 2 a batch, after so many epochs."""
    readers = [Reader(Squares(24), rank, world_size, 2, seed) for rank in range(world_size)]
    for reader in readers:
        for _ in range(epochs * 24 // world_size // 2):
            inputs, targets = reader.next()
            assert torch.equal(inputs**2, targets)
    return readers


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_what_was_read_is_fair(world_size: int) -> None:
    """By every count; and all ranks together read in a step what one reader of all reads in it."""
    readers = read(world_size, 3)
    reads = [[list(reader.epochs[epoch]) for reader in readers] for epoch in range(3)]
    assert fairness(reads, 24) == Fairness(complete=3)
    alone = Reader(Squares(24), 0, 1, 2 * world_size, 3)
    assert alone.share == 24
    for epoch in range(3):
        for step in range(24 // world_size // 2):
            together = {n for rank in reads[epoch] for n in rank[2 * step : 2 * step + 2]}
            assert set(alone.next()[0].tolist()) == together


def test_unfair_reads_are_seen() -> None:
    """A repeat, a gap, an order that comes again, an epoch cut short."""
    first = [[0, 1], [2, 3]]
    assert fairness([first, [[3, 0], [1, 2]]], 4) == Fairness(complete=2)
    assert fairness([first, first], 4).same_order == [1]
    assert fairness([first, [[0], [2]]], 4) == Fairness(complete=1, same_order=[1])
    assert fairness([[[0, 1], [1, 3]]], 4) == Fairness(complete=1, repeated=1, missed=1)
    assert fairness([first, [[1], [1]]], 4).repeated == 1


def test_examples_that_do_not_divide_are_refused() -> None:
    """A sampler would read some twice, a loader would leave some out."""
    with pytest.raises(ValueError, match="24 examples do not divide into batches of 5 on 2 ranks"):
        Reader(Squares(24), 0, 2, 5, 0)
    with pytest.raises(ValueError, match="0 examples"):
        Reader(Squares(0), 0, 2, 5, 0)


def gathered(ctx: Context) -> list[list[list[int]]]:
    """A whole epoch and a batch of the next, as all ranks learn of them."""
    reader = Reader(Squares(8), ctx.rank, ctx.world_size, 2, 5)
    for _ in range(3):
        reader.next()
    return reads_of_all(ctx.comms, reader.epochs)


def test_every_rank_learns_what_all_have_read() -> None:
    """By epoch, by rank, in order."""
    first, second = values(on_ranks(2, gathered))
    assert first == second
    assert [[len(rank) for rank in epoch] for epoch in first] == [[4, 4], [2, 2]]
    assert fairness(first, 8) == Fairness(complete=1)
