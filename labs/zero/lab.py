"""The zero lab: train at one ZeRO stage, watch what is held, gathered and freed, and prove it is the same."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from labs.comms import Comms
from labs.context import Context
from labs.data_parallel.reads import check_reads, tell_reads
from labs.data_parallel.theory import loss_weight, rows_of
from labs.parallel.shard_unit import ShardUnit
from labs.parallel.units import layers_of
from labs.zero import proofs, theory
from labs.zero.alone import train_alone
from labs.zero.build import make_stage
from labs.zero.learning import check_learned, loss_again
from labs.zero.spec import ZeroParams, group_of
from labs.zero.stages import Stage
from labs.zero.task import Batch, Task, task_of


@dataclass
class Journal:
    """What this rank noted while it trained."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    """Of the whole gradient before it was clipped, by step; empty where nothing clips."""
    memory: dict[str, dict[str, int]] = field(default_factory=dict)
    """By moment, by kind, in bytes."""
    first_gradients: list[tuple[str, int, int, Tensor]] = field(default_factory=list)
    """(name, start, stop, mean gradient) of what this rank optimizes, in step 0."""
    sent: dict[str, float] = field(default_factory=dict)
    """Bytes sent in the last step, by axis."""


def run(ctx: Context, params: ZeroParams) -> None:
    """Seed apart, start equal, train sharded; then train one process and compare."""
    proof = Comms(ctx.recorder, name="proof", ledger=ctx.comms.ledger)
    task = task_of(ctx, params)
    module = task.build(ctx.seed + 1 + ctx.rank)
    start = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    for value in start.values():
        proof.broadcast(value)
    setting = setting_of(params, module, ctx.world_size)
    drawn = [(weakref.ref(parameter), parameter.nbytes) for parameter in module.parameters()]
    stage = make_stage(ctx, params, task, module, partial(tell_unit, ctx), partial(tell_rows, ctx))
    tell_held(ctx, stage, setting, "parameter")
    if ctx.rank == 0:
        tell_theory(ctx, setting)
    journal = train(ctx, params, task, stage, setting)
    after = stage.full_parameters()
    proofs.check_memory(ctx, setting, journal, proof)
    if theory.SHARDED[params.stage] == 3:
        gc.collect()
        kept = sum(size for parameter, size in drawn if parameter() is not None)
        proofs.check_freed(ctx, kept, proof)
    proofs.check_traffic(ctx, setting, journal)
    if params.offload:
        tensors = [*(held.tensor for held in stage.held()), *stage.state()]
        proofs.check_home(ctx, sum(tensor.device.type != "cpu" for tensor in tensors), proof)
    if task.reader is not None:
        check_reads(ctx, task.reader, proof)
    check_learned(ctx, params, journal.losses[0], loss_again(ctx, task, stage), proof)
    lone = train_alone(ctx, params, task, start, proof)
    proofs.check_equal(ctx, params, setting, journal, proof, lone)
    proofs.check_parameters(ctx, params, start, after, lone.parameters, proof)


def setting_of(params: ZeroParams, module: nn.Module, world_size: int) -> theory.Setting:
    """Return what theory needs to know of the model and of how it is cut."""
    group = group_of(params, world_size)
    each = [sum(p.numel() for p in layer.parameters()) for layer in layers_of(module)]
    layers = sum(each)
    total = sum(p.numel() for p in module.parameters())
    by_rows = theory.rows_part((tuple(p.shape) for p in module.parameters()), group)
    return theory.Setting(
        stage=params.stage,
        layers=layers,
        root=total - layers,
        part=by_rows if params.stage == "fsdp2" else total / group,
        world_size=world_size,
        shard_group=group,
        mixed=params.precision == "bf16",
        accumulate=params.accumulate,
        first=each[0] if params.model == "mlp" else 0,
    )


def train(ctx: Context, params: ZeroParams, task: Task, stage: Stage, setting: theory.Setting) -> Journal:
    """Train, and note memory at the start and around the last step, and the traffic of that step."""
    journal = Journal(memory={"init": stage.memory()})
    axes = theory.moves(setting)
    told = -1
    for step in range(params.steps):
        ctx.step(step, params.steps)
        if step == 0:
            tell_memory(ctx, journal, "init")
        before = {axis: sent_bytes(ctx, axis) for axis in axes}
        loss = forward_backward(ctx, params, task, stage, next(task.parts))
        stage.reduce()
        journal.memory["before step"] = stage.memory()
        stage.finish()
        if step == 0:
            note_gradients(ctx, stage, setting, journal)
        if params.clip:
            journal.norms.append(stage.clip(params.clip))
            ctx.scalar("gradient norm", journal.norms[-1])
        with ctx.span("optimizer", "AdamW"):
            stage.step()
        journal.memory["after step"] = stage.memory()
        journal.sent = {axis: sent_bytes(ctx, axis) - before[axis] for axis in axes}
        journal.losses.append(loss)
        ctx.scalar("loss", loss)
        ctx.scalar("sent in a step", sum(journal.sent.values()), "B")
        tell_memory(ctx, journal, "before step", "after step")
        if step == 0:
            tell_held(ctx, stage, setting, "optimizer")
        if task.reader is not None:
            told = tell_reads(ctx, task.reader, told, params.batch, (params.context, params.context))
    return journal


def forward_backward(ctx: Context, params: ZeroParams, task: Task, stage: Stage, batch: Batch) -> float:
    """Run this rank's rows, micro-batch after micro-batch; return their mean loss.

    The losses are weighed by their rows, so that the mean over ranks of the summed gradients is the gradient
    of the whole batch's mean.
    """
    count = len(batch[0])
    weight = loss_weight(ctx.rank, ctx.world_size, params.batch)
    total = 0.0
    for micro in range(params.accumulate):
        start, stop = rows_of(micro, params.accumulate, count)
        rows = slice(start, stop)
        share = (stop - start) / count
        with ctx.span("compute", "forward"):
            loss = task.loss(stage.module, (batch[0][rows], batch[1][rows]))
        with ctx.span("compute", "backward"):
            torch.autograd.backward(loss * weight * share)
        total += loss.item() * share
    return total


def note_gradients(ctx: Context, stage: Stage, setting: theory.Setting, journal: Journal) -> None:
    """Keep the first step's mean gradients of what this rank optimizes, and tell where they lie."""
    for held in stage.held():
        assert held.gradient is not None
        journal.first_gradients.append(
            (held.name, held.start, held.stop, held.gradient.to(ctx.device, copy=True))
        )
    tell_held(ctx, stage, setting, "gradient")


def sent_bytes(ctx: Context, axis: str) -> float:
    """Return the bytes this rank has sent so far in the group of an axis, by the ring's factors."""
    traffic = ctx.comms.traffic.bytes
    ranks = Counter({name: len(members) for name, members in ctx.comms.ledger.members.items()})
    return sum(theory.sent(op, size, ranks[group]) for (op, group), size in traffic.items() if group == axis)


def tell_theory(ctx: Context, setting: theory.Setting) -> None:
    """Tell beforehand what will be measured, by theory."""
    for moment in theory.MOMENTS_OF_A_STEP:
        for kind, size in theory.memory(setting, moment).items():
            ctx.metric(f"{kind} {moment} bytes theory".replace(" ", "_"), size, "B")
    moves = theory.moves(setting)
    total = sum(times * theory.unit(setting, axis) for axis, times in moves.items())
    ctx.metric("sent_bytes_per_step_theory", total, "B")


def tell_memory(ctx: Context, journal: Journal, *moments: str) -> None:
    """Tell the bytes of each kind, as measured now."""
    for moment in moments:
        for kind, size in journal.memory[moment].items():
            ctx.scalar(f"{kind} {moment}", size, "B")


def tell_held(
    ctx: Context, stage: Stage, setting: theory.Setting, kind: Literal["parameter", "gradient", "optimizer"]
) -> None:
    """Tell which elements of each flattened parameter this rank holds, of the kind given."""
    least = {"parameter": 3, "gradient": 2, "optimizer": 1}[kind]
    whole = theory.SHARDED[setting.stage] < least
    plural = {"parameter": "parameters", "gradient": "gradients", "optimizer": "optimizer"}[kind]
    each = theory.bytes_a_parameter(setting, plural)
    if whole:
        # Also what other ranks alone optimize: a small parameter may lie in one rank's part entirely.
        for name, parameter in stage.module.named_parameters():
            size = parameter.numel()
            tell_piece(ctx, name, kind, size, (0, size), size * each)
        return
    for held in stage.held():
        piece = (held.start, held.stop)
        tell_piece(ctx, held.name, kind, held.numel, piece, (held.stop - held.start) * each)


def tell_unit(ctx: Context, unit: ShardUnit, what: Literal["gathered", "freed"]) -> None:
    """Tell that a layer's parameters are whole here now, or that only this rank's pieces are left."""
    for slot, (piece, held) in zip(unit.layout.slots, unit.pieces, strict=True):
        if what == "gathered":
            size = slot.numel * unit.buffer.itemsize
            tell_piece(ctx, slot.name, "parameter", slot.numel, (0, slot.numel), size, "gathered")
        else:
            kept = (piece.start, piece.stop)
            tell_piece(ctx, slot.name, "parameter", slot.numel, kept, piece.numel * held.itemsize)


def tell_rows(ctx: Context, name: str, parameter: nn.Parameter, what: Literal["gathered", "freed"]) -> None:
    """Tell the same of a parameter that `fully_shard` cut by rows."""
    whole = (0, parameter.numel())
    held = theory.rows_held(tuple(parameter.shape), ctx.rank, ctx.world_size)
    span = whole if what == "gathered" else held
    size = (span[1] - span[0]) * parameter.itemsize
    state: Literal["gathered", "held"] = "gathered" if what == "gathered" else "held"
    tell_piece(ctx, name, "parameter", parameter.numel(), span, size, state)


def tell_piece(
    ctx: Context,
    name: str,
    kind: Literal["parameter", "gradient", "optimizer"],
    numel: int,
    piece: tuple[int, int],
    size: int,
    state: Literal["held", "gathered"] = "held",
) -> None:
    """Tell one slice of a flattened parameter."""
    ctx.shard(name, kind, (numel,), (piece,), dtype="", nbytes=size, state=state)
