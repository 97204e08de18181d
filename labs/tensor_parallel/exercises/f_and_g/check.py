"""What f and g must make of a cut block: the whole block's output and gradients, with two all-reduces."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.exercise_comms import WatchedComms

FUNCTIONS = ("f", "g")
ROWS, DIM, INNER = 2, 3, 8
CASES = {"one block": 1, "two blocks in a row": 2}
USUALLY = "f sums in backward alone, g sums in forward alone; everything else passes as it is."


def run(yours: Any, comms: WatchedComms, case: int) -> dict[str, Any]:
    """Cut blocks with the learner's f and g around them."""
    width = INNER // comms.world_size
    cut = slice(comms.rank * width, (comms.rank + 1) * width)
    x, pairs = whole(case)
    pairs = [(a[:, cut].clone().requires_grad_(), b[cut].clone().requires_grad_()) for a, b in pairs]
    x.requires_grad_()
    y = x
    for a, b in pairs:
        y = yours.g(torch.relu(yours.f(y, comms) @ a) @ b, comms)
    forward_calls = comms.journal.ops()
    torch.autograd.backward(y.square().mean())
    return {
        "output": y,
        "calls in forward": forward_calls,
        **gradients_of(x, pairs),
        "calls": comms.journal.ops(),
    }


def expected(rank: int, world_size: int, case: int) -> dict[str, Any]:
    """The whole blocks in one process, and a rank's slices of their gradients."""
    width = INNER // world_size
    cut = slice(rank * width, (rank + 1) * width)
    x, pairs = whole(case)
    for tensor in (x, *(each for pair in pairs for each in pair)):
        tensor.requires_grad_()
    y = x
    for a, b in pairs:
        y = torch.relu(y @ a) @ b
    torch.autograd.backward(y.square().mean())
    gradients = gradients_of(x, pairs)
    cuts = {
        name: grad if name == "gradient of x" else (grad[:, cut] if " A" in name else grad[cut])
        for name, grad in gradients.items()
    }
    return {
        "output": y,
        "calls in forward": ["all_reduce"] * case,
        **cuts,
        "calls": ["all_reduce"] * 2 * case,
    }


def gradients_of(x: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> dict[str, Any]:
    """The gradients by name, x's last: it is the only one that f decides."""
    found: dict[str, Any] = {}
    for number, (a, b) in enumerate(pairs):
        found |= {f"gradient of A in block {number}": a.grad, f"gradient of B in block {number}": b.grad}
    return {**found, "gradient of x": x.grad}


def whole(blocks: int) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Input and whole matrices, the same on every rank."""
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(ROWS, DIM, generator=generator)
    pairs = [
        (torch.randn(DIM, INNER, generator=generator), torch.randn(INNER, DIM, generator=generator))
        for _ in range(blocks)
    ]
    return x, pairs
