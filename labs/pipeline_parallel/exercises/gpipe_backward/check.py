"""What a pipeline's forward and backward must come to: one process's losses and gradients."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.exercise_comms import WatchedComms

FUNCTIONS = ("gpipe",)
SHAPE = (2, 3)
CASES = {"one micro-batch": 1, "three micro-batches": 3}
USUALLY = "Each micro-batch's own gradient must go back through the stages, in one order on all ranks."


def run(yours: Any, comms: WatchedComms, case: int) -> dict[str, Any]:
    """The learner's pipeline with this rank's stage."""
    stage, (inputs, targets) = stages(comms.world_size)[comms.rank], batch(case)
    last = comms.world_size - 1
    losses = yours.gpipe(
        stage,
        inputs if comms.rank == 0 else [],
        targets if comms.rank == last else [],
        case,
        SHAPE,
        F.mse_loss,
        comms,
    )
    calls = comms.journal.calls
    forward = [at for at, call in enumerate(calls) if call in forwards(comms.rank, comms.world_size)]
    backward = [at for at, call in enumerate(calls) if at not in forward]
    early = bool(forward and backward) and min(backward) < max(forward)
    return {"losses": losses, **gradients_of(stage), "a backward before the last forward": early}


def expected(rank: int, world_size: int, case: int) -> dict[str, Any]:
    """The whole model in one process."""
    model = stages(world_size)
    losses = [F.mse_loss(model(x), target) for x, target in zip(*batch(case), strict=True)]
    torch.autograd.backward(torch.stack(losses).mean())
    told = [loss.item() for loss in losses] if rank == world_size - 1 else []
    return {"losses": told, **gradients_of(model[rank]), "a backward before the last forward": False}


def forwards(rank: int, world_size: int) -> set[str]:
    """The calls by which activations move: from the rank before, to the next."""
    return {f"recv from rank {rank - 1}", f"send to rank {rank + 1}"}


def stages(world_size: int) -> nn.Sequential:
    """The whole model, a stage a rank."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(world_size)))
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


def batch(count: int) -> tuple[list[Tensor], list[Tensor]]:
    """Micro-batches and their targets."""
    generator = torch.Generator().manual_seed(7)
    inputs = [torch.randn(SHAPE, generator=generator) for _ in range(count)]
    return inputs, [torch.randn(SHAPE, generator=generator) for _ in range(count)]


def gradients_of(stage: nn.Module) -> dict[str, Any]:
    """The stage's gradients by name."""
    return {f"{name}.grad": parameter.grad for name, parameter in stage.named_parameters()}
