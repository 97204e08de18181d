"""Step time of the data-parallel wrappers beside PyTorch's own, on the language model, in one run.

    python -m tests.bench.zero [RANKS]

The variants take turns, step by step, so that whatever else the machine does meets them alike; the median
step of each is printed, with its ratio to PyTorch's.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

from labs.context import Context
from labs.language_model import LanguageModel, LanguageModelConfig, next_byte_loss
from labs.parallel.bucketed import BucketedDataParallel
from labs.parallel.data import NaiveDataParallel
from labs.parallel.fully_sharded import FullyShardedDataParallel
from labs.parallel.sharded_optimizer import ShardedOptimizer
from tests.ranks import on_ranks, values

CONFIG = LanguageModelConfig(dim=128, layers=4, heads=4, context=64)
BATCH = 4
ROUNDS = 12
WARM_UP = 3
Step = Callable[[Tensor, Tensor], None]


def loop(module: nn.Module, optimizer: Any, finish: Callable[[], None]) -> Step:
    """One training step of a wrapped module."""

    def step(inputs: Tensor, targets: Tensor) -> None:
        torch.autograd.backward(next_byte_loss(module(inputs), targets))
        finish()
        optimizer.step()
        optimizer.zero_grad()

    return step


def model() -> LanguageModel:
    """The same weights wherever it is made."""
    torch.manual_seed(0)
    return LanguageModel(CONFIG)


def variants(ctx: Context) -> dict[str, Step]:
    """Every wrapper around a model of its own."""
    naive = NaiveDataParallel(model(), ctx.comms)
    bucketed = BucketedDataParallel(model(), ctx.comms, bucket_mb=1.0)
    ddp = DistributedDataParallel(model(), bucket_cap_mb=1.0)
    staged = {stage: model() for stage in (1, 2)}
    sharded = FullyShardedDataParallel(model(), ctx.comms)
    theirs = model()
    mesh = init_device_mesh("cpu", (ctx.world_size,))
    for layer in theirs.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(theirs, mesh=mesh)
    made = {
        "naive": loop(naive, AdamW(naive.parameters()), naive.finish),
        "bucketed": loop(bucketed, AdamW(bucketed.parameters()), bucketed.finish),
        "DistributedDataParallel": loop(ddp, AdamW(ddp.parameters()), lambda: None),
    }
    for stage, module in staged.items():
        optimizer = ShardedOptimizer(
            module.parameters(), AdamW, ctx.comms, stage=2 if stage == 2 else 1, bucket_mb=1.0, lr=1e-3
        )
        made[f"ZeRO-{stage}"] = loop(module, optimizer, lambda: None)
    made["fully sharded"] = loop(sharded, AdamW(sharded.parameters()), sharded.finish)
    made["fully_shard"] = loop(theirs, AdamW(theirs.parameters()), lambda: None)
    return made


def measure(ctx: Context) -> dict[str, list[float]]:
    """Milliseconds of each step by variant, the slowest rank's word; the variants take turns."""
    made = variants(ctx)
    generator = torch.Generator().manual_seed(ctx.rank)
    inputs = torch.randint(256, (BATCH, CONFIG.context), generator=generator)
    times: dict[str, list[float]] = {name: [] for name in made}
    for turn in range(WARM_UP + ROUNDS):
        for name, step in made.items():
            dist.barrier()
            start = time.perf_counter()
            step(inputs, inputs)
            dist.barrier()
            if turn >= WARM_UP:
                times[name].append((time.perf_counter() - start) * 1e3)
    return times


def main(ranks: int) -> None:
    """Print a line a variant."""
    # The bandwidth lab's workers run without TORCH_DISTRIBUTED_DEBUG=DETAIL, as one measures.
    times = values(on_ranks(ranks, measure, lab="bandwidth", limit_s=300.0, timeout_s=60.0))[0]
    medians = {name: statistics.median(steps) for name, steps in times.items()}
    print(f"{ranks} ranks, {ROUNDS} steps each, median ms a step")
    for name, median in medians.items():
        beside = "fully_shard" if name in ("fully sharded", "fully_shard") else "DistributedDataParallel"
        print(f"  {name:24} {median:8.1f}   {median / medians[beside]:5.2f} x {beside}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
