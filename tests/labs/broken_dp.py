"""Ways to break data parallelism, one mistake each; a rank calls one of these before it runs the lab."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn
from torch.optim import AdamW

from labs import models
from labs.comms import Comms
from labs.data_parallel import journal, measures, subjects, theory, training
from labs.parallel import replica
from labs.parallel.data import FlatDataParallel, NaiveDataParallel


def no_broadcast() -> None:
    """The replicas keep what each was seeded with."""
    replica.broadcast_module = lambda module, comms: None


def no_division() -> None:
    """Gradients are summed, and left so."""

    def average(self: NaiveDataParallel, gradients: Sequence[Tensor]) -> None:
        for gradient in gradients:
            self.comms.all_reduce(gradient)

    NaiveDataParallel._average = average  # type: ignore[method-assign]


def no_sync() -> None:
    """Every rank steps with its own gradients; the all-reduces work on copies."""

    def average(self: NaiveDataParallel, gradients: Sequence[Tensor]) -> None:
        for gradient in gradients:
            self.comms.all_reduce(gradient.clone())

    NaiveDataParallel._average = average  # type: ignore[method-assign]


def one_rank_skips() -> None:
    """Rank 1 leaves out the all-reduce of its last gradient in the second step."""
    right, calls = NaiveDataParallel._average, iter(range(1_000_000))

    def average(self: NaiveDataParallel, gradients: Sequence[Tensor]) -> None:
        skips = next(calls) == 1 and os.environ["RANK"] == "1"
        right(self, gradients[:-1] if skips else gradients)

    NaiveDataParallel._average = average  # type: ignore[method-assign]


def one_rank_skips_the_last() -> None:
    """Rank 1 does not come to the last all-gather of the run, and waits for rank 0's training alone."""
    right = journal.gather

    def gather(proof: Comms, numbers: list[int]) -> list[list[int]]:
        return [] if proof.rank == 1 else right(proof, numbers)

    vars(measures)["gather"] = gather


def twice_the_bytes() -> None:
    """Gradients travel in fp64."""

    def average(self: NaiveDataParallel, gradients: Sequence[Tensor]) -> None:
        for gradient in gradients:
            wide = gradient.double()
            self.comms.all_reduce(wide)
            gradient.copy_(wide / self.comms.world_size)

    NaiveDataParallel._average = average  # type: ignore[method-assign]


def flat_off_by_one() -> None:
    """Each gradient is read one element late from the flat buffer."""
    right = FlatDataParallel._average

    def average(self: FlatDataParallel, gradients: Sequence[Tensor]) -> None:
        right(self, gradients)
        for gradient in gradients:
            gradient.copy_(gradient.flatten().roll(1).view_as(gradient))

    FlatDataParallel._average = average  # type: ignore[method-assign]


def optimizer_of_another_instance() -> None:
    """The optimizer holds the parameters of a second model, which nobody trains."""

    def other(parameters: object, lr: float) -> AdamW:
        shapes = [p.shape for p in parameters]  # type: ignore[attr-defined]
        return AdamW(models.DeepMLP(shapes[0][0], len(shapes)).parameters(), lr=lr)

    vars(training)["AdamW"] = other


def uphill() -> None:
    """The optimizer maximises."""
    vars(training)["AdamW"] = partial(AdamW, maximize=True)


def same_rows() -> None:
    """Every rank reads the first rank's rows."""
    right = theory.rows_of
    theory.rows_of = lambda rank, world_size, batch: right(0, world_size, batch)


def same_weight() -> None:
    """Ranks with more rows weigh no more than the others in the gradient."""
    vars(theory)["loss_weight"] = lambda rank, world_size, batch: 1.0


def same_seed() -> None:
    """All ranks draw the same model, so that nobody would miss the broadcast."""
    right = models.DeepMLP
    vars(subjects)["DeepMLP"] = lambda dim, layers, seed: right(dim, layers, seed=7)


def unscaled_weights() -> None:
    """Weights of variance 1, whatever the fan-in."""
    right = models.Layer.__init__

    def init(self: models.Layer, dim: int, generator: object = None) -> None:
        right(self, dim, generator)  # type: ignore[arg-type]
        self.weight = nn.Parameter(self.weight.detach() * dim**0.5)

    models.Layer.__init__ = init  # type: ignore[method-assign]


STEPS = 4
