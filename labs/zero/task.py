"""What the zero lab trains: a model, its batches and its loss, for all stages and for one process alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labs.context import Context
from labs.language_model import LanguageModel, LanguageModelConfig, next_byte_loss
from labs.models import DeepMLP, output_loss
from labs.text_data import ByteDataset, whole_batch
from labs.text_files import corpus
from labs.zero.spec import ZeroParams

Batch = tuple[Tensor, Tensor]
TEXT_BYTES = 1 << 18


@dataclass(frozen=True)
class Task:
    """`batch` gives the whole batch of a step, the same on every rank; `loss` means over the rows it gets."""

    dtype: torch.dtype
    """What the model computes in."""
    build: Callable[[int], nn.Module]
    batch: Callable[[int], Batch]
    loss: Callable[[nn.Module, Batch], Tensor]


def task_of(ctx: Context, params: ZeroParams) -> Task:
    """Return the task that the parameters describe, on this rank's device."""
    dtype = torch.bfloat16 if params.precision == "bf16" else torch.float32
    make = _language_model if params.model == "lm" else _mlp
    return make(ctx, params, dtype)


def _mlp(ctx: Context, params: ZeroParams, dtype: torch.dtype) -> Task:
    def batch(step: int) -> Batch:
        generator = torch.Generator().manual_seed(ctx.seed * 1_000_003 + step)
        x = torch.randn(params.batch, params.dim, generator=generator).to(ctx.device, dtype)
        return x, x

    return Task(
        dtype=dtype,
        build=lambda seed: DeepMLP(params.dim, params.layers, seed=seed).to(ctx.device),
        batch=batch,
        loss=lambda module, batch: output_loss(module(batch[0]).float()),
    )


def _language_model(ctx: Context, params: ZeroParams, dtype: torch.dtype) -> Task:
    dataset = ByteDataset(corpus(limit=max(TEXT_BYTES, 2 * params.context)), params.context)

    def build(seed: int) -> nn.Module:
        config = LanguageModelConfig(params.dim, params.layers, params.heads, params.context)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return LanguageModel(config).to(ctx.device)

    def batch(step: int) -> Batch:
        rows = [(step * params.batch + row) % len(dataset) for row in range(params.batch)]
        inputs, targets = whole_batch(dataset, rows)
        return inputs.to(ctx.device), targets.to(ctx.device)

    return Task(
        dtype=dtype,
        build=build,
        batch=batch,
        loss=lambda module, batch: next_byte_loss(module(batch[0]), batch[1]),
    )
