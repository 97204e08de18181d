"""Average each pipeline stage's gradients over its replicas as soon as its last backward has ended.

The stages of a pipeline end at different times: while the first ones still run backwards, the last ones'
gradients are complete. So a stage's all-reduce starts behind its own last backward (B, or W where backwards
are split), asynchronously, and hides behind the rest of the schedule; `finish` waits for what is left before
the optimizer's step. All replicas follow the same schedule, so they start the same all-reduces in one order.
A parameter that two stages of a rank share (a tied embedding on the turn of a V) waits for the later of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labs.comms import Comms, Handle
from labs.parallel.schedule_actions import Action
from labs.parallel.tensor import finish_partial_gradients


@dataclass
class _Flight:
    """An all-reduce under way, and whose gradients lie in its buffer."""

    parameters: list[nn.Parameter]
    buffer: Tensor
    handle: Handle


class StageGradients:
    """The gradients of one rank's stages on their way through the data parallel group.

    A trainable parameter without a gradient on this rank counts as zeros, and has one afterwards.

    Args:
        row: this rank's actions of a step.
        stages: its stages.
        dp: the ranks that hold replicas of them; a group of one communicates nothing.
        tp: the ranks that these stages are split over.
        sequence: sequence parallel: whole parameters' gradients are partial and summed over `tp` first.
    """

    def __init__(
        self,
        row: Sequence[Action],
        stages: Mapping[int, nn.Module],
        dp: Comms,
        tp: Comms,
        sequence: bool = False,
    ) -> None:
        self._stages, self._dp, self._tp, self._sequence = stages, dp, tp, sequence
        self.last = {action.stage: action for action in row if action.kind in "BW"}
        """By stage, the action behind which its gradients are complete."""
        self.units = _units(stages)
        """Parameters that are complete at the same time, by the stages that use them."""
        self.started: list[tuple[Action, int]] = []
        """Of the step: the action behind which an all-reduce started, and its number of elements."""
        self._ended: set[int] = set()
        self._flights: list[_Flight] = []

    def begin(self) -> None:
        """Begin a step: nothing has ended."""
        self.started, self._ended = [], set()

    def after(self, action: Action) -> None:
        """The rank has done `action`: start what is complete now."""
        if self.last.get(action.stage) != action:
            return
        self._ended.add(action.stage)
        finish_partial_gradients(self._stages[action.stage], self._tp, self._sequence)
        if self._dp.world_size == 1:
            return
        for stages, parameters in self.units.items():
            if action.stage in stages and stages <= self._ended:
                self._start(action, parameters)

    def _start(self, action: Action, parameters: list[nn.Parameter]) -> None:
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        buffer = torch.cat([gradient.reshape(-1) for gradient in gradients])
        handle = self._dp.all_reduce(buffer, op="avg", async_op=True)
        assert handle is not None
        self._flights.append(_Flight(parameters, buffer, handle))
        self.started.append((action, buffer.numel()))

    def finish(self) -> None:
        """Wait for what is in flight; afterwards every `.grad` is the mean over the replicas."""
        for flight in self._flights:
            flight.handle.wait()
            pieces = torch.split(flight.buffer, [p.numel() for p in flight.parameters])
            for parameter, piece in zip(flight.parameters, pieces, strict=True):
                parameter.grad = piece.view_as(parameter)
        self._flights = []


def _units(stages: Mapping[int, nn.Module]) -> dict[frozenset[int], list[nn.Parameter]]:
    """Group the trainable parameters by the stages that use them, each parameter once."""
    users: dict[nn.Parameter, set[int]] = {}
    for stage, module in stages.items():
        for parameter in module.parameters():
            if parameter.requires_grad:
                users.setdefault(parameter, set()).add(stage)
    units: dict[frozenset[int], list[nn.Parameter]] = {}
    for parameter, where in users.items():
        units.setdefault(frozenset(where), []).append(parameter)
    return units
