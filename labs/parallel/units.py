"""Which parameters the fully sharded wrapper moves together, and how it knows a layer's backward is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from labs.parallel.shard_unit import Owned

Kinds = list[tuple[bool, list[Owned]]]
"""Parameters that can lie in one buffer: (whether they are small ones to keep whole, the parameters)."""


def layers_of(module: nn.Module) -> list[nn.Module]:
    """Return the members of every outermost ModuleList or Sequential that hold parameters, in order."""
    found: list[nn.Module] = []
    for child in module.children():
        if isinstance(module, nn.ModuleList | nn.Sequential):
            if any(True for _ in child.parameters()):
                found.append(child)
        else:
            found.extend(layers_of(child))
    return list(dict.fromkeys(found))


def split_units(
    module: nn.Module, layers: Sequence[nn.Module] | None, replicate_below: int
) -> Iterator[tuple[nn.Module, Kinds]]:
    """Yield the root and then each layer, with its parameters by kind.

    A parameter that is used in several layers, or in none, belongs to the root.
    """
    chosen = layers_of(module) if layers is None else list(layers)
    names: dict[nn.Parameter, str] = {}
    places: dict[nn.Parameter, dict[tuple[nn.Module, str], None]] = {}
    homes: dict[nn.Parameter, set[nn.Module]] = {}
    for prefix, inner in module.named_modules(remove_duplicate=False):
        for attribute, parameter in inner._parameters.items():
            if parameter is None:
                continue
            names.setdefault(parameter, f"{prefix}.{attribute}" if prefix else attribute)
            places.setdefault(parameter, {})[inner, attribute] = None
            homes.setdefault(parameter, set()).add(_layer_at(module, prefix, chosen))
    for unit in (module, *chosen):
        kinds: dict[tuple[bool, bool, torch.dtype], list[Owned]] = {}
        for parameter, name in names.items():
            belongs = next(iter(homes[parameter])) if len(homes[parameter]) == 1 else module
            if belongs is unit:
                small = parameter.numel() < replicate_below
                owned = Owned(name, parameter, tuple(places[parameter]))
                kinds.setdefault((small, parameter.requires_grad, parameter.dtype), []).append(owned)
        yield unit, [(small, owned) for (small, _, _), owned in kinds.items()]


def _layer_at(module: nn.Module, path: str, chosen: Sequence[nn.Module]) -> nn.Module:
    """Return the chosen layer on the way from the root to `path`, or the root."""
    inner = module
    for step in path.split(".") if path else []:
        inner = inner.get_submodule(step)
        if any(inner is layer for layer in chosen):
            return inner
    return module


def map_tensors(function: Callable[[Tensor], Any], value: Any) -> Any:
    """Apply `function` to every tensor in nested tuples, lists and dicts, and return the same nesting."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, tuple | list):
        mapped = [map_tensors(function, item) for item in value]
        return type(value)(*mapped) if hasattr(value, "_fields") else type(value)(mapped)
    if isinstance(value, dict):
        return {key: map_tensors(function, item) for key, item in value.items()}
    return value


class AfterBackward(torch.autograd.Function):
    """Identity on a layer's inputs whose backward, the last of the layer's, calls `done`."""

    @staticmethod
    def forward(ctx: Any, done: Callable[[], None], *inputs: Tensor) -> tuple[Tensor, ...]:
        """Hand the inputs through."""
        ctx.done = done
        return inputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        """All gradients of the layer's inputs are here, and those of its parameters before them."""
        ctx.done()
        return (None, *gradients)
