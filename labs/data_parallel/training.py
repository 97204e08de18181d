"""How the dp lab trains: replicas on their parts of each batch, and one process on whole batches."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from labs.comms import Comms
from labs.context import Context
from labs.data_parallel import theory
from labs.data_parallel.journal import Journal, gradients_of, note
from labs.data_parallel.reads import tell_reads
from labs.data_parallel.spec import DataParallelParams
from labs.data_parallel.subjects import Batch, Subject
from labs.parallel.bucketed import BucketedDataParallel
from labs.parallel.data import FlatDataParallel, NaiveDataParallel
from labs.parallel.ddp_twin import DistributedTwin
from labs.parallel.precision import Scaler, autocast

Replicated = NaiveDataParallel | FlatDataParallel | BucketedDataParallel | DistributedTwin


@dataclass
class Lone:
    """What one process came to on the same batches."""

    module: nn.Module
    batch: int
    losses: list[float]
    first_gradients: list[Tensor]


def train(
    ctx: Context, params: DataParallelParams, subject: Subject, replica: Replicated, proof: Comms
) -> Journal:
    """Train in data parallel; every rank returns the same journal but for its gradients."""
    journal = Journal()
    optimizer: Optimizer = AdamW(replica.parameters(), lr=params.lr)
    scaler = Scaler(ctx.device, params.precision)
    parts = subject.parts()
    told = -1
    for step in range(params.steps):
        ctx.step(step, params.steps)
        losses = []
        for left in reversed(range(params.accumulate)):
            batch = next(parts)
            losses.append(one_batch(ctx, params, subject, replica, scaler, batch, left == 0, journal))
        # Only here do all ranks meet, and the gradients become those of the whole batch.
        replica.finish()
        if step == 0:
            scaler.unscale(optimizer)
            journal.first_gradients = gradients_of(replica.module)
        with ctx.span("optimizer", "AdamW"):
            scaler.step(optimizer)
            optimizer.zero_grad()
        if step + 1 == compared_steps(params):
            journal.compared = [parameter.detach().clone() for parameter in replica.module.parameters()]
        note(ctx, journal, replica.module, sum(losses) / len(losses), params.batch, proof)
        told = tell_reads(ctx, subject.reader, told, params.batch, subject.row)
    return journal


def one_batch(
    ctx: Context,
    params: DataParallelParams,
    subject: Subject,
    replica: Replicated,
    scaler: Scaler,
    batch: Batch,
    last: bool,
    journal: Journal,
) -> float:
    """Run forward and backward on this rank's part of one batch; returns its loss.

    All but the last batch of a step only add to the local gradients: nothing is sent for them.
    """
    inputs, targets = batch
    weight = theory.loss_weight(ctx.rank, ctx.world_size, params.batch) / params.accumulate
    with nullcontext() if last else replica.no_sync():
        with ctx.span("compute", "forward"), autocast(ctx.device, params.precision):
            output = replica(inputs)
            loss = subject.loss(output, targets)
        began = ctx.recorder.mark()
        scaler.backward(loss * weight)
        ended = ctx.recorder.mark()
    computed = replica.computed() if last else None
    ctx.recorder.span("compute", "backward", began, ended if computed is None else computed)
    if replica.blocks_in_backward and computed is not None:
        ctx.recorder.span("idle", "wait all_reduce", computed, ended)
    journal.dtypes = (output.dtype, gradient_dtype(replica.module))
    return loss.item()


def compared_steps(params: DataParallelParams) -> int:
    """Return how many steps one process repeats."""
    return min(params.steps, theory.COMPARED_STEPS)


def gradient_dtype(module: nn.Module) -> torch.dtype:
    """Return the dtype of the gradients, those of the first parameter that has one."""
    return next(p.grad.dtype for p in module.parameters() if p.grad is not None)


def train_alone(ctx: Context, params: DataParallelParams, subject: Subject, module: nn.Module) -> Lone:
    """Train the first steps on whole batches on this rank, with no parallelism whatsoever."""
    ctx.recorder.step = -1
    lone = Lone(module, params.batch, [], [])
    optimizer: Optimizer = AdamW(module.parameters(), lr=params.lr)
    scaler = Scaler(ctx.device, params.precision)
    wholes = subject.wholes()
    for step in range(compared_steps(params)):
        with ctx.span("compute", "one process"):
            inputs, targets = next(wholes)
            with autocast(ctx.device, params.precision):
                loss = subject.loss(module(inputs), targets)
            scaler.backward(loss)
            if step == 0:
                scaler.unscale(optimizer)
                lone.first_gradients = gradients_of(module)
            scaler.step(optimizer)
            optimizer.zero_grad()
            lone.losses.append(loss.item())
    return lone


@torch.no_grad()
def loss_without_gradient(subject: Subject, module: nn.Module, batch: Batch) -> float:
    """Return the loss of a batch, in the precision of the training."""
    inputs, targets = batch
    with autocast(subject.ctx.device, subject.params.precision):
        return subject.loss(module(inputs), targets).item()
