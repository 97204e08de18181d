"""Pipeline parallel: a model cut into stages, trained by any schedule, against the same model on one process.

Reads: `spec.py` for the parameters, `theory.py` for what must come out. The engine is
`labs/parallel/pipeline.py`, the schedules are `labs/parallel/schedules.py`, the checks `proofs.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from labs import pacing
from labs.context import Context
from labs.parallel.pipeline import Pipeline
from labs.parallel.pipeline_mail import TwoWay, Wire
from labs.parallel.schedule_actions import Schedule
from labs.parallel.schedule_simulator import Costs
from labs.parallel.schedules import build
from labs.pipeline_parallel import checkpointing, proofs, theory, timing
from labs.pipeline_parallel.model import Alone, batch, build_stages, width_of
from labs.pipeline_parallel.plan import announce, measured_costs, paced_costs, tell_action
from labs.pipeline_parallel.spec import PipelineParams, num_layers, widths

if TYPE_CHECKING:
    from labs.pipeline_parallel.torch_engine import TorchPipeline

LEARNING_RATE = 0.1
FLOAT_BYTES = 4
Data = tuple[list[Tensor] | None, list[Tensor] | None]


def run(ctx: Context, params: PipelineParams) -> None:
    """Train `params.steps` steps by the schedule, and prove that it is the same as on one process."""
    schedule = build(params.schedule, ctx.world_size, params.micro_batches, params.num_chunks)
    layers, around = num_layers(params, ctx.world_size), widths(params)
    whole = build_stages(layers, schedule.num_stages, around, ctx.seed)
    alone = Alone(build_stages(layers, schedule.num_stages, around, ctx.seed), LEARNING_RATE)
    # From here on each rank draws its own random numbers: nothing may depend on ranks that are seeded alike.
    torch.manual_seed(ctx.seed + 1 + ctx.rank)
    stages = {stage: whole[stage].to(ctx.device) for stage in schedule.stages_of(ctx.rank)}
    before = [parameter.detach().clone() for module in stages.values() for parameter in module.parameters()]
    _tell_shards(ctx, schedule, layers)
    pace = pacing.resolve(params.pace_ms, ctx.world_size, pacing.cores(), ctx.device.type)
    # Each stage's forward takes `pace`, and a rank's full depth is as many stages as it holds.
    costs = paced_costs(pace * schedule.chunks, params.backward_ratio, params.checkpoint == "full")
    ctx.metric("paced", pace, "ms")
    plan = costs
    if costs is not None:
        announce(ctx, schedule, costs)
    wire = _wire(ctx)
    engine = _engine(ctx, params, schedule, stages, wire, costs)
    optimizer = torch.optim.SGD((p for m in stages.values() for p in m.parameters()), lr=LEARNING_RATE)
    proof = proofs.Proof(ctx, schedule)
    for step in range(params.steps):
        ctx.step(step, params.steps)
        data = batch(
            step, schedule.num_micro_batches, params.micro_batch_size, _ends(schedule, around), ctx.seed
        )
        optimizer.zero_grad()
        ctx.comms.barrier()
        sent = ctx.comms.traffic.total("send")
        losses = engine.step(*_share(ctx, schedule, data))
        proof.mine.sent_bytes = ctx.comms.traffic.total("send") - sent
        if losses:
            ctx.scalar("loss", float(torch.stack(losses).mean()))
        proof.after_step(engine, losses, alone.step(*data), stages, alone)
        with ctx.span("optimizer", "step"):
            optimizer.step()
        alone.update()
        if plan is None:
            plan = _measured(proof, schedule)
            announce(ctx, schedule, plan)
    found = proof.finish(engine, stages, alone, before)
    if ctx.rank == 0:
        proofs.judge_equality(ctx, found)
        proofs.judge_order(ctx, schedule, found)
        assert plan is not None
        steps = timing.timed_steps([one.traces for one in found])
        timing.tell_time(ctx, schedule, plan, steps)
        # Torch's engine waits for its messages between actions as it likes: told, but not judged.
        if costs is not None and params.engine == "own":
            timing.judge_bubble(ctx, schedule, costs, [steps])
        if params.engine == "own":
            proofs.judge_bytes(ctx, found, _expected_bytes(params, schedule, around))
    if params.checkpoint == "full":
        checkpointing.judge(ctx, schedule, stages, wire, mse_loss, _share(ctx, schedule, data))


def _wire(ctx: Context) -> Wire:
    """A group of its own for messages: sends count in a group's sequence of calls, and ranks send unequally.

    Under NCCL there is one for each direction, see `TwoWay`.
    """
    if ctx.backend != "nccl":
        return ctx.comms.over(dist.new_group(), "pipeline")
    groups = {name: ctx.comms.over(dist.new_group(), name) for name in ("up", "down")}
    return TwoWay(ctx.rank, groups["up"], groups["down"])


def _engine(
    ctx: Context,
    params: PipelineParams,
    schedule: Schedule,
    stages: Mapping[int, nn.Module],
    wire: Wire,
    costs: Costs | None,
) -> Pipeline | TorchPipeline:
    watch = partial(tell_action, ctx)
    around = widths(params)
    if params.engine == "own":
        checkpoint = params.checkpoint == "full"
        pipeline = Pipeline(
            schedule, ctx.rank, stages, wire, mse_loss, checkpoint=checkpoint, pace=costs, watch=watch
        )
        # Before the first step, whose bytes are then its own.
        pipeline.agree(torch.zeros(params.micro_batch_size, width_of(around, 0), device=ctx.device))
        return pipeline
    # Loading torch's pipelining takes seconds; only those who ask for it wait.
    from labs.pipeline_parallel.torch_engine import TorchPipeline

    shapes = {
        stage: (params.micro_batch_size, width_of(around, stage)) for stage in range(schedule.num_stages + 1)
    }
    return TorchPipeline(
        schedule, stages, shapes, mse_loss, ctx.device, dist.new_group(), pace=costs, watch=watch
    )


def _ends(schedule: Schedule, around: tuple[int, ...]) -> tuple[int, int]:
    """The widths of what enters the first stage and of what leaves the last."""
    return width_of(around, 0), width_of(around, schedule.num_stages)


def _share(ctx: Context, schedule: Schedule, data: tuple[list[Tensor], list[Tensor]]) -> Data:
    """The inputs on the rank with the first stage, the targets on the one with the last."""
    inputs, targets = data
    first = schedule.rank_of(0) == ctx.rank
    last = schedule.rank_of(schedule.num_stages - 1) == ctx.rank
    return (
        [x.to(ctx.device) for x in inputs] if first else None,
        [y.to(ctx.device) for y in targets] if last else None,
    )


def _tell_shards(ctx: Context, schedule: Schedule, layers: int) -> None:
    """Which layers this rank holds, chunk by chunk."""
    each = layers // schedule.num_stages
    for chunk, stage in enumerate(schedule.stages_of(ctx.rank)):
        name = "layers" if schedule.chunks == 1 else f"layers, chunk {chunk}"
        ctx.shard(name, "parameter", (layers,), [(stage * each, (stage + 1) * each)])


def _measured(proof: proofs.Proof, schedule: Schedule) -> Costs:
    """The costs of the first step's actions, the mean over all ranks, so that all make the same plan."""
    gathered: list[proofs.Evidence | None] = [None] * schedule.num_ranks
    dist.all_gather_object(gathered, proof.mine)
    found = [evidence for evidence in gathered if evidence is not None]
    return measured_costs(timing.timed_steps([one.traces for one in found])[0], schedule.chunks)


def _expected_bytes(params: PipelineParams, schedule: Schedule, around: tuple[int, ...]) -> int:
    """The bytes of a step by theory; a stage and the next on one rank (the turn of a V) send nothing."""
    crossing = [
        params.micro_batch_size * width_of(around, stage) * FLOAT_BYTES
        for stage in range(1, schedule.num_stages)
        if schedule.rank_of(stage - 1) != schedule.rank_of(stage)
    ]
    return theory.step_bytes(crossing, schedule.num_micro_batches)
