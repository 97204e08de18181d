"""The tp lab: train a split model beside the same model whole, on the same batches, and compare."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable

import torch
from torch.optim import AdamW

from labs.comms import Comms
from labs.context import Context
from labs.parallel.replica import broadcast_module
from labs.parallel.tensor import local
from labs.tensor_parallel import proofs, theory
from labs.tensor_parallel.layer_traffic import LayerTraffic
from labs.tensor_parallel.spec import TensorParallelParams
from labs.tensor_parallel.subjects import (
    Batch,
    Subject,
    build,
    compare,
    layers_of,
    split_subject,
    way,
    whole_subject,
)
from labs.text_data import ByteDataset, whole_batch
from labs.text_files import corpus


def run(ctx: Context, params: TensorParallelParams) -> None:
    """Seed apart, broadcast, split; train both; compare losses, gradients, parameters, bytes and memory."""
    proof = Comms(ctx.recorder, name="proof", ledger=ctx.comms.ledger)
    tensor = Comms(ctx.recorder, name="tp", ledger=ctx.comms.ledger)
    whole = build(params, ctx.seed + 1 + ctx.rank).to(ctx.device)
    broadcast_module(whole, proof)
    alone = whole_subject(whole, params)
    split = split_subject(copy.deepcopy(whole), params, tensor)
    start = copy.deepcopy(whole)
    tell_shards(ctx, split, tensor)
    journal = proofs.Journal(start)
    layers = LayerTraffic(layers_of(split.module), tensor)
    # One tensor at a time: DTensors and plain tensors cannot go into one fused update.
    optimizers = [AdamW(s.module.parameters(), lr=params.lr, foreach=False) for s in (split, alone)]
    batches = batches_of(ctx, params)
    last = min(params.steps, proofs.COMPARED_STEPS)
    for step in range(params.steps):
        ctx.step(step, params.steps)
        batch = batches(step)
        layers.clear()
        before = Counter({op: tensor.traffic.total(op, "tp") for op in theory.OPS})
        with split.around():
            with ctx.span("compute", "forward"):
                loss = split.loss(batch)
            with ctx.span("compute", "backward"):
                torch.autograd.backward(loss)
                layers.close()
                split.finish()
        moved = Counter({op: tensor.traffic.total(op, "tp") for op in theory.OPS}) - before
        journal.note(moved, layers.layers)
        ctx.scalar("loss", loss.item())
        repeated = step < last
        if repeated:
            lone = alone.loss(batch)
            torch.autograd.backward(lone)
            journal.losses.append((loss.item(), lone.item()))
        if step == 0:
            journal.gradients = compare(split, alone, tensor, gradient=True)
        with ctx.span("optimizer", "AdamW"):
            for optimizer in optimizers if repeated else optimizers[:1]:
                optimizer.step()
                optimizer.zero_grad()
        if step + 1 == last:
            journal.drift = compare(split, alone, tensor, gradient=False)
    journal.way = way(alone.module, start)
    kept = split.kept_whole()
    shared = sum(p.numel() for p in alone.module.parameters()) - kept
    proofs.check(ctx, params, proof, journal, split.held(), (shared, kept))


def batches_of(ctx: Context, params: TensorParallelParams) -> Callable[[int], Batch]:
    """Return the batch of a step, the same on every rank: tensor parallelism splits models, not data."""
    if params.model == "mlp":

        def random(step: int) -> Batch:
            generator = torch.Generator().manual_seed(ctx.seed * 1_000_003 + step)
            x = torch.randn(params.batch, params.dim, generator=generator).to(ctx.device)
            return x, x

        return random
    dataset = ByteDataset(corpus(limit=1 << 18), params.context)

    def text(step: int) -> Batch:
        indices = [(step * params.batch + row) % len(dataset) for row in range(params.batch)]
        inputs, targets = whole_batch(dataset, indices)
        return inputs.to(ctx.device), targets.to(ctx.device)

    return text


def tell_shards(ctx: Context, split: Subject, comms: Comms) -> None:
    """Tell which slice of each matrix this rank holds."""
    for name, parameter in split.module.named_parameters():
        held = local(parameter.detach())
        shape = list(held.shape)
        slices = [(0, size) for size in shape]
        if name in split.split_dims:
            dim, own = split.split_dims[name], shape[split.split_dims[name]]
            slices[dim] = (comms.rank * own, (comms.rank + 1) * own)
            shape[dim] = own * comms.world_size
        ctx.shard(name, "parameter", shape, slices, dtype="float32", nbytes=held.nbytes)
