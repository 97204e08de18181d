"""The zero lab: train at one ZeRO stage, watch what is held, gathered and freed, and prove it is the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor
from torch.optim import AdamW

from labs.comms import Comms
from labs.context import Context
from labs.data_parallel.theory import loss_weight, rows_of
from labs.models import DeepMLP, output_loss
from labs.parallel.shard_unit import ShardUnit
from labs.zero import proofs, theory
from labs.zero.spec import ZeroParams
from labs.zero.stages import Stage, lone_step, make_stage


@dataclass
class Journal:
    """What this rank noted while it trained."""

    losses: list[float] = field(default_factory=list)
    memory: dict[str, dict[str, int]] = field(default_factory=dict)
    """By moment, by kind, in bytes."""
    first_gradients: list[tuple[str, int, int, Tensor]] = field(default_factory=list)
    """(name, start, stop, mean gradient) of what this rank optimizes, in step 0."""
    sent: float = 0.0
    """Bytes sent in the last step."""


def run(ctx: Context, params: ZeroParams) -> None:
    """Seed apart, start equal, train sharded; then train one process and compare."""
    proof = Comms(ctx.recorder, name="proof", ledger=ctx.comms.ledger)
    module = DeepMLP(params.dim, params.layers, seed=ctx.seed + 1 + ctx.rank).to(ctx.device)
    start = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    for value in start.values():
        proof.broadcast(value)
    stage = make_stage(int(params.stage), module, ctx.comms, params.lr, lambda u, w: tell_unit(ctx, u, w))
    tell_held(ctx, stage, "parameter")
    journal = train(ctx, params, stage)
    after = stage.full_parameters()
    proofs.check_memory(ctx, params, journal, proof)
    proofs.check_traffic(ctx, params, journal)
    lone = DeepMLP(params.dim, params.layers, seed=0).to(ctx.device)
    lone.load_state_dict(start)
    losses, gradients = train_alone(ctx, params, lone)
    proofs.check_equal(ctx, params, journal, proof, losses, gradients)
    proofs.check_parameters(ctx, start, after, {n: p.detach() for n, p in lone.named_parameters()}, proof)


def train(ctx: Context, params: ZeroParams, stage: Stage) -> Journal:
    """Train, and note memory at the start and around the last step, and the traffic of that step."""
    journal = Journal(memory={"init": stage.memory()})
    rows = slice(*rows_of(ctx.rank, ctx.world_size, params.batch))
    weight = loss_weight(ctx.rank, ctx.world_size, params.batch)
    for step in range(params.steps):
        ctx.step(step, params.steps)
        before = sent_bytes(ctx)
        x = whole_batch(ctx, params, step)[rows]
        with ctx.span("compute", "forward"):
            loss = output_loss(stage.module(x))
        with ctx.span("compute", "backward"):
            torch.autograd.backward(loss * weight)
        stage.finish()
        journal.memory["before step"] = stage.memory()
        if step == 0:
            note_gradients(ctx, stage, journal)
        with ctx.span("optimizer", "AdamW"):
            stage.step()
        journal.memory["after step"] = stage.memory()
        journal.sent = sent_bytes(ctx) - before
        journal.losses.append(loss.item())
        ctx.scalar("loss", loss.item())
        for kind, size in journal.memory["before step"].items():
            ctx.scalar(f"{kind} before step", size, "B")
        if step == 0:
            tell_held(ctx, stage, "optimizer")
    return journal


def note_gradients(ctx: Context, stage: Stage, journal: Journal) -> None:
    """Keep the first step's mean gradients of what this rank optimizes, and tell where they lie."""
    optimizer = stage.optimizer
    if hasattr(optimizer, "finish"):
        # Stages 1 and 2 complete their gradients within `step`; finished here, they are not sent again.
        optimizer.finish()
    for held in stage.held():
        assert held.tensor.grad is not None
        journal.first_gradients.append((held.name, held.start, held.stop, held.tensor.grad.flatten().clone()))
    tell_held(ctx, stage, "gradient")


def sent_bytes(ctx: Context) -> float:
    """Return the bytes this rank has sent so far, by the ring's factors."""
    moved = ctx.comms.traffic.bytes
    return sum(
        theory.sent(op, size, ctx.world_size)
        for (op, group), size in moved.items()
        if group == ctx.comms.name
    )


def train_alone(ctx: Context, params: ZeroParams, module: DeepMLP) -> tuple[list[float], dict[str, Tensor]]:
    """Train on whole batches without any parallelism; returns losses and the first step's gradients."""
    ctx.recorder.step = -1
    optimizer = AdamW(module.parameters(), lr=params.lr)
    losses: list[float] = []
    first: dict[str, Tensor] = {}
    with ctx.span("compute", "one process"):
        for step in range(params.steps):
            loss = output_loss(module(whole_batch(ctx, params, step)))
            losses.append(loss.item())
            gradients = lone_step(module, loss, optimizer)
            first = first or gradients
    return losses, first


def whole_batch(ctx: Context, params: ZeroParams, step: int) -> Tensor:
    """Return the batch of a step, (batch, dim): every rank draws the same rows and keeps its own."""
    generator = torch.Generator().manual_seed(ctx.seed * 1_000_003 + step)
    return torch.randn(params.batch, params.dim, generator=generator).to(ctx.device)


def tell_held(ctx: Context, stage: Stage, kind: Literal["parameter", "gradient", "optimizer"]) -> None:
    """Tell which elements of each flattened parameter this rank holds, of the kind given."""
    whole = (kind == "parameter" and stage.number < 3) or (kind == "gradient" and stage.number < 2)
    whole = whole or stage.number == 0
    each = 8 if kind == "optimizer" else 4
    told: set[str] = set()
    for held in stage.held():
        if whole and held.name in told:
            continue
        told.add(held.name)
        piece = (0, held.numel) if whole else (held.start, held.stop)
        ctx.shard(
            held.name, kind, (held.numel,), (piece,), dtype="float32", nbytes=(piece[1] - piece[0]) * each
        )


def tell_unit(ctx: Context, unit: ShardUnit, what: Literal["gathered", "freed"]) -> None:
    """Tell that a layer's parameters are whole here now, or that only this rank's pieces are left."""
    for slot, (piece, _) in zip(unit.layout.slots, unit.pieces, strict=True):
        held = (0, slot.numel) if what == "gathered" else (piece.start, piece.stop)
        ctx.shard(
            slot.name,
            "parameter",
            (slot.numel,),
            (held,),
            dtype="float32",
            nbytes=(held[1] - held[0]) * 4,
            state="gathered" if what == "gathered" else "held",
        )
