"""A module in layers with everything awkward in it, and ways to train it fully sharded."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import backward
from torch.optim import AdamW
from torch.utils.checkpoint import checkpoint

from labs.comms import Comms
from labs.parallel.fully_sharded import FullyShardedDataParallel
from tests.labs_zero.cases import State, batch, loss_of, part, uses_branch


class Block(nn.Module):
    """A residual layer with a branch that only some steps use, and a parameter that no step does."""

    def __init__(self, frozen: bool) -> None:
        super().__init__()
        self.up = nn.Linear(7, 5)
        self.down = nn.Linear(5, 7, bias=False)
        self.branch = nn.Linear(7, 7)
        self.never = nn.Parameter(torch.ones(3))
        if frozen:
            self.up.requires_grad_(False)

    def forward(self, x: Tensor, branch: bool) -> Tensor:
        """(B, 7) to (B, 7)."""
        out: Tensor = x + self.down(torch.tanh(self.up(x)))
        if branch:
            out = out + torch.tanh(self.branch(out))
        return out


class Layered(nn.Module):
    """Layers, one half frozen, one weight tied between two of them, a buffer, and a head outside."""

    shift: Tensor

    def __init__(self, recompute: bool = False) -> None:
        super().__init__()
        self.recompute = recompute
        self.layers = nn.ModuleList([Block(False), Block(True), Block(False)])
        first, last = self.layers[0], self.layers[2]
        assert isinstance(first, Block)
        assert isinstance(last, Block)
        last.down.weight = first.down.weight
        self.head = nn.Linear(7, 3)
        self.register_buffer("shift", torch.randn(7))

    def forward(self, x: Tensor, branch: bool = False) -> Tensor:
        """(B, 7) to (B, 3)."""
        x = x + self.shift.to(x.dtype)
        for layer in self.layers:
            x = checkpoint(layer, x, branch, use_reentrant=False) if self.recompute else layer(x, branch)
        out: Tensor = self.head(x)
        return out


def one_process(world_size: int, clip: float = 0.0) -> State:
    """Train on the whole batch without any parallelism; seed 0 is rank 0's."""
    torch.manual_seed(0)
    module = Layered()
    optimizer = AdamW(module.parameters(), lr=0.01, weight_decay=0.1)
    for step in range(4):
        optimizer.zero_grad()
        backward(loss_of(module, *batch(step, world_size), uses_branch(step)))
        if clip:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
    return {name: value.detach().clone() for name, value in module.named_parameters()}


def train(
    comms: Comms,
    accumulate: str = "",
    clip: float = 0.0,
    recompute: bool = False,
    kind: type[FullyShardedDataParallel] = FullyShardedDataParallel,
    hybrid: bool = False,
    **options: Any,
) -> tuple[State, int, dict[str, Tensor]]:
    """Train fully sharded, ranks seeded differently; returns parameters, elements held, the last inference.

    `accumulate` is empty, `no_sync`, or `sync` (each half of the rows reduced at once).
    """
    torch.manual_seed(comms.rank)
    ours = comms
    if hybrid:
        ours, options["replicate"] = mesh(comms)
    sharded = kind(Layered(recompute), ours, **options)
    optimizer = AdamW(sharded.parameters(), lr=0.01, weight_decay=0.1)
    for step in range(4):
        optimizer.zero_grad()
        x, y = part(comms, step)
        if accumulate == "no_sync":
            with sharded.no_sync():
                backward(loss_of(sharded, x[:2], y[:2], uses_branch(step)) / 2)
            backward(loss_of(sharded, x[2:], y[2:], uses_branch(step)) / 2)
        elif accumulate == "sync":
            for rows in (slice(0, 2), slice(2, 4)):
                backward(loss_of(sharded, x[rows], y[rows], uses_branch(step)) / 2)
        else:
            backward(loss_of(sharded, x, y, uses_branch(step)))
        sharded.finish()
        if clip:
            sharded.clip_grad_norm(clip)
        optimizer.step()
    with torch.no_grad():
        inferred = sharded(batch(9, 1)[0])
    held = sum(parameter.numel() for parameter in sharded.parameters())
    whole_bytes = sum(shard.buffer.untyped_storage().nbytes() for shard in sharded.units)
    assert whole_bytes == 0, "something is still gathered"
    return sharded.full_parameters(), held, {"inferred": inferred}


def mesh(comms: Comms) -> tuple[Comms, Comms]:
    """Split the world into shards of 2 ranks; returns (shard, replicate) communicators of this rank."""
    world = comms.world_size
    shards = [[first, first + 1] for first in range(0, world, 2)]
    copies = [list(range(place, world, 2)) for place in (0, 1)]
    found: list[Comms] = []
    for name, rows in (("shard", shards), ("replicate", copies)):
        for row in rows:
            group = dist.new_group(row)
            if comms.rank in row:
                assert group is not None
                found.append(comms.over(group, f"{name}{row}"))
    return found[0], found[1]
