"""Which layer a collective belongs to: bytes and calls of each layer, forward and backward together.

A forward hook knows when a layer runs. For backward, the gradient of a layer's output says that its backward
begins, and the gradient of its input that it is over. Where the first layer's input needs none, the end of
the step's backward says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

from torch import Tensor, nn

from labs.comms import Comms

Tally = Counter[str]
"""By op, and by `<op> calls`: S in bytes, and how often."""


class LayerTraffic:
    """Watches the layers of a model, each of which takes one tensor first and returns one."""

    def __init__(self, layers: Iterable[nn.Module], comms: Comms) -> None:
        self.comms = comms
        self.layers: list[Tally] = []
        self._current = -1
        self._since = self._now()
        for place, layer in enumerate(layers):
            self.layers.append(Counter())
            layer.register_forward_pre_hook(partial(self._before, place))
            layer.register_forward_hook(partial(self._after, place))

    def clear(self) -> None:
        """Begin a step."""
        self._enter(-1)
        for tally in self.layers:
            tally.clear()

    def close(self) -> None:
        """The step's backward is over: what follows belongs to no layer."""
        self._enter(-1)

    def _now(self) -> Tally:
        traffic, name = self.comms.traffic, self.comms.name
        tally: Tally = Counter({op: size for (op, group), size in traffic.bytes.items() if group == name})
        tally.update({f"{op} calls": n for (op, group), n in traffic.calls.items() if group == name})
        return tally

    def _enter(self, place: int, _gradient: Tensor | None = None) -> None:
        now = self._now()
        if self._current >= 0:
            self.layers[self._current] += now - self._since
        self._current, self._since = place, now

    def _leave(self, place: int, _gradient: Tensor) -> None:
        if self._current == place:
            self._enter(-1)

    def _before(self, place: int, _layer: nn.Module, args: tuple[Any, ...]) -> None:
        self._enter(place)
        if args[0].requires_grad:
            args[0].register_hook(partial(self._leave, place))

    def _after(self, place: int, _layer: nn.Module, _args: Any, output: Tensor) -> None:
        self._enter(-1)
        if output.requires_grad:
            output.register_hook(partial(self._enter, place))  # type: ignore[no-untyped-call]
