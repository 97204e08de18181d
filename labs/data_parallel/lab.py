"""The dp lab: train replicas on parts of each batch, then train one process on whole batches and compare."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from labs.comms import Comms
from labs.context import Context, hash_of
from labs.data_parallel import proofs, theory
from labs.data_parallel.spec import DataParallelParams
from labs.models import DeepMLP, output_loss
from labs.parallel.bucketed import BucketedDataParallel
from labs.parallel.data import FlatDataParallel, NaiveDataParallel

Replicated = NaiveDataParallel | FlatDataParallel | BucketedDataParallel


@dataclass
class Journal:
    """What the ranks noted while they trained, for the proofs afterwards; alike on every rank."""

    losses: list[list[float]] = field(default_factory=list)
    """By step, by rank."""
    hashes: list[list[int]] = field(default_factory=list)
    """Of all parameters after the step; by step, by rank."""
    first_gradients: list[Tensor] = field(default_factory=list)
    """The averaged gradients of step 0, on this rank."""


def run(ctx: Context, params: DataParallelParams) -> None:
    """Seed apart, start equal, train in step, and prove it against one process."""
    proof = Comms(ctx.recorder, name="proof", ledger=ctx.comms.ledger)
    # Each rank draws its own weights, as a careless program would: only the broadcast makes them equal.
    module = DeepMLP(params.dim, params.layers, seed=ctx.seed + 1 + ctx.rank).to(ctx.device)
    drawn = [fingerprint(module)]
    replica = replicate(module, ctx.comms, params)
    proofs.check_start(ctx, gather(proof, drawn), gather(proof, [fingerprint(module)]))
    start = copy.deepcopy(module)
    tell_shards(ctx, module, params)
    before = ctx.comms.traffic.total("all_reduce")
    journal = train(ctx, params, replica, proof)
    moved_bytes = ctx.comms.traffic.total("all_reduce") - before
    with torch.no_grad():
        again = output_loss(module(whole_batch(params, ctx, 0))).item()
    proofs.check_run(ctx, params, journal, module, start, moved_bytes, again)
    lone = train_alone(ctx, params, copy.deepcopy(start), proof)
    if lone is not None:
        proofs.check_equal(ctx, journal, module, start, lone)


def replicate(module: nn.Module, comms: Comms, params: DataParallelParams) -> Replicated:
    """Wrap the module in the variant asked for."""
    match params.variant:
        case "naive":
            return NaiveDataParallel(module, comms)
        case "flat":
            return FlatDataParallel(module, comms)
        case "bucketed":
            return BucketedDataParallel(module, comms, params.bucket_mb)


def train(ctx: Context, params: DataParallelParams, replica: Replicated, proof: Comms) -> Journal:
    """Train in data parallel; every rank returns the same journal but for its gradients."""
    journal = Journal()
    optimizer = AdamW(replica.parameters(), lr=params.lr)
    rows = slice(*theory.rows_of(ctx.rank, ctx.world_size, params.batch))
    weight = theory.loss_weight(ctx.rank, ctx.world_size, params.batch)
    for step in range(params.steps):
        ctx.step(step, params.steps)
        x = whole_batch(params, ctx, step)[rows]
        with ctx.span("compute", "forward"), paced(ctx, 1.0):
            loss = output_loss(replica(x))
        with ctx.span("compute", "backward"), paced(ctx, 2.0):
            torch.autograd.backward(loss * weight)
        replica.finish()
        if step == 0:
            journal.first_gradients = gradients_of(replica.module)
        with ctx.span("optimizer", "AdamW"):
            optimizer.step()
            optimizer.zero_grad()
        note(ctx, journal, replica.module, loss.item(), params.batch, proof)
    return journal


def note(ctx: Context, journal: Journal, module: nn.Module, loss: float, batch: int, proof: Comms) -> None:
    """Tell this step's loss and the parameters' hash, and learn those of the other ranks."""
    ctx.scalar("loss", loss)
    parameters = list(module.parameters())
    digest = hash_of(parameters)
    ctx.digest("parameters", "after", parameters, digest)
    seen = gather(proof, [int(digest, 16), bits_of(loss)])
    journal.hashes.append([hashed for hashed, _ in seen])
    losses = [loss_of_bits(bits) for _, bits in seen]
    journal.losses.append(losses)
    if ctx.rank == 0:
        ctx.scalar("mean loss", proofs.batch_loss(losses, batch))


@dataclass
class Lone:
    """What one process came to on the same batches."""

    module: nn.Module
    batch: int
    losses: list[float]
    first_gradients: list[Tensor]


def train_alone(ctx: Context, params: DataParallelParams, module: nn.Module, proof: Comms) -> Lone | None:
    """Train on whole batches on rank 0 (others return None), with no parallelism whatsoever.

    The others meet rank 0 at a barrier after each step, so that a long training is not taken for a hang.
    """
    ctx.recorder.step = -1
    lone = Lone(module, params.batch, [], [])
    optimizer: Optimizer = AdamW(module.parameters(), lr=params.lr)
    for step in range(params.steps):
        if ctx.rank == 0:
            with ctx.span("compute", "one process"):
                loss = output_loss(module(whole_batch(params, ctx, step)))
                torch.autograd.backward(loss)
                if step == 0:
                    lone.first_gradients = gradients_of(module)
                optimizer.step()
                optimizer.zero_grad()
                lone.losses.append(loss.item())
        proof.barrier()
    return lone if ctx.rank == 0 else None


def whole_batch(params: DataParallelParams, ctx: Context, step: int) -> Tensor:
    """Return the batch of a step, (batch, dim): every rank draws the same rows and keeps its own."""
    generator = torch.Generator().manual_seed(ctx.seed * 1_000_003 + step)
    return torch.randn(params.batch, params.dim, generator=generator).to(ctx.device)


def tell_shards(ctx: Context, module: nn.Module, params: DataParallelParams) -> None:
    """Tell which rows of the batch and which parameters this rank holds: part of one, all of the other."""
    rows = theory.rows_of(ctx.rank, ctx.world_size, params.batch)
    width = (0, params.dim)
    ctx.shard(
        "batch",
        "data",
        (params.batch, params.dim),
        (rows, width),
        dtype="float32",
        nbytes=(rows[1] - rows[0]) * params.dim * 4,
    )
    for name, parameter in module.named_parameters():
        ctx.shard(
            name,
            "parameter",
            parameter.shape,
            [(0, size) for size in parameter.shape],
            dtype=str(parameter.dtype).removeprefix("torch."),
            nbytes=parameter.nbytes,
        )


@contextmanager
def paced(ctx: Context, ratio: float) -> Iterator[None]:
    """Stretch what is inside to `ratio` times the pace, so that a step can be watched; off at pace 0."""
    until = time.monotonic() + ctx.pace_ms * ratio / 1000
    yield
    time.sleep(max(0.0, until - time.monotonic()) if ctx.pace_ms else 0.0)


def gather(proof: Comms, numbers: list[int]) -> list[list[int]]:
    """Return every rank's numbers, by rank; an all-gather apart from what the lab counts."""
    mine = torch.tensor(numbers, dtype=torch.int64, device=proof.recorder.device)
    everyone = mine.new_empty(len(numbers) * proof.world_size)
    proof.all_gather(everyone, mine)
    return everyone.view(proof.world_size, len(numbers)).tolist()


def fingerprint(module: nn.Module) -> int:
    """Return 48 bits that are equal exactly when all parameters are bitwise equal."""
    return int(hash_of(list(module.parameters())), 16)


def gradients_of(module: nn.Module) -> list[Tensor]:
    """Return copies of all gradients, in the module's order."""
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


def bits_of(number: float) -> int:
    """Return a float's 64 bits as an integer, so that it travels exactly."""
    return int(torch.tensor(number, dtype=torch.float64).view(torch.int64))


def loss_of_bits(bits: int) -> float:
    """Return the float of 64 bits: the inverse of `bits_of`."""
    return float(torch.tensor(bits, dtype=torch.int64).view(torch.float64))
