"""Stretches a model's layers so that a step can be watched where ranks share cores.

A layer's forward, and its backward, ends no sooner than its share of the pace allows. Gradients so appear one
layer after another, as in a model that is slow by itself, and what travels meanwhile is seen to overlap.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

BACKWARD_RATIO = 2.0
"""A backward takes two matrix products for each of the forward's."""


class Pace:
    """Hooks on the layers of one model, in the order of their use; none where `pace_ms` is 0.

    Args:
        layers: each takes and returns one tensor.
        pace_ms: milliseconds of a forward over all layers; a backward takes twice as long.
    """

    def __init__(self, layers: Sequence[nn.Module], pace_ms: float) -> None:
        self._count = len(layers)
        self._share_s = pace_ms / 1000 / max(1, self._count)
        self._until = 0.0
        self._hooks: list[RemovableHandle] = []
        for place, layer in enumerate(layers if pace_ms else ()):
            self._hooks.append(layer.register_forward_hook(partial(self._forward, place)))

    def remove(self) -> None:
        """Let the model run at its own speed again."""
        for hook in self._hooks:
            hook.remove()

    def _forward(self, place: int, _layer: nn.Module, _inputs: Any, output: Tensor) -> None:
        self._wait(self._share_s, first=place == 0)
        if output.requires_grad:
            output.register_hook(partial(self._backward, place))  # type: ignore[no-untyped-call]

    def _backward(self, place: int, _gradient: Tensor) -> None:
        """Called when the gradient of a layer's output is known, before the layer's own are computed."""
        self._wait(self._share_s * BACKWARD_RATIO, first=place == self._count - 1)

    def _wait(self, share_s: float, *, first: bool) -> None:
        """Sleep until the share of this layer is over; the first of a pass begins to count."""
        now = time.monotonic()
        self._until = (now if first else max(self._until, now - share_s)) + share_s
        time.sleep(max(0.0, self._until - now))
