"""I and W apart give the gradients of one backward, each product once, on any module."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from labs.parallel.backward_split import input_gradient


class Tied(nn.Module):
    """One weight used twice on the spine, and once more off it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8) / 3)
        self.bias = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        turned = self.weight.t()
        x = torch.tanh(x @ turned + self.bias)
        x = functional.linear(x @ turned, self.weight, self.bias)
        return x + self.weight.sum()


class Residual(nn.Module):
    """A spine that parts and joins, with a frozen weight, a parameter without gradient and a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.norm = nn.LayerNorm(8)
        self.frozen = nn.Linear(8, 8)
        self.frozen.requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(3))
        self.gate = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        gated: Tensor = self.gate * self.inner(self.norm(x))
        return x + gated * torch.sigmoid(self.frozen(x))


class OffSpine(nn.Module):
    """An output that does not depend on the input at all."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight * 2).expand(x.shape)


MODULES: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8, bias=False), nn.Tanh()),
    "tied": Tied,
    "residual": Residual,
    "off the spine": OffSpine,
    "weightless": lambda: nn.Sequential(nn.ReLU(), nn.Tanh()),
    "identity": nn.Identity,
    "attention": lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
    "deep": lambda: nn.Sequential(*[nn.Linear(8, 8) for _ in range(300)]),
}


def whole(module: nn.Module, x: Tensor, gradient: Tensor) -> tuple[Tensor | None, list[Tensor | None]]:
    x = x.clone().requires_grad_()
    module(x).backward(gradient)
    return x.grad, [parameter.grad for parameter in module.parameters()]


@pytest.mark.parametrize("name", MODULES)
def test_the_parts_give_what_one_backward_gives(name: str) -> None:
    torch.manual_seed(3)
    module = MODULES[name]()
    twin = copy.deepcopy(module)
    x, gradient = torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    wanted_input, wanted = whole(twin, x, gradient)
    source = x.clone().requires_grad_()
    result, weights = input_gradient(module(source), gradient, source)
    assert all(parameter.grad is None for parameter in module.parameters())
    weights.accumulate()
    if wanted_input is None:
        assert result is None
    else:
        torch.testing.assert_close(result, wanted_input)
    for parameter, expected in zip(module.parameters(), wanted, strict=True):
        assert (parameter.grad is None) == (expected is None)
        if expected is not None:
            torch.testing.assert_close(parameter.grad, expected)


def test_weights_come_once_and_add_up() -> None:
    module = nn.Linear(8, 8)
    x, gradient = torch.randn(4, 8), torch.randn(4, 8)
    _, wanted = whole(copy.deepcopy(module), x, gradient)
    for _ in range(2):
        source = x.clone().requires_grad_()
        _, weights = input_gradient(module(source), gradient, source)
        weights.accumulate()
        weights.accumulate()
    for parameter, once in zip(module.parameters(), wanted, strict=True):
        assert parameter.grad is not None
        assert once is not None
        torch.testing.assert_close(parameter.grad, 2 * once)


def test_the_first_stage_leaves_everything_to_w() -> None:
    module = nn.Embedding(10, 8)
    output = module(torch.tensor([1, 2, 2]))
    result, weights = input_gradient(output, torch.ones(3, 8), None)
    assert result is None
    weights.accumulate()
    assert module.weight.grad is not None
    assert module.weight.grad.sum() == 24


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts matrix products."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm)
        return func(*args, **(kwargs or {}))


def test_each_product_is_computed_once() -> None:
    """Five layers: 5 products forwards, 5 in I, 5 in W."""
    module = nn.Sequential(*[nn.Linear(8, 8, bias=False) for _ in range(5)])
    source = torch.randn(4, 8, requires_grad=True)
    output = module(source)
    counts = []
    with Products() as products:  # type: ignore[no-untyped-call]
        _, weights = input_gradient(output, torch.ones(4, 8), source)
        counts.append(products.count)
        weights.accumulate()
        counts.append(products.count)
    assert counts == [5, 10]


def test_the_graph_goes_with_w() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    source = torch.randn(4, 8, requires_grad=True)
    alive: list[weakref.ref[object]] = []

    class Held:
        def __init__(self, tensor: Tensor) -> None:
            self.tensor = tensor.detach()
            alive.append(weakref.ref(self))

    with torch.autograd.graph.saved_tensors_hooks(Held, lambda held: held.tensor):
        output = module(source)
    gc.disable()
    try:
        _, weights = input_gradient(output, torch.ones(4, 8), source)
        del output
        assert any(ref() is not None for ref in alive)
        weights.accumulate()
        assert all(ref() is None for ref in alive), (
            "a cycle keeps activations until the garbage collector comes"
        )
    finally:
        gc.enable()
