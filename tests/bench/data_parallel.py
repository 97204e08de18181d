"""Step time of the data-parallel wrappers beside PyTorch's `DistributedDataParallel`, on the language model.

    python -m tests.bench.data_parallel [--ranks 2 4] [--rounds 20] [--bucket-mb 1]

The wrappers take turns, step by step, and who begins changes from round to round, so that whatever else the
machine does meets all of them alike. The median step of each is printed with its ratio to DDP's, by the clock
and by the CPU time of a rank with all its threads, which tells the same on a machine that is busy. Aim: no
more than 1.1 times DDP's step for the bucketed wrapper; exit code 1 where the clock says otherwise.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

from labs.context import Context
from labs.language_model import LanguageModel, LanguageModelConfig, next_byte_loss
from labs.parallel.bucketed import BucketedDataParallel
from labs.parallel.data import FlatDataParallel, NaiveDataParallel
from tests.bench.launch import idle_share
from tests.ranks import on_ranks, values

CONFIG = LanguageModelConfig(dim=128, layers=4, heads=4, context=64)
BATCH = 4
"""Sequences a rank."""
WARM_UP = 4
AIM = 1.1
THEIRS = "DistributedDataParallel"
Step = Callable[[Tensor], None]


class Took(NamedTuple):
    """Milliseconds of one step: by the clock, barrier to barrier, and of this rank's CPU."""

    wall: float
    cpu: float


def model() -> LanguageModel:
    """The same weights wherever it is made."""
    torch.manual_seed(0)
    return LanguageModel(CONFIG)


def loop(module: nn.Module, finish: Callable[[], None]) -> Step:
    """One training step of a wrapped module."""
    optimizer = AdamW(module.parameters())

    def step(tokens: Tensor) -> None:
        torch.autograd.backward(next_byte_loss(module(tokens), tokens))
        finish()
        optimizer.step()
        optimizer.zero_grad()

    return step


def variants(ctx: Context, bucket_mb: float) -> dict[str, Step]:
    """Every wrapper around a model of its own."""
    naive = NaiveDataParallel(model(), ctx.comms)
    flat = FlatDataParallel(model(), ctx.comms)
    bucketed = BucketedDataParallel(model(), ctx.comms, bucket_mb)
    with warnings.catch_warnings():
        # Without buffers in each step, as the others; torch 2.13 has renamed the option.
        warnings.simplefilter("ignore", FutureWarning)
        ddp = DistributedDataParallel(model(), bucket_cap_mb=bucket_mb, broadcast_buffers=False)
    return {
        "naive": loop(naive, naive.finish),
        "flat": loop(flat, flat.finish),
        "bucketed": loop(bucketed, bucketed.finish),
        THEIRS: loop(ddp, lambda: None),
    }


def measure(ctx: Context, rounds: int, bucket_mb: float) -> dict[str, list[Took]]:
    """What each step took by variant, after the warm-up."""
    made = variants(ctx, bucket_mb)
    generator = torch.Generator().manual_seed(ctx.rank)
    tokens = torch.randint(256, (BATCH, CONFIG.context), generator=generator)
    found: dict[str, list[Took]] = {name: [] for name in made}
    for turn in range(WARM_UP + rounds):
        names = list(made)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            dist.barrier()
            wall, cpu = time.perf_counter(), time.process_time()
            made[name](tokens)
            cpu = time.process_time() - cpu
            dist.barrier()
            if turn >= WARM_UP:
                found[name].append(Took((time.perf_counter() - wall) * 1e3, cpu * 1e3))
    return found


def table(ranks: int, rounds: int, bucket_mb: float) -> float:
    """Print a line a variant; return the bucketed wrapper's step as a multiple of DDP's."""
    # The bandwidth lab's workers run without TORCH_DISTRIBUTED_DEBUG=DETAIL, as one measures.
    runs = on_ranks(ranks, measure, rounds, bucket_mb, lab="bandwidth", limit_s=550.0, timeout_s=60.0)
    medians = {
        name: Took(*(statistics.median(column) for column in zip(*steps, strict=True)))
        for name, steps in values(runs)[0].items()
    }
    theirs = medians[THEIRS]
    for name, median in medians.items():
        sys.stdout.write(
            f"{ranks:>5}  {name:24}{median.wall:>9.1f}{median.wall / theirs.wall:>8.2f}"
            f"{median.cpu:>11.1f}{median.cpu / theirs.cpu:>8.2f}\n"
        )
    return medians["bucketed"].wall / theirs.wall


def main() -> None:
    """Print the table; exit code 1 where the aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=20, help="steps of each wrapper")
    parser.add_argument("--bucket-mb", type=float, default=1.0)
    options = parser.parse_args()
    sys.stdout.write(
        f"median ms a step of {options.rounds} ({idle_share():.0%} of the cores idle before)\n"
        f"{'ranks':>5}  {'wrapper':24}{'clock':>9}{'x DDP':>8}{'CPU':>11}{'x DDP':>8}\n"
    )
    ratios = [table(ranks, options.rounds, options.bucket_mb) for ranks in options.ranks]
    sys.exit(1 if max(ratios) > AIM else 0)


if __name__ == "__main__":
    main()
