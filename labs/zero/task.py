"""What the zero lab trains: a model, its batches and its loss, for all stages and for one process alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labs.context import Context
from labs.data_parallel.theory import rows_of
from labs.language_model import LanguageModel, LanguageModelConfig, next_byte_loss
from labs.models import DeepMLP, output_loss
from labs.sharded_data import Reader
from labs.text_data import supplied_text
from labs.zero.spec import ZeroParams, supply_of

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Task:
    """What is trained, on this rank's device."""

    dtype: torch.dtype
    """What the model computes in."""
    build: Callable[[int], nn.Module]
    parts: Iterator[Batch]
    """This rank's rows of the batch of step after step."""
    wholes: Callable[[], Iterator[Batch]]
    """All ranks' rows, from step 0 on: what one process trains on."""
    loss: Callable[[nn.Module, Batch], Tensor]
    """The mean over the rows it gets."""
    reader: Reader | None = None
    """What deals out the examples behind `parts`; None where rows are drawn."""


def task_of(ctx: Context, params: ZeroParams) -> Task:
    """Return the task that the parameters describe, on this rank's device."""
    dtype = torch.bfloat16 if params.precision == "bf16" else torch.float32
    make = _language_model if params.model == "lm" else _mlp
    return make(ctx, params, dtype)


def _mlp(ctx: Context, params: ZeroParams, dtype: torch.dtype) -> Task:
    def wholes() -> Iterator[Batch]:
        for step in range(params.steps):
            generator = torch.Generator().manual_seed(ctx.seed * 1_000_003 + step)
            x = torch.randn(params.batch, params.dim, generator=generator).to(ctx.device, dtype)
            yield x, x

    def parts() -> Iterator[Batch]:
        rows = slice(*rows_of(ctx.rank, ctx.world_size, params.batch))
        for inputs, targets in wholes():
            yield inputs[rows], targets[rows]

    return Task(
        dtype=dtype,
        build=lambda seed: DeepMLP(params.dim, params.layers, seed=seed).to(ctx.device),
        parts=parts(),
        wholes=wholes,
        loss=lambda module, batch: output_loss(module(batch[0]).float()),
    )


def _language_model(ctx: Context, params: ZeroParams, dtype: torch.dtype) -> Task:
    dataset = supplied_text(params.data, params.context, supply_of(params))
    reader = Reader(dataset, ctx.rank, ctx.world_size, params.batch // ctx.world_size, ctx.seed)

    def build(seed: int) -> nn.Module:
        config = LanguageModelConfig(params.dim, params.layers, params.heads, params.context)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return LanguageModel(config).to(ctx.device)

    def dealt(by: Reader) -> Iterator[Batch]:
        while True:
            inputs, targets = by.next()
            yield inputs.to(ctx.device), targets.to(ctx.device)

    return Task(
        dtype=dtype,
        build=build,
        parts=dealt(reader),
        wholes=lambda: dealt(Reader(dataset, 0, 1, params.batch, ctx.seed)),
        loss=lambda module, batch: next_byte_loss(module(batch[0]), batch[1]),
        reader=reader,
    )
