"""What the ranks of these tests run: a module with every awkward thing in it, and ways to train it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import backward
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, AdamW, Optimizer

from labs.comms import Comms
from labs.parallel.bucketed import BucketedDataParallel
from labs.parallel.sharded_optimizer import ShardedOptimizer

ROWS = 4
"""Rows of the batch a rank."""

State = dict[str, Tensor]


class Awkward(nn.Module):
    """Odd sizes, tied weights, a frozen layer, a buffer, and a branch that only some steps (or ranks) use."""

    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(7, 5)
        self.back = nn.Linear(5, 7, bias=False)
        self.tied = nn.Linear(7, 5, bias=False)
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.branch = nn.Linear(5, 5)
        self.never = nn.Linear(3, 3)
        self.head = nn.Linear(5, 3)
        self.tied.weight = self.first.weight
        self.register_buffer("shift", torch.randn(5))

    def forward(self, x: Tensor, branch: bool = False) -> Tensor:
        """(B, 7) to (B, 3)."""
        hidden = torch.tanh(self.first(x)) + self.shift
        hidden = self.frozen(hidden) + self.tied(torch.tanh(self.back(hidden)))
        if branch:
            hidden = hidden + self.branch(torch.tanh(hidden))
        out: Tensor = self.head(hidden)
        return out


def batch(step: int, world_size: int) -> tuple[Tensor, Tensor]:
    """The whole batch of a step, alike wherever it is made."""
    generator = torch.Generator().manual_seed(1000 + step)
    return (
        torch.randn(ROWS * world_size, 7, generator=generator),
        torch.randn(ROWS * world_size, 3, generator=generator),
    )


def part(comms: Comms, step: int) -> tuple[Tensor, Tensor]:
    """This rank's rows of the batch."""
    x, y = batch(step, comms.world_size)
    rows = slice(comms.rank * ROWS, (comms.rank + 1) * ROWS)
    return x[rows], y[rows]


def uses_branch(step: int) -> bool:
    """The branch gets its first gradient in step 1 and none in step 2, when it has state."""
    return step % 2 == 1


def loss_of(module: Callable[..., Tensor], x: Tensor, y: Tensor, branch: bool) -> Tensor:
    """Mean squared error."""
    return (module(x, branch) - y).square().mean()


def adamw(module: nn.Module) -> Optimizer:
    """An optimizer for which a gradient of zero and none at all differ: it decays weights."""
    return AdamW(module.parameters(), lr=0.01, weight_decay=0.1)


def sgd(module: nn.Module) -> Optimizer:
    """An optimizer that a factor on the gradients does not escape, as it escapes Adam."""
    return SGD(module.parameters(), lr=0.1, momentum=0.9)


def one_process(
    world_size: int, steps: int = 4, clip: float = 0.0, make: Callable[[nn.Module], Optimizer] = adamw
) -> tuple[State, dict[str, Any]]:
    """Train on the whole batch without any parallelism; seed 0 is rank 0's."""
    torch.manual_seed(0)
    module = Awkward()
    optimizer = make(module)
    for step in range(steps):
        optimizer.zero_grad()
        backward(loss_of(module, *batch(step, world_size), uses_branch(step)))
        if clip:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
    return {name: value.clone() for name, value in module.state_dict().items()}, optimizer.state_dict()


def train_bucketed(comms: Comms, bucket_mb: float, accumulate: bool, set_to_none: bool = True) -> State:
    """Train with `BucketedDataParallel`, each rank seeded differently."""
    torch.manual_seed(comms.rank)
    replica = BucketedDataParallel(Awkward(), comms, bucket_mb)
    optimizer = adamw(replica)
    for step in range(4):
        optimizer.zero_grad(set_to_none)
        x, y = part(comms, step)
        if accumulate:
            with replica.no_sync():
                backward(loss_of(replica, x[:2], y[:2], uses_branch(step)) / 2)
            # The branch has its gradient from the first half only.
            backward(loss_of(replica, x[2:], y[2:], uses_branch(step)) / 2)
        else:
            backward(loss_of(replica, x, y, uses_branch(step)))
        replica.finish()
        optimizer.step()
    return dict(replica.state_dict())


def uneven_branch(comms: Comms) -> tuple[list[bool], State]:
    """Only rank 0 uses the branch; nobody may wait for the others' gradient. Returns who has gradients."""
    torch.manual_seed(comms.rank)
    replica = BucketedDataParallel(Awkward(), comms, bucket_mb=1e-4)
    for step in range(2):
        replica.zero_grad()
        backward(loss_of(replica, *part(comms, step), comms.rank == 0))
        replica.finish()
    module = replica.module
    assert isinstance(module, Awkward)
    return (
        [p.grad is not None for p in (module.branch.weight, module.never.weight, module.frozen.weight)],
        {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None},
    )


def beside_ddp(comms: Comms, bucket_mb: float) -> tuple[State, State]:
    """The same three steps under our wrapper and under PyTorch's; returns both results."""
    results: list[State] = []
    for ours in (True, False):
        torch.manual_seed(comms.rank)
        module = Awkward()
        wrapped: nn.Module
        options: dict[str, Any] = {"bucket_cap_mb": bucket_mb, "find_unused_parameters": True}
        if ours:
            wrapped = BucketedDataParallel(module, comms, bucket_mb)
        else:
            # DDP crashes on a group made with TORCH_DISTRIBUTED_DEBUG=DETAIL (torch 2.13, gloo).
            dist.set_debug_level(dist.DebugLevel.OFF)  # type: ignore[attr-defined]
            options["process_group"] = dist.new_group()
            wrapped = DistributedDataParallel(module, **options)
        optimizer = SGD(module.parameters(), lr=0.1, momentum=0.9)
        for step in range(3):
            optimizer.zero_grad()
            backward(loss_of(wrapped, *part(comms, step), uses_branch(step)))
            if isinstance(wrapped, BucketedDataParallel):
                wrapped.finish()
            optimizer.step()
        results.append({name: value.clone() for name, value in module.state_dict().items()})
    return results[0], results[1]


def bucketed_traffic(comms: Comms) -> tuple[int, int, int, list[list[int]]]:
    """Returns all-reduced bytes of two steps, bytes by the buckets, how many, and their parameters."""
    torch.manual_seed(0)
    replica = BucketedDataParallel(Awkward(), comms, bucket_mb=2e-4)
    for step in range(2):
        replica.zero_grad()
        backward(loss_of(replica, *part(comms, step), True))
        replica.finish()
    sent = comms.traffic.total("all_reduce")
    return (
        sent,
        2 * sum(replica.bucket_bytes),
        len(replica.buckets),
        [bucket.indices for bucket in replica.buckets],
    )


def second_gradient(comms: Comms) -> str:
    """Two backwards without `no_sync`: returns the error's message."""
    replica = BucketedDataParallel(Awkward(), comms)
    x, y = part(comms, 0)
    first, second = loss_of(replica, x, y, False), loss_of(replica, x, y, False)
    backward(first)
    try:
        backward(second)
    except RuntimeError as error:
        return str(error)
    return ""


def forgotten_finish(comms: Comms) -> str:
    """A forward while gradients are unfinished: returns the error's message."""
    replica = BucketedDataParallel(Awkward(), comms)
    x, y = part(comms, 0)
    backward(loss_of(replica, x, y, False))
    try:
        loss_of(replica, x, y, False)
    except RuntimeError as error:
        return str(error)
    return ""


def train_sharded(
    comms: Comms, stage: int, bucket_mb: float, accumulate: bool, clip: float = 0.0
) -> tuple[State, dict[str, Any], list[int]]:
    """Train with `ShardedOptimizer`; returns parameters, the assembled state, elements of state a tensor."""
    torch.manual_seed(comms.rank)
    module = Awkward()
    comms.broadcast(module.shift)
    assert stage in (1, 2)
    optimizer = ShardedOptimizer(
        module.parameters(),
        AdamW,
        comms,
        stage=2 if stage == 2 else 1,
        bucket_mb=bucket_mb,
        lr=0.01,
        weight_decay=0.1,
    )
    for step in range(4):
        optimizer.zero_grad()
        x, y = part(comms, step)
        if accumulate:
            for rows in (slice(0, 2), slice(2, 4)):
                backward(loss_of(module, x[rows], y[rows], uses_branch(step)) / 2)
                if stage == 2:
                    optimizer.finish()
        else:
            backward(loss_of(module, x, y, uses_branch(step)))
        if clip:
            optimizer.clip_grad_norm(clip)
        optimizer.step()
    assert optimizer.inner is not None
    held = [values["exp_avg"].numel() for values in optimizer.inner.state.values()]
    return dict(module.state_dict()), optimizer.state_dict(), held


def sharded_groups(comms: Comms, stage: int) -> tuple[State, State]:
    """Two groups, one added later, a scheduler: returns the sharded and the plain optimizer's results."""
    results: list[State] = []
    for sharded in (True, False):
        torch.manual_seed(0)
        module = Awkward()
        first: list[dict[str, Any]] = [
            {"params": list(module.first.parameters()), "lr": 0.03},
            {"params": [module.back.weight]},
        ]
        late = {"params": list(module.head.parameters()), "lr": 0.02, "weight_decay": 0.0}
        optimizer: Optimizer
        if sharded:
            optimizer = ShardedOptimizer(first, AdamW, comms, stage=2 if stage == 2 else 1, lr=0.01)
        else:
            optimizer = AdamW(first, lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
        for step in range(4):
            if step == 2:
                optimizer.add_param_group(dict(late))
                scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
            optimizer.zero_grad()
            x, y = part(comms, step) if sharded else batch(step, comms.world_size)
            backward(loss_of(module, x, y, False))
            optimizer.step()
            scheduler.step()
        results.append({name: value.clone() for name, value in module.state_dict().items()})
    return results[0], results[1]


def resume(comms: Comms, stage: int, saved: dict[str, Any], state: State) -> State:
    """Load a plain optimizer's state into a sharded one and train one step further."""
    module = Awkward()
    module.load_state_dict(state)
    optimizer = ShardedOptimizer(
        module.parameters(), AdamW, comms, stage=2 if stage == 2 else 1, bucket_mb=1e-4, lr=9.0
    )
    optimizer.load_state_dict(saved)
    backward(loss_of(module, *part(comms, 4), True))
    optimizer.step()
    return dict(module.state_dict())
