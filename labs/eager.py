"""Keep torch's compiler and its algebra out of ranks that never compile.

torch's optimizers import `torch._dynamo` the first time one is made or stepped, only to tell the compiler to
leave them alone. That import takes 1.5 to 2.5 s of a core and some 60 MB in every rank. Labs run eagerly, so
they tell torch beforehand that there is nothing to leave alone. Where a release of torch is made otherwise,
nothing is changed and the import happens as before.

A backward that is given gradients, as each stage of a pipeline is, imports sympy to compare their shapes with
those of the outputs, in case a shape is a symbol: 1 to 3 s in every rank. Shapes that are plain numbers are
compared here; whatever is not plainly right goes torch's way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.optim import SGD, Adam, Optimizer

_UNTOUCHED_BY_COMPILER = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def spare_the_compiler() -> None:
    """Let Adam, AdamW and SGD work in this process without loading `torch._dynamo`, and backwards that are
    given gradients without loading sympy; may be called again."""
    for name in _UNTOUCHED_BY_COMPILER:
        plain = getattr(getattr(Optimizer, name), "__wrapped__", None)
        if plain is not None:
            # torch's own cache: the function to call in place of the one under the decorator.
            plain.__dynamo_disable = plain
    _spare_the_algebra()
    for kind in (Adam, SGD):
        plain = getattr(kind.step, "__wrapped__", None)
        if plain is not None and not hasattr(kind.step, "hooked"):
            kind.step = _without_grad(plain)  # type: ignore[method-assign]


def _without_grad(step: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a step as torch does, less the compiler: gradients are recorded only if it is differentiable."""

    def without_grad(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        with torch.set_grad_enabled(self.defaults["differentiable"]):
            return step(self, *args, **kwargs)

    return without_grad


def _spare_the_algebra() -> None:
    """Compare the shapes of given gradients as numbers."""
    plain = getattr(torch.autograd, "_make_grads", None)
    if plain is not None and not hasattr(plain, "plain"):
        torch.autograd._make_grads = _given_gradients(plain)


def _given_gradients(plain: Callable[..., Any]) -> Callable[..., Any]:
    def make_grads(outputs: Sequence[Any], grads: Sequence[Any], is_grads_batched: bool) -> tuple[Any, ...]:
        same_number = not is_grads_batched and len(outputs) == len(grads)
        if same_number and all(map(_fits, outputs, grads)):
            return tuple(grads)
        made: tuple[Any, ...] = plain(outputs, grads, is_grads_batched)
        return made

    make_grads.plain = plain  # type: ignore[attr-defined]
    return make_grads


def _fits(output: Any, gradient: Any) -> bool:
    """Whether this is a plain gradient of the output: its type, its device, its shape."""
    if type(gradient) is not Tensor or gradient.is_nested or not gradient.is_floating_point():
        return False
    if isinstance(output, GradientEdge):
        output = output.node._input_metadata[output.output_nr]
        if output.is_nested_tensor:
            return False
    elif not isinstance(output, Tensor) or output.is_nested:
        return False
    same = output.dtype == gradient.dtype and output.device == gradient.device
    return bool(same and tuple(output.shape) == tuple(gradient.shape))
