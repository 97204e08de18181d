"""The dp lab: train replicas on parts of each batch, then train one process on whole batches and compare."""

from __future__ import annotations

import copy

from torch import nn

from labs import pacing
from labs.comms import Comms
from labs.context import Context
from labs.data_parallel import measures, proofs
from labs.data_parallel.journal import Journal, fingerprint, gather
from labs.data_parallel.pace import Pace
from labs.data_parallel.reads import check_reads
from labs.data_parallel.spec import DataParallelParams
from labs.data_parallel.subjects import SUBJECTS, Subject
from labs.data_parallel.training import Replicated, loss_without_gradient, train, train_alone
from labs.one_process import on_rank_0
from labs.overlap import OverlapMeter
from labs.parallel.bucketed import BucketedDataParallel
from labs.parallel.data import FlatDataParallel, NaiveDataParallel
from labs.parallel.ddp_twin import GROUP, DistributedTwin


def run(ctx: Context, params: DataParallelParams) -> None:
    """Seed apart, start equal, train in step, and prove it against one process."""
    proof = Comms(ctx.recorder, name="proof", ledger=ctx.comms.ledger)
    subject = SUBJECTS[params.model](ctx, params)
    # Each rank draws its own weights, as a careless program would: only the broadcast makes them equal.
    module = subject.build(ctx.seed + 1 + ctx.rank)
    drawn = [fingerprint(module)]
    replica = replicate(module, ctx.comms, params)
    proofs.check_start(ctx, gather(proof, drawn), gather(proof, [fingerprint(module)]))
    start = copy.deepcopy(module)
    tell_parameters(ctx, module)
    meter = OverlapMeter("all_reduce", (ctx.comms.name, GROUP))
    journal = train_watched(ctx, params, subject, replica, proof, meter)
    proofs.check_run(ctx, params, subject, journal, module, start)
    measures.check_traffic(ctx, params, subject, journal)
    measures.check_overlap(ctx, params, meter, proof)
    if subject.reader is not None:
        check_reads(ctx, subject.reader, proof)
    on_rank_0(
        ctx,
        "one process's training",
        lambda: prove_alone(ctx, params, subject, journal, module, start),
    )


def prove_alone(
    ctx: Context,
    params: DataParallelParams,
    subject: Subject,
    journal: Journal,
    module: nn.Module,
    start: nn.Module,
) -> None:
    """Check what one rank can tell by itself: the loss of all first rows, and one process's training."""
    again = loss_without_gradient(subject, module, next(subject.wholes()))
    proofs.check_losses(ctx, params, subject, journal, again)
    lone = train_alone(ctx, params, subject, copy.deepcopy(start))
    proofs.check_equal(ctx, params, journal, start, lone)


def replicate(module: nn.Module, comms: Comms, params: DataParallelParams) -> Replicated:
    """Wrap the module in the variant asked for."""
    match params.variant:
        case "naive":
            return NaiveDataParallel(module, comms)
        case "flat":
            return FlatDataParallel(module, comms)
        case "bucketed":
            return BucketedDataParallel(module, comms, params.bucket_mb)
        case "ddp":
            return DistributedTwin(module, comms, params.bucket_mb)


def train_watched(
    ctx: Context,
    params: DataParallelParams,
    subject: Subject,
    replica: Replicated,
    proof: Comms,
    meter: OverlapMeter,
) -> Journal:
    """Train at the pace asked for, and note what was all-reduced and how much of that was hidden."""
    pace_ms = pacing.resolve(params.pace_ms, ctx.world_size, pacing.cores(), ctx.device.type)
    layers = replica.module.layers
    assert isinstance(layers, nn.ModuleList)
    pace = Pace(list(layers), pace_ms)
    ctx.recorder.observers.append(meter)
    before = ctx.comms.traffic.total("all_reduce")
    journal = train(ctx, params, subject, replica, proof)
    journal.all_reduced_bytes = ctx.comms.traffic.total("all_reduce") - before
    ctx.recorder.settle(wait=True)
    ctx.recorder.observers.remove(meter)
    pace.remove()
    return journal


def tell_parameters(ctx: Context, module: nn.Module) -> None:
    """Tell that this rank holds every parameter whole."""
    for name, parameter in module.named_parameters():
        ctx.shard(
            name,
            "parameter",
            parameter.shape,
            [(0, size) for size in parameter.shape],
            dtype=str(parameter.dtype).removeprefix("torch."),
            nbytes=parameter.nbytes,
        )
