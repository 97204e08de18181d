"""Keep torch's compiler out of ranks that never compile.

torch's optimizers import `torch._dynamo` the first time one is made or stepped, only to tell the compiler to
leave them alone. That import takes 1.5 to 2.5 s of a core and some 60 MB in every rank. Labs run eagerly, so
they tell torch beforehand that there is nothing to leave alone. Where a release of torch is made otherwise,
nothing is changed and the import happens as before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import SGD, Adam, Optimizer

_UNTOUCHED_BY_COMPILER = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def spare_the_compiler() -> None:
    """Let Adam, AdamW and SGD work in this process without loading `torch._dynamo`; may be called again."""
    for name in _UNTOUCHED_BY_COMPILER:
        plain = getattr(getattr(Optimizer, name), "__wrapped__", None)
        if plain is not None:
            # torch's own cache: the function to call in place of the one under the decorator.
            plain.__dynamo_disable = plain
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
