"""What data parallelism must cost, by itself: no process, no torch but for the model that it is about."""

from __future__ import annotations

import pytest
import torch

from labs.data_parallel import theory
from labs.data_parallel.spec import SPEC
from labs.models import DeepMLP, output_loss
from labs.params import ParameterError, parse


@pytest.mark.parametrize(("world_size", "batch"), [(2, 2), (2, 13), (3, 128), (4, 7), (5, 1000)])
def test_every_row_is_read_once(world_size: int, batch: int) -> None:
    """In order, and no rank has two rows more than another."""
    rows = [theory.rows_of(rank, world_size, batch) for rank in range(world_size)]
    assert [i for start, stop in rows for i in range(start, stop)] == list(range(batch))
    sizes = [stop - start for start, stop in rows]
    assert max(sizes) - min(sizes) <= 1


def test_weights_make_a_plain_mean_the_mean_of_the_batch() -> None:
    """7 rows on 2 ranks: 4 and 3."""
    numbers = [5.0, 1.0, 4.0, 2.0, 8.0, 9.0, 3.0]
    total = 0.0
    for rank in range(2):
        mine = numbers[slice(*theory.rows_of(rank, 2, 7))]
        total += theory.loss_weight(rank, 2, 7) * sum(mine) / len(mine) / 2
    assert total == pytest.approx(sum(numbers) / 7)


def test_bytes_do_not_depend_on_the_batch() -> None:
    """2 steps of 3 matrices of 4 x 4, and 3 flags."""
    assert theory.mlp_size(4, 3) == (48, 3)
    assert theory.all_reduced_bytes(48, 3, 2) == 2 * (48 + 3) * 4
    assert theory.sent_bytes(1000, 4) == 1500


def test_initial_loss_is_the_one_on_record() -> None:
    """CS336 2025, lecture 8: 0.01304, 0.01320, 0.01278 and 0.01314 on four ranks, 4 layers of 1024."""
    recorded = [0.01304, 0.01320, 0.01278, 0.01314]
    assert theory.initial_loss(4) == pytest.approx(sum(recorded) / 4, rel=0.02)
    rows = torch.randn(32, 1024, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        measured = float(output_loss(DeepMLP(1024, 4, seed=0)(rows)))
    assert measured == pytest.approx(theory.initial_loss(4), rel=0.1)


def test_layers_are_drawn_apart() -> None:
    """One seed for every parameter would make all layers equal."""
    first, second = DeepMLP(8, 2, seed=0).parameters()
    assert not torch.equal(first, second)


def test_a_rank_without_rows_is_refused() -> None:
    """Before anything is started, and by the flag's name."""
    with pytest.raises(ParameterError, match=r"^--batch: 3 rows leave some of 4 ranks without one"):
        parse(SPEC, {"batch": "3"}, 4)
    parse(SPEC, {"batch": "4"}, 4)
