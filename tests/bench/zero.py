"""Step time and peak memory of the data-parallel wrappers beside PyTorch's own, on the language model.

    python -m tests.bench.zero [RANKS ...]

Time: the variants take turns, step by step, so that whatever else the machine does meets them alike; the
median step of each is printed, with its ratio to PyTorch's. Memory: the most bytes of tensors alive at once
in a step on rank 0, activations included, and the ratio to stage 0's. Without arguments: 2 ranks, then 4.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

from labs.context import Context
from labs.language_model import LanguageModel, LanguageModelConfig, next_byte_loss, parameter_count
from labs.parallel.bucketed import BucketedDataParallel
from labs.parallel.data import FlatDataParallel, NaiveDataParallel
from labs.parallel.fully_sharded import FullyShardedDataParallel
from labs.parallel.sharded_optimizer import ShardedOptimizer
from tests.bench.peak_bytes import PeakBytes
from tests.ranks import on_ranks, values

TIMED = LanguageModelConfig(dim=128, layers=4, heads=4, context=64)
WEIGHED = LanguageModelConfig(dim=256, layers=8, heads=4, context=16)
"""Large against its activations, so that the peak is one of parameters, gradients and state."""
BATCH = 4
ROUNDS = 12
WARM_UP = 3
Step = Callable[[Tensor], None]
Build = Callable[[Context, LanguageModelConfig], Step]


def loop(module: nn.Module, optimizer: Any, finish: Callable[[], None]) -> Step:
    """One training step of a wrapped module."""

    def step(inputs: Tensor) -> None:
        torch.autograd.backward(next_byte_loss(module(inputs), inputs))
        finish()
        optimizer.step()
        optimizer.zero_grad()

    return step


def model(config: LanguageModelConfig) -> LanguageModel:
    """The same weights wherever it is made."""
    torch.manual_seed(0)
    return LanguageModel(config)


def naive(ctx: Context, config: LanguageModelConfig) -> Step:
    """An all-reduce a parameter."""
    wrapped = NaiveDataParallel(model(config), ctx.comms)
    return loop(wrapped, AdamW(wrapped.parameters()), wrapped.finish)


def flat(ctx: Context, config: LanguageModelConfig) -> Step:
    """ZeRO-0: one all-reduce."""
    wrapped = FlatDataParallel(model(config), ctx.comms)
    return loop(wrapped, AdamW(wrapped.parameters()), wrapped.finish)


def bucketed(ctx: Context, config: LanguageModelConfig) -> Step:
    """All-reduces while backward runs."""
    wrapped = BucketedDataParallel(model(config), ctx.comms, bucket_mb=1.0)
    return loop(wrapped, AdamW(wrapped.parameters()), wrapped.finish)


def ddp(_ctx: Context, config: LanguageModelConfig) -> Step:
    """PyTorch's buckets."""
    wrapped = DistributedDataParallel(model(config), bucket_cap_mb=1.0)
    return loop(wrapped, AdamW(wrapped.parameters()), lambda: None)


def staged(stage: Literal[1, 2]) -> Build:
    """ZeRO-1 or 2."""

    def build(ctx: Context, config: LanguageModelConfig) -> Step:
        module = model(config)
        optimizer = ShardedOptimizer(
            module.parameters(), AdamW, ctx.comms, stage=stage, bucket_mb=1.0, lr=1e-3
        )
        return loop(module, optimizer, lambda: None)

    return build


def ours(ctx: Context, config: LanguageModelConfig) -> Step:
    """ZeRO-3."""
    wrapped = FullyShardedDataParallel(model(config), ctx.comms)
    return loop(wrapped, AdamW(wrapped.parameters()), wrapped.finish)


def theirs(ctx: Context, config: LanguageModelConfig) -> Step:
    """PyTorch's ZeRO-3."""
    module = model(config)
    mesh = init_device_mesh("cpu", (ctx.world_size,))
    for layer in module.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return loop(module, AdamW(module.parameters()), lambda: None)


DDP, FULLY_SHARD = "DistributedDataParallel", "fully_shard"
BUILDS: dict[str, Build] = {
    "naive": naive,
    "ZeRO-0, flat": flat,
    "bucketed": bucketed,
    DDP: ddp,
    "ZeRO-1": staged(1),
    "ZeRO-2": staged(2),
    "ZeRO-3, fully sharded": ours,
    FULLY_SHARD: theirs,
}


def batch(ctx: Context, config: LanguageModelConfig, rows: int) -> Tensor:
    """Bytes of this rank's own."""
    generator = torch.Generator().manual_seed(ctx.rank)
    return torch.randint(256, (rows, config.context), generator=generator)


def measure_time(ctx: Context) -> dict[str, list[float]]:
    """Milliseconds of each step by variant, the slowest rank's word; the variants take turns."""
    steps = {name: build(ctx, TIMED) for name, build in BUILDS.items()}
    inputs = batch(ctx, TIMED, BATCH)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(WARM_UP + ROUNDS):
        for name, step in steps.items():
            dist.barrier()
            start = time.perf_counter()
            step(inputs)
            dist.barrier()
            if turn >= WARM_UP:
                times[name].append((time.perf_counter() - start) * 1e3)
    return times


def measure_memory(ctx: Context) -> dict[str, int]:
    """Peak bytes of the second step by stage: in the first, the optimizer's state is only made."""
    inputs = batch(ctx, WEIGHED, 1)
    peaks: dict[str, int] = {}
    for name, build in BUILDS.items():
        if not name.startswith("ZeRO") and name != FULLY_SHARD:
            continue
        with PeakBytes() as count:
            step = build(ctx, WEIGHED)
            step(inputs)
            count.reset()
            step(inputs)
            peaks[name] = count.peak
        del step
    return peaks


def main(ranks: int) -> None:
    """Print a line a variant for time, and a line a stage for memory."""
    # The bandwidth lab's workers run without TORCH_DISTRIBUTED_DEBUG=DETAIL, as one measures.
    options: dict[str, Any] = {"lab": "bandwidth", "limit_s": 600.0, "timeout_s": 120.0}
    times = values(on_ranks(ranks, measure_time, **options))[0]
    medians = {name: statistics.median(steps) for name, steps in times.items()}
    print(f"{ranks} ranks, {ROUNDS} steps each, median ms a step")
    for name, median in medians.items():
        beside = FULLY_SHARD if name in ("ZeRO-3, fully sharded", FULLY_SHARD) else DDP
        print(f"  {name:24} {median:8.1f}   {median / medians[beside]:5.2f} x {beside}")
    peaks = values(on_ranks(ranks, measure_memory, **options))[0]
    psi = parameter_count(WEIGHED)
    print(f"{ranks} ranks, {psi / 1e6:.1f} M parameters, peak MB of tensors in a step")
    first = next(iter(peaks.values()))
    for name, peak in peaks.items():
        print(
            f"  {name:24} {peak / 1e6:8.1f}   {peak / first:5.2f} x ZeRO-0   {peak / psi:5.1f} B a parameter"
        )


if __name__ == "__main__":
    for given in sys.argv[1:] or ("2", "4"):
        main(int(given))
