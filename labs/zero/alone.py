"""The reference: one process trains on the whole batches, without any parallelism."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from labs.comms import Comms
from labs.context import Context
from labs.one_process import on_rank_0
from labs.parallel.master_weights import MasterWeights
from labs.zero.spec import ZeroParams
from labs.zero.task import Task


@dataclass
class Lone:
    """What one process came to; alike on every rank but for losses and norms, which rank 0 has."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    first_gradients: dict[str, Tensor] = field(default_factory=dict)
    parameters: dict[str, Tensor] = field(default_factory=dict)
    """The masters at the end."""


def train_alone(ctx: Context, params: ZeroParams, task: Task, start: dict[str, Tensor], proof: Comms) -> Lone:
    """Train from `start` on rank 0, which then tells the others."""
    ctx.recorder.step = -1
    module = task.build(0)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(start[name])
    optimizer = MasterWeights(module.parameters(), lambda p: AdamW(p, lr=params.lr), task.dtype)
    lone = Lone()

    def train() -> None:
        wholes = task.wholes()
        for step in range(params.steps):
            with ctx.span("compute", "one process"):
                _step(params, task.loss(module, next(wholes)), module, optimizer, lone, step)

    on_rank_0(ctx, "one process's training", train)
    for (name, parameter), master in zip(module.named_parameters(), optimizer.masters, strict=True):
        lone.first_gradients.setdefault(name, torch.empty_like(parameter))
        lone.parameters[name] = master.detach()
        proof.broadcast(lone.first_gradients[name])
        proof.broadcast(lone.parameters[name])
    return lone


def _step(
    params: ZeroParams, loss: Tensor, module: nn.Module, optimizer: MasterWeights, lone: Lone, step: int
) -> None:
    torch.autograd.backward(loss)
    lone.losses.append(loss.item())
    if step == 0:
        named = module.named_parameters()
        lone.first_gradients = {name: p.grad.detach().clone() for name, p in named if p.grad is not None}
    if params.clip:
        lone.norms.append(float(nn.utils.clip_grad_norm_(module.parameters(), params.clip)))
    optimizer.step()
    optimizer.zero_grad()
