"""What a step on three axes must come to: one process's loss and gradients on the whole batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.exercise_comms import WatchedComms
from labs.mesh.theory import coordinates, groups_along

FUNCTIONS = ("train_step",)
MESH = (2, 2, 2)
"""dp outermost, pp, tp inside: neighbouring ranks talk most."""
ROWS, DIM, INNER = 2, 3, 4
CASES = {"two replicas of two stages, each cut in two": 0}
USUALLY = "TP inside the block, PP between the stages, and DP alone averages: look which axis is off."


def run(yours: Any, comms: WatchedComms, case: int) -> dict[str, Any]:
    """The learner's step at this rank's place on the mesh."""
    dp, pp, tp = (comms.split(groups_along(axis, MESH), name) for axis, name in enumerate(("dp", "pp", "tp")))
    column, row = (piece.clone().requires_grad_() for piece in cut(weights()[pp.rank], tp.rank))
    x = batch()[dp.rank * ROWS : (dp.rank + 1) * ROWS]
    loss = yours.train_step(x, column, row, (ROWS, DIM), tp, pp, dp)
    return {"the loss": loss, "gradient of column": column.grad, "gradient of row": row.grad}


def expected(rank: int, world_size: int, case: int) -> dict[str, Any]:
    """The whole model and batch in one process, and this rank's part."""
    dp, pp, tp = coordinates(rank, MESH)
    model = [[matrix.requires_grad_() for matrix in pair] for pair in weights()]
    losses = []
    for replica in range(MESH[0]):
        y = batch()[replica * ROWS : (replica + 1) * ROWS]
        for first, second in model:
            y = torch.relu(y @ first) @ second
        losses.append(y.square().mean())
    torch.autograd.backward(torch.stack(losses).mean())
    column, row = cut([matrix.grad for matrix in model[pp] if matrix.grad is not None], tp)
    loss = losses[dp].item() if pp == 1 else 0.0
    return {"the loss": loss, "gradient of column": column, "gradient of row": row}


def cut(pair: list[Tensor], rank: int) -> tuple[Tensor, Tensor]:
    """A tp rank's columns of the first and rows of the second matrix."""
    width = INNER // MESH[2]
    part = slice(rank * width, (rank + 1) * width)
    return pair[0][:, part], pair[1][part]


def weights() -> list[list[Tensor]]:
    """The whole matrices of both stages, the same on every rank."""
    generator = torch.Generator().manual_seed(8)
    shapes = ((DIM, INNER), (INNER, DIM))
    return [[torch.randn(shape, generator=generator) for shape in shapes] for _ in range(MESH[1])]


def batch() -> Tensor:
    """The rows of both replicas."""
    return torch.randn(MESH[0] * ROWS, DIM, generator=torch.Generator().manual_seed(9))
