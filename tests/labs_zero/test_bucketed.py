"""`BucketedDataParallel` equals one process and DDP, and a broken one does not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from labs.comms import Comms
from labs.parallel.bucketed import Bucket, BucketedDataParallel
from tests.labs_zero import cases
from tests.ranks import with_comms

SIZES = (1e-6, 1e-4, 25.0)
"""A bucket a parameter, a few parameters a bucket, all in one."""


def farthest(left: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    """The largest difference of two states with the same names."""
    assert left.keys() == right.keys()
    return max(float((left[name] - right[name]).abs().max()) for name in left)


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_equals_one_process(world_size: int) -> None:
    """Seeds differ by rank; weights are tied, frozen, unused for a step or for ever; also accumulated."""
    expected, _ = cases.one_process(world_size)
    every = [(bucket_mb, accumulate) for bucket_mb in SIZES for accumulate in (False, True)]
    for results in with_comms(world_size, train_each, every):
        for form, state in zip(every, results, strict=True):
            assert farthest(state, expected) < 2e-6, form


def test_gradients_may_be_zeroed_in_place() -> None:
    """A branch without gradient then has one of zeros, so this is plain data parallelism of that."""
    states = with_comms(2, cases.train_bucketed, 1e-4, False, False)
    assert farthest(states[0], states[1]) == 0.0


@pytest.mark.parametrize("world_size", [2, 3])
def test_equals_ddp(world_size: int) -> None:
    """Same order of arithmetic up to how gloo cuts the sum, hence a tolerance of a few ulp."""
    for results in with_comms(world_size, beside_each, SIZES):
        for ours, theirs in results:
            assert farthest(ours, theirs) < 1e-6


def train_each(comms: Comms, every: list[tuple[float, bool]]) -> list[cases.State]:
    """Train with each (bucket size, accumulate), one after another on the same ranks."""
    return [cases.train_bucketed(comms, *form) for form in every]


def beside_each(comms: Comms, sizes: tuple[float, ...]) -> list[tuple[cases.State, cases.State]]:
    """Our wrapper beside PyTorch's for each bucket size."""
    return [cases.beside_ddp(comms, size) for size in sizes]


def test_a_branch_that_only_one_rank_uses_holds_nobody_up() -> None:
    """Every rank gets the one rank's share of its gradient; what nobody used keeps none."""
    results = with_comms(3, cases.uneven_branch)
    for has_gradient, gradients in results:
        assert has_gradient == [True, False, False]
        assert farthest(gradients, results[0][1]) == 0.0


def test_buckets_follow_backward_and_all_reduce_each_byte_once() -> None:
    """After the first step the head's parameters come first and those never used last."""
    for sent, expected, count, indices in with_comms(2, cases.bucketed_traffic):
        assert sent == expected
        assert count > 2
        assert sorted(index for bucket in indices for index in bucket) == list(range(9))
        # By number: the first layer 0 and 1, back 2, branch 3 and 4, never 5 and 6, the head 7 and 8.
        assert {7, 8} <= set(indices[0])
        assert {5, 6} & set(indices[-1])


def test_misuse_is_an_error_that_says_what_to_do() -> None:
    """Both would otherwise train on wrong gradients without a word."""
    assert "no_sync()" in with_comms(1, cases.second_gradient)[0]
    assert "finish()" in with_comms(1, cases.forgotten_finish)[0]


class Unwaited(BucketedDataParallel):
    """Broken: the last bucket is given back as this rank filled it."""

    def finish(self) -> None:
        """Forget what the all-reduce of the last bucket brought."""
        local = self.buckets[-1].buffer.clone()
        super().finish()
        for parameter in self.buckets[-1].parameters:
            if parameter.grad is not None:
                parameter.grad = local[: parameter.numel()].view_as(parameter)


class Undivided(BucketedDataParallel):
    """Broken: sums instead of averaging."""

    @property
    def _scale(self) -> float:
        return 1.0


class Unequal(BucketedDataParallel):
    """Broken: the replicas start as they were seeded."""

    def __init__(self, module: torch.nn.Module, comms: Comms, bucket_mb: float = 25.0) -> None:
        mine = {name: value.clone() for name, value in module.state_dict().items()}
        super().__init__(module, comms, bucket_mb)
        module.load_state_dict(mine)


class OneOff(BucketedDataParallel):
    """Broken: each slot of a bucket is read one element late."""

    def finish(self) -> None:
        """Shift every gradient by one element."""
        super().finish()
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                parameter.grad = parameter.grad.flatten().roll(1).view_as(parameter)


def train_broken(comms: Comms, kind: type[BucketedDataParallel]) -> dict[str, Tensor]:
    """Three plain steps under a wrapper of the class given."""
    torch.manual_seed(comms.rank)
    replica = kind(cases.Awkward(), comms, 1e-4)
    optimizer = cases.sgd(replica)
    for step in range(4):
        optimizer.zero_grad()
        x, y = cases.part(comms, step)
        torch.autograd.backward(cases.loss_of(replica, x, y, cases.uses_branch(step)))
        replica.finish()
        optimizer.step()
    return dict(replica.state_dict())


@pytest.mark.parametrize("kind", [Unwaited, Undivided, Unequal, OneOff])
def test_a_broken_wrapper_is_seen(kind: type[BucketedDataParallel]) -> None:
    """The comparison with one process must be able to fail."""
    expected, _ = cases.one_process(2, make=cases.sgd)
    assert max(farthest(state, expected) for state in with_comms(2, train_broken, kind)) > 1e-3


def test_the_unbroken_one_passes_the_same_comparison() -> None:
    """So that the mutations above fail for their own reason."""
    expected, _ = cases.one_process(2, make=cases.sgd)
    assert max(farthest(s, expected) for s in with_comms(2, train_broken, BucketedDataParallel)) < 2e-6


def test_a_bucket_knows_what_is_missing() -> None:
    """Without any process."""
    parameters = [torch.nn.Parameter(torch.zeros(2, 3)), torch.nn.Parameter(torch.zeros(4))]
    bucket = Bucket(parameters, [0, 1])
    parameters[0].grad = torch.ones(2, 3)
    bucket.arrive(0)
    assert bucket.missing == 1
    bucket.arrive(1)
    assert bucket.missing == 0
    bucket.buffer.fill_(9.0)
    bucket.pack(0.5)
    assert bucket.buffer.tolist() == [0.5] * 6 + [0.0] * 4 + [0.5, 0.0]
    parameters[1].grad = torch.ones(4)
    bucket.pack(0.5)
    assert bucket.buffer.tolist() == [0.5] * 12
