"""The 3D lab: one model on a mesh of three axes, trained beside the same model on one process.

Reads: `spec.py` for the parameters, `theory.py` for the bytes. The composition is `labs/parallel/three_d.py`,
on top of the pipeline engine and the tensor parallel layers; the checks are `proofs.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from labs import pacing
from labs.context import Context
from labs.language_model import LanguageModel, LanguageModelConfig, next_byte_loss
from labs.model_sizes import hidden_width
from labs.models import DeepMLP
from labs.parallel.mesh_axes import MeshAxes, build_axes
from labs.parallel.pipeline import Loss
from labs.parallel.schedule_actions import Schedule
from labs.parallel.schedules import build
from labs.parallel.stage_models import LanguageModelStage, Stage, cut, name_in_whole
from labs.parallel.tensor import slices_of
from labs.parallel.tensor_models import split_language_loss
from labs.parallel.three_d import ThreeD
from labs.pipeline_parallel.plan import paced_costs, tell_action
from labs.three_d import plan, proofs, theory
from labs.three_d.alone import Alone, Data, micro_batches_of, share, text_or_noise
from labs.three_d.spec import BACKWARD_RATIO, ThreeDParams


def run(ctx: Context, params: ThreeDParams) -> None:
    """Train `params.steps` steps on the mesh, and prove that it is the same as on one process."""
    schedule = build(params.schedule, params.pp, params.micro_batches, params.num_chunks)
    job = job_of(params, schedule)
    axes = build_axes(ctx.comms, params.shape, job.ends if job.copies_apart else None)
    ctx.place(dict(zip(theory.AXES, axes.place, strict=True)))
    tell_links(ctx, params, job)
    whole = build_model(params, ctx.seed).to(ctx.device)
    stages = cut(
        copy.deepcopy(whole), schedule.num_stages, schedule.stages_of(axes.pp.rank), axes.tp, job.sequence
    )
    # From here on each rank draws its own random numbers: nothing may depend on ranks that are seeded alike.
    torch.manual_seed(ctx.seed + 1 + ctx.rank)
    tell_shards(ctx, stages, axes)
    pace = pacing.resolve(params.pace_ms, ctx.world_size, pacing.cores(), ctx.device.type)
    costs = paced_costs(pace * schedule.chunks, BACKWARD_RATIO, checkpoint=False)
    ctx.metric("paced", pace, "ms")
    planned = costs
    if costs is not None:
        plan.announce(ctx, schedule, costs, axes.pp.rank)
    engine = ThreeD(
        axes,
        schedule,
        stages,
        loss_of(params, axes),
        tied=_copy_apart(stages, axes),
        sequence=job.sequence,
        pace=costs,
        watch=partial(tell_action, ctx),
    )
    optimizer = torch.optim.SGD(engine.parameters(), lr=params.lr)
    alone = Alone(whole, whole_loss(params), params.lr, params.clip)
    batches = text_or_noise(ctx.seed, params)
    proof = proofs.Proof(ctx, schedule, engine, alone)
    inputs, _ = _own_part(ctx, params, schedule, axes, batches(0))
    engine.agree(inputs[0] if inputs else None)
    last = min(params.steps, proofs.COMPARED_STEPS)
    for step in range(params.steps):
        ctx.step(step, params.steps)
        data = batches(step)
        optimizer.zero_grad()
        repeated = step < last
        expected = alone.backward(data) if repeated else None
        ctx.comms.barrier()
        proof.begin()
        losses = engine.step(*_own_part(ctx, params, schedule, axes, data))
        if expected is not None:
            proof.gradients(losses, expected)
        proof.norms(engine.clip(params.clip), alone.clip() if repeated else None)
        with ctx.span("optimizer", "SGD"):
            optimizer.step()
        if repeated:
            alone.update()
        if step + 1 == last:
            proof.parameters()
        if losses:
            ctx.scalar("loss", float(torch.stack(losses).mean()))
        if planned is None:
            planned = plan.measured(ctx, engine.pipeline.trace, schedule)
            plan.announce(ctx, schedule, planned, axes.pp.rank)
    proof.finish(job, costs)


def job_of(params: ThreeDParams, schedule: Schedule) -> theory.Job:
    """Return the sizes as theory wants them."""
    return theory.Job(
        shape=params.shape,
        chunks=schedule.chunks,
        placement=schedule.placement,
        model=params.model,
        layers=params.num_layers,
        dim=params.dim,
        hidden=hidden_width(params.dim),
        context=params.context,
        micro_batch_size=params.micro_batch_size,
        micro_batches=params.micro_batches,
        sequence=params.sequence_parallel,
    )


def build_model(params: ThreeDParams, seed: int) -> nn.Module:
    """Return the whole model, the same on every rank; torch's own random numbers are left as they were."""
    if params.model == "mlp":
        return DeepMLP(params.dim, params.num_layers, seed=seed)
    config = LanguageModelConfig(
        params.dim, params.num_layers, params.heads, params.context, tie_embeddings=True
    )
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return LanguageModel(config)


def loss_of(params: ThreeDParams, axes: MeshAxes) -> Loss:
    """Return the loss of a micro-batch on the last stage, whose logits may be split."""
    if params.model == "lm" and params.tp > 1:
        return lambda logits, targets: split_language_loss(logits, targets, axes.tp)
    return whole_loss(params)


def whole_loss(params: ThreeDParams) -> Loss:
    """Return the loss as one process has it."""
    return next_byte_loss if params.model == "lm" else nn.functional.mse_loss


def _copy_apart(stages: Mapping[int, Stage], axes: MeshAxes) -> nn.Parameter | None:
    """This rank's copy of the tied embedding, where another rank holds one too."""
    if axes.embedding is None:
        return None
    return next(p for stage in stages.values() if isinstance(stage, LanguageModelStage) for p in stage.tied)


def _own_part(
    ctx: Context, params: ThreeDParams, schedule: Schedule, axes: MeshAxes, data: Data
) -> tuple[list[Tensor] | None, list[Tensor] | None]:
    """This replica's micro-batches: inputs for the first stage's ranks, targets for the last one's."""
    inputs, targets = (
        micro_batches_of(share(whole, axes.place[0], params.dp), params.micro_batches) for whole in data
    )
    first = schedule.rank_of(0) == axes.pp.rank
    last = schedule.rank_of(schedule.num_stages - 1) == axes.pp.rank
    return (
        [x.to(ctx.device) for x in inputs] if first else None,
        [y.to(ctx.device) for y in targets] if last else None,
    )


def tell_shards(ctx: Context, stages: Mapping[int, Stage], axes: MeshAxes) -> None:
    """Tell which slice of each matrix this rank holds."""
    for module in stages.values():
        dims = slices_of(module)
        for name, parameter in module.named_parameters():
            shape = list(parameter.shape)
            slices = [(0, size) for size in shape]
            if name in dims:
                dim, own = dims[name], shape[dims[name]]
                slices[dim] = (axes.tp.rank * own, (axes.tp.rank + 1) * own)
                shape[dim] = own * axes.tp.world_size
            whole = name_in_whole(name)
            ctx.shard(whole, "parameter", shape, slices, dtype="float32", nbytes=parameter.nbytes)


def tell_links(ctx: Context, params: ThreeDParams, job: theory.Job) -> None:
    """Say which groups would cross nodes of `ranks_per_node` ranks, and what each moves in a step."""
    if ctx.rank != 0:
        return
    links = theory.links(job, params.ranks_per_node or ctx.world_size)
    moved = theory.total_bytes(job)
    for name, crosses in links.items():
        ctx.metric(f"{name}.crosses_nodes", float(crosses))
        ctx.metric(f"{name}.bytes_per_step_theory", moved[name], "B")
    if links["tp"]:
        ctx.say(theory.warning(params.tp, params.ranks_per_node, moved))
