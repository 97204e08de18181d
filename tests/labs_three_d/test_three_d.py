"""`ThreeD` takes any modules, with frozen and unused parameters; beside one process."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from labs.context import Context
from labs.parallel.mesh_axes import build_axes
from labs.parallel.schedules import build
from labs.parallel.three_d import ThreeD
from tests.ranks import on_ranks, values

MICRO_BATCHES, ROWS, WIDTH = 2, 3, 4


class Odd(nn.Module):
    """A stage with a frozen weight and a parameter that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.unused = nn.Parameter(torch.ones(2))
        self.inner.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.inner(x))


def stages_and_data() -> tuple[list[nn.Module], list[Tensor], list[Tensor]]:
    """The same on every rank: two stages, and for each of two replicas its rows."""
    torch.manual_seed(7)
    stages = [Odd(), nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH))]
    inputs = [torch.randn(MICRO_BATCHES * ROWS, WIDTH) for _ in range(2)]
    targets = [torch.randn(MICRO_BATCHES * ROWS, WIDTH) for _ in range(2)]
    return stages, inputs, targets


def train(ctx: Context) -> dict[str, float]:
    """One step on a mesh of 2 x 2 x 1; how far norm, gradients and the clipped norm are from one process."""
    stages, inputs, targets = stages_and_data()
    alone, _, _ = stages_and_data()
    axes = build_axes(ctx.comms, (2, 2, 1))
    replica, place, _ = axes.place
    schedule = build("1f1b", 2, MICRO_BATCHES)
    engine = ThreeD(axes, schedule, {place: stages[place]}, mse_loss)
    engine.step(
        list(inputs[replica].chunk(MICRO_BATCHES)) if place == 0 else None,
        list(targets[replica].chunk(MICRO_BATCHES)) if place == 1 else None,
    )
    whole = nn.Sequential(*alone)
    torch.autograd.backward([mse_loss(whole(torch.cat(inputs)), torch.cat(targets))])
    expected = torch.stack([p.grad.norm() for p in whole.parameters() if p.grad is not None]).norm()
    pairs = list(zip(stages[place].parameters(), alone[place].parameters(), strict=True))
    apart = max(
        float((own.grad - other.grad).abs().max())
        for own, other in pairs
        if own.grad is not None and other.grad is not None
    )
    norm = engine.clip(float(expected) / 2)
    return {
        "gradients": apart,
        "frozen": float(sum(own.grad is not None for own, _ in pairs if not own.requires_grad)),
        "norm": abs(float(norm) - float(expected)),
        "clipped": abs(float(engine.norm()) - float(expected) / 2),
        "counted": float(len(engine.counted())),
    }


def test_any_modules_are_trained_as_on_one_process() -> None:
    for place, found in enumerate(values(on_ranks(4, train, lab="3d"))):
        assert max(found[name] for name in ("gradients", "norm", "clipped")) < 1e-5, found
        assert found["frozen"] == 0
        assert found["counted"] == (3 if place in (0, 2) else 4)
