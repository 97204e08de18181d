"""The tp lab: train a split model beside the same model whole, on the same batches, and compare."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from labs.comms import Comms
from labs.context import Context
from labs.language_model import LanguageModel, LanguageModelConfig, next_byte_loss
from labs.models import DeepMLP, output_loss
from labs.parallel.replica import broadcast_module
from labs.parallel.tensor import finish_partial_gradients, slices_of
from labs.parallel.tensor_models import GatheredMLP, PairedMLP, split_language_loss, split_language_model
from labs.parallel.tensor_ops import slice_along
from labs.tensor_parallel import proofs, theory
from labs.tensor_parallel.spec import TensorParallelParams
from labs.text_data import ByteDataset, corpus, whole_batch

Batch = tuple[Tensor, Tensor]
OPS = ("all_gather", "reduce_scatter", "all_reduce")


@dataclass
class Subject:
    """One model with its loss: the split one and the whole one are two of these.

    `twin` maps a parameter's name in the split model to its name in the whole one.
    """

    module: nn.Module
    loss: Callable[[Batch], Tensor]
    twin: Callable[[str], str] = lambda name: name


def run(ctx: Context, params: TensorParallelParams) -> None:
    """Seed apart, broadcast, split; train both; compare losses, gradients, parameters, bytes and memory."""
    proof = Comms(ctx.recorder, name="proof", ledger=ctx.comms.ledger)
    tensor = Comms(ctx.recorder, name="tp", ledger=ctx.comms.ledger)
    whole = build(params, ctx.seed + 1 + ctx.rank).to(ctx.device)
    broadcast_module(whole, proof)
    alone = whole_subject(whole, params)
    split = split_subject(copy.deepcopy(whole), params, tensor)
    start = copy.deepcopy(whole)
    tell_shards(ctx, split.module, tensor)
    expected = theory_of(params)
    journal = proofs.Journal(start)
    optimizers = [AdamW(s.module.parameters(), lr=params.lr) for s in (split, alone)]
    batches = batches_of(ctx, params)
    for step in range(params.steps):
        ctx.step(step, params.steps)
        batch = batches(step)
        before = Counter({op: tensor.traffic.total(op, "tp") for op in OPS})
        with ctx.span("compute", "forward"):
            loss = split.loss(batch)
        with ctx.span("compute", "backward"):
            torch.autograd.backward(loss)
            finish_partial_gradients(split.module, tensor, params.sequence_parallel)
        moved = Counter({op: tensor.traffic.total(op, "tp") for op in OPS}) - before
        lone = alone.loss(batch)
        torch.autograd.backward(lone)
        if step == 0:
            journal.gradients = compare(split, alone, tensor, gradient=True)
        with ctx.span("optimizer", "AdamW"):
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        journal.note(loss.item(), lone.item(), moved)
        ctx.scalar("loss", loss.item())
    journal.drift = compare(split, alone, tensor, gradient=False)
    journal.way = way(alone.module, start)
    held = sum(p.numel() for p in split.module.parameters())
    proofs.check(ctx, params, proof, journal, expected, held, sizes(split.module, alone.module))


def build(params: TensorParallelParams, seed: int) -> nn.Module:
    """Return the full model, drawn from `seed` (ranks draw differently; rank 0's values are broadcast)."""
    if params.model == "mlp":
        return DeepMLP(params.dim, params.layers, seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LanguageModel(LanguageModelConfig(params.dim, params.layers, params.heads, params.context))


def whole_subject(module: nn.Module, params: TensorParallelParams) -> Subject:
    """Return the model as one process trains it."""
    if params.model == "mlp":
        return Subject(module, lambda batch: output_loss(module(batch[0])))
    return Subject(module, lambda batch: next_byte_loss(module(batch[0]), batch[1]))


def split_subject(full: nn.Module, params: TensorParallelParams, comms: Comms) -> Subject:
    """Return the split model; `full` is equal on all ranks and may be taken apart."""
    if isinstance(full, LanguageModel):
        split = split_language_model(full, comms, params.sequence_parallel)
        return Subject(split, lambda batch: split_language_loss(split(batch[0]), batch[1], comms))
    assert isinstance(full, DeepMLP)
    if params.variant == "gather":
        columns = GatheredMLP(full, comms)
        return Subject(columns, lambda batch: output_loss(columns(batch[0])))
    pairs = PairedMLP(full, comms)
    return Subject(pairs, lambda batch: output_loss(pairs(batch[0])), twin_of_pair)


def twin_of_pair(name: str) -> str:
    """Return the whole model's name of a pair's matrix: `pairs.1.row` is `layers.3.weight`."""
    _, pair, kind = name.split(".")
    return f"layers.{2 * int(pair) + (kind == 'row')}.weight"


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


def compare(split: Subject, alone: Subject, comms: Comms, *, gradient: bool) -> float:
    """Return how far this rank's slices are from the whole model's, of gradients or of parameters.

    Gradients: the largest difference over the largest element of all. Parameters: the root of summed squares.
    """
    twins, dims = dict(alone.module.named_parameters()), slices_of(split.module)
    farthest, largest, squares = 0.0, 1e-30, 0.0
    for name, mine in split.module.named_parameters():
        theirs = twins[split.twin(name)]
        a, b = (mine.grad, theirs.grad) if gradient else (mine.detach(), theirs.detach())
        if a is None or b is None:
            return math.inf
        if name in dims:
            b = slice_along(b, dims[name], comms)
        farthest = max(farthest, float((a - b).abs().max()))
        largest = max(largest, float(b.abs().max()))
        squares += float((a - b).double().square().sum())
    return farthest / largest if gradient else math.sqrt(squares)


def way(now: nn.Module, start: nn.Module) -> float:
    """Return how far a model's parameters went: the root of the summed squares."""
    pairs = zip(now.parameters(), start.parameters(), strict=True)
    return math.sqrt(sum(float((a - b).detach().double().square().sum()) for a, b in pairs))


def sizes(split: nn.Module, whole: nn.Module) -> tuple[int, int]:
    """Return how many parameters of the whole model are split over ranks, and how many each rank keeps."""
    dims = slices_of(split)
    kept = sum(p.numel() for name, p in split.named_parameters() if name not in dims)
    return sum(p.numel() for p in whole.parameters()) - kept, kept


def theory_of(params: TensorParallelParams) -> theory.Traffic:
    """Return S by op of one step, as theory has it."""
    if params.model == "lm":
        rows = params.batch * params.context
        return theory.language_model(rows, params.dim, params.layers, params.sequence_parallel)
    formula = theory.gathered_mlp if params.variant == "gather" else theory.paired_mlp
    return formula(params.batch, params.dim, params.layers)


def tell_shards(ctx: Context, module: nn.Module, comms: Comms) -> None:
    """Tell which slice of each matrix this rank holds."""
    dims = slices_of(module)
    for name, parameter in module.named_parameters():
        shape = list(parameter.shape)
        slices = [(0, size) for size in shape]
        if name in dims:
            dim, own = dims[name], shape[dims[name]]
            slices[dim] = (comms.rank * own, (comms.rank + 1) * own)
            shape[dim] = own * comms.world_size
        ctx.shard(name, "parameter", shape, slices, dtype="float32", nbytes=parameter.nbytes)
