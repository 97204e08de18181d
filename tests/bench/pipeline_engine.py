"""A step of the own pipeline engine beside torch's for the same schedule and stages, unpaced, in one run.

    python -m tests.bench.pipeline_engine [RANKS [MICRO_BATCHES]]

Torch's is `torch.distributed.pipelining` as it comes, without the lab's watching. The own engine counts its
activations and times its actions, as it always does. The two take turns, step by step, so that whatever else
the machine does meets them alike; the median step of each is printed, with the ratio. Aim: within 1.1.
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
from torch.distributed import pipelining
from torch.nn.functional import mse_loss

from labs.context import Context
from labs.parallel.pipeline import Pipeline
from labs.parallel.schedule_actions import Schedule
from labs.parallel.schedules import build
from labs.pipeline_parallel.model import build_stages
from labs.pipeline_parallel.torch_engine import CLASSES
from tests.ranks import on_ranks, values

WIDTH = 256
ROWS = 64
"""Of a micro-batch."""
LAYERS_A_STAGE = 2
WARM_UP = 5
ROUNDS = 40
AIM = 1.1
Step = Callable[[], None]
Data = tuple[list[Tensor], list[Tensor]]


class Wire:
    """Bare sends and receives: what both engines send is the same, and nobody's spans are measured."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group

    def isend(self, tensor: Tensor, dst: int, **_fields: Any) -> Any:
        """Start to send."""
        return dist.isend(tensor, group=self._group, group_dst=dst)

    def irecv(self, tensor: Tensor, src: int, **_fields: Any) -> Any:
        """Start to receive."""
        return dist.irecv(tensor, group=self._group, group_src=src)


def stages_of(schedule: Schedule, rank: int) -> dict[int, nn.Module]:
    """This rank's stages, the same weights for both engines."""
    layers = LAYERS_A_STAGE * schedule.num_stages
    whole = build_stages(layers, schedule.num_stages, (WIDTH,), seed=0)
    return {stage: whole[stage] for stage in schedule.stages_of(rank)}


def own(ctx: Context, schedule: Schedule, data: Data, group: dist.ProcessGroup) -> Step:
    """A step of the own engine."""
    stages = stages_of(schedule, ctx.rank)
    pipeline = Pipeline(schedule, ctx.rank, stages, Wire(group), mse_loss)
    inputs, targets = data
    first, last = 0 in stages, schedule.num_stages - 1 in stages

    def step() -> None:
        for stage in stages.values():
            stage.zero_grad()
        pipeline.step(inputs if first else None, targets if last else None)

    return step


def theirs(ctx: Context, schedule: Schedule, data: Data, group: dist.ProcessGroup) -> Step:
    """A step of torch's."""
    stages = stages_of(schedule, ctx.rank)
    made = [
        pipelining.PipelineStage(
            module,
            stage,
            schedule.num_stages,
            torch.device("cpu"),
            group=group,
            input_args=torch.empty(ROWS, WIDTH, requires_grad=stage > 0),
            output_args=torch.empty(ROWS, WIDTH, requires_grad=True),
        )
        for stage, module in stages.items()
    ]
    kind = CLASSES[schedule.name]
    one = made[0] if schedule.chunks == 1 else made
    runtime: Any = kind(one, schedule.num_micro_batches, loss_fn=mse_loss)
    inputs, targets = torch.cat(data[0]), torch.cat(data[1])
    first, last = 0 in stages, schedule.num_stages - 1 in stages

    def step() -> None:
        for stage in stages.values():
            stage.zero_grad()
        given = (inputs,) if first else ()
        if last:
            runtime.step(*given, target=targets, losses=[])
        else:
            runtime.step(*given)

    return step


def measure(ctx: Context, names: list[str], micro_batches: int) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of each step, by schedule and engine, from barrier to barrier."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = ROWS * micro_batches
    data = [list(torch.randn(rows, WIDTH).chunk(micro_batches)) for _ in range(2)]
    times: dict[str, dict[str, list[float]]] = {}
    for name in names:
        schedule = build(name, ctx.world_size, micro_batches)
        engines = {
            "own": own(ctx, schedule, (data[0], data[1]), dist.new_group()),
            "torch": theirs(ctx, schedule, (data[0], data[1]), dist.new_group()),
        }
        times[name] = {engine: [] for engine in engines}
        for turn in range(WARM_UP + ROUNDS):
            for engine, step in engines.items():
                dist.barrier()
                start = time.perf_counter()
                step()
                dist.barrier()
                if turn >= WARM_UP:
                    times[name][engine].append((time.perf_counter() - start) * 1e3)
    return times


def main(ranks: int, micro_batches: int) -> None:
    """Print a line a schedule."""
    names = [name for name, kind in CLASSES.items() if kind is not None]
    # The bandwidth lab's workers run without TORCH_DISTRIBUTED_DEBUG=DETAIL, as one measures.
    run = on_ranks(ranks, measure, names, micro_batches, lab="bandwidth", limit_s=500.0, timeout_s=60.0)
    print(f"{ranks} ranks, {micro_batches} micro-batches of {ROWS}x{WIDTH}, median ms of {ROUNDS} steps")
    ratios = []
    for name, engines in values(run)[0].items():
        mine, other = (statistics.median(engines[engine]) for engine in ("own", "torch"))
        ratios.append(mine / other)
        print(f"  {name:16} own {mine:8.1f}   torch {other:8.1f}   ratio {ratios[-1]:5.2f}")
    print(f"  median ratio {statistics.median(ratios):.2f}, aim {AIM}")


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:3]]
    main(*(given + [2, 8][len(given) :]))
