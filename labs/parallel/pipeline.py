"""Run any pipeline schedule on real stages: the engine behind the lab `pp`.

Each rank walks its row of actions. Before an action it waits for the activation or gradient that the action
needs, and behind it the result leaves asynchronously; receives are posted one action ahead, so that a message
travels while its receiver still computes. What a forward keeps is let go after its last use: B, or W where
the backward is split. Sources: GPipe (Huang et al. 2019), PipeDream-flush (Narayanan et al. 2021), zero
bubble (Qi et al. 2023).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from labs.parallel.activations import Checkpoint, Kept, Meter
from labs.parallel.backward_split import WeightGradients, input_gradient
from labs.parallel.pipeline_mail import Mail, Wire
from labs.parallel.pipeline_shapes import agree, device_of
from labs.parallel.schedule_actions import Action, Schedule
from labs.parallel.schedule_simulator import Costs
from labs.parallel.schedule_validator import check

Loss = Callable[[Tensor, Tensor], Tensor]
Chunk = tuple[int, int]
"""A stage and a micro-batch."""


class Done(NamedTuple):
    """An action with its measured start and end, `time.monotonic_ns()`."""

    action: Action
    start: int
    end: int


class Pipeline:
    """One rank's part of a pipeline.

    Gradients land in `.grad` of the stages' parameters, as those of the mean of the micro-batches' losses:
    where the loss is a mean over its micro-batch they equal one process on the whole batch. Zero them and
    step the optimizer yourself, between the steps.
    """

    def __init__(
        self,
        schedule: Schedule,
        rank: int,
        stages: Mapping[int, nn.Module],
        wire: Wire,
        loss: Loss,
        *,
        checkpoint: bool = False,
        pace: Costs | None = None,
        watch: Callable[[Done], None] | None = None,
    ) -> None:
        """`stages` are those of `schedule.stages_of(rank)`, one tensor in, one out.

        `loss(output, target)` gives one number for a micro-batch. `checkpoint` keeps only each stage's input
        and runs its forward again before its backward. `pace`, in seconds, stretches each action to its cost
        with a sleep around the real computation. `watch` hears of each action as it ends.

        Raises:
            ScheduleError: the schedule cannot run.
            ValueError: the stages are not those that the schedule gives this rank.
        """
        check(schedule)
        if set(stages) != set(schedule.stages_of(rank)):
            raise ValueError(f"rank {rank} holds stages {schedule.stages_of(rank)}, not {tuple(stages)}")
        self.schedule, self.rank, self.stages = schedule, rank, dict(stages)
        self.meter = Meter(stages.values())
        self.trace: list[Done] = []
        """The actions of the last step, as they were done."""
        self._wire, self._loss, self._checkpoint = wire, loss, checkpoint
        self._pace, self._watch = pace, watch
        self._mail: Mail | None = None
        self._late = 0.0
        self._kept: dict[Chunk, Kept | Checkpoint] = {}
        self._owed: dict[Chunk, WeightGradients] = {}
        self._inputs: Sequence[Tensor] = ()
        self._targets: Sequence[Tensor] = ()
        self._losses: dict[int, Tensor] = {}

    def agree(self, first: Tensor | None) -> None:
        """Agree with the other stages on what crosses between them; the first step does it if nobody has.

        `first` is one micro-batch, on the rank that holds the first stage; every rank calls this together.

        Raises: ValueError: stages do not fit together.
        """
        boundaries = agree(self.schedule, self.rank, self.stages, self._wire, first)
        self._mail = Mail(self.schedule, self.rank, self._wire, boundaries, device_of(self.stages))

    def step(
        self, inputs: Sequence[Tensor] | None = None, targets: Sequence[Tensor] | None = None
    ) -> list[Tensor]:
        """Do all forwards and backwards of the schedule once; every rank of the pipeline calls this together.

        `inputs` are m micro-batches of one shape, on the rank that holds the first stage; `targets` m targets
        on the one that holds the last. Returns the m losses on the rank with the last stage, elsewhere
        nothing: a stage that is not last has no loss.

        Raises: ValueError: inputs or targets are absent, are not m, or differ in shape; or stages do not fit
            together.
        """
        self._inputs = self._given("inputs", inputs, 0)
        self._targets = self._given("targets", targets, self.schedule.num_stages - 1)
        if self._mail is None:
            self.agree(self._inputs[0] if self._inputs else None)
        mail = self._mail
        assert mail is not None
        mail.begin()
        self.trace, self._losses = [], {}
        row = self.schedule.rows[self.rank]
        for index, action in enumerate(row):
            arrived = mail.take(action)
            # Posting and sending are part of the action, not of the waiting between actions.
            start = time.monotonic_ns()
            for coming in row[index + 1 : index + 2]:
                mail.post(coming)
            result = self._do(action, arrived)
            self._stretch(action, start)
            mail.send(action, result)
            done = Done(action, start, time.monotonic_ns())
            self._note_lateness(done)
            self.trace.append(done)
            if self._watch is not None:
                self._watch(done)
        mail.finish()
        return [self._losses[micro_batch] for micro_batch in sorted(self._losses)]

    def _given(self, name: str, values: Sequence[Tensor] | None, stage: int) -> Sequence[Tensor]:
        if self.schedule.rank_of(stage) != self.rank:
            return ()
        m = self.schedule.num_micro_batches
        if values is None or len(values) != m:
            count = "none" if values is None else str(len(values))
            raise ValueError(
                f"{name}: stage {stage} needs {m} micro-batches on rank {self.rank}, got {count}"
            )
        if len({value.shape for value in values}) > 1:
            raise ValueError(
                f"{name}: micro-batches must have one shape, got {sorted({*map(_shape, values)})}"
            )
        return values

    def _do(self, action: Action, arrived: Tensor | None) -> Tensor | None:
        match action.kind:
            case "F":
                return self._forward(action, arrived)
            case "B":
                return self._backward(action, arrived)
            case "I":
                return self._input_gradient(action, arrived)
            case "W":
                self._owed.pop(_chunk(action)).accumulate()
        return None

    def _forward(self, action: Action, arrived: Tensor | None) -> Tensor:
        source = self._inputs[action.micro_batch] if arrived is None else arrived.requires_grad_()
        if self._checkpoint:
            kept = Checkpoint(source)
            self.meter.hold(kept, source, _chunk(action))
            self._kept[_chunk(action)] = kept
            with torch.no_grad():
                return self._output(action, source)
        with self.meter.hooks(_chunk(action)):
            output = self._output(action, source)
        self._kept[_chunk(action)] = Kept(source, output)
        return output

    def _output(self, action: Action, source: Tensor) -> Tensor:
        """Return the stage's output; on the last stage it is the micro-batch's loss."""
        output: Tensor = self.stages[action.stage](source)
        if action.stage == self.schedule.num_stages - 1:
            output = self._loss(output, self._targets[action.micro_batch])
            self._losses[action.micro_batch] = output.detach()
        return output

    def _graph(self, action: Action, arrived: Tensor | None) -> tuple[Kept, Tensor]:
        """Return what the forward kept, run again if it was checkpointed, and the gradient of its output."""
        kept = self._kept.pop(_chunk(action))
        if isinstance(kept, Checkpoint):
            with self.meter.hooks(_chunk(action)):
                output = kept.again(lambda source: self._output(action, source))
            kept = Kept(kept.source, output)
        if arrived is None:
            # The loss of the step is the mean over micro-batches, so each one's gradient is a share of it.
            arrived = torch.full_like(kept.output, 1 / self.schedule.num_micro_batches)
        return kept, arrived

    def _backward(self, action: Action, arrived: Tensor | None) -> Tensor | None:
        kept, gradient = self._graph(action, arrived)
        if kept.output.requires_grad:
            torch.autograd.backward([kept.output], [gradient])
        return _handed_on(action, kept.source, kept.source.grad)

    def _input_gradient(self, action: Action, arrived: Tensor | None) -> Tensor | None:
        kept, gradient = self._graph(action, arrived)
        result, owed = None, WeightGradients([], [])
        if kept.output.requires_grad:
            source = kept.source if action.stage else None
            result, owed = input_gradient(kept.output, gradient, source)
        self._owed[_chunk(action)] = owed
        return _handed_on(action, kept.source, result)

    def _stretch(self, action: Action, start: int) -> None:
        """Sleep until the action has taken its cost: without a core a rank, compute could not overlap."""
        if self._pace is not None:
            cost = self._pace.of(action.kind, self.schedule.chunks)
            # What the last action took too long (a sleep is never exact, a send follows it) is made up for.
            late = min(self._late, cost / 4)
            time.sleep(max(0.0, cost - late - (time.monotonic_ns() - start) / 1e9))

    def _note_lateness(self, done: Done) -> None:
        """Remember by how much this action and those before it took longer than their costs."""
        if self._pace is not None:
            cost = self._pace.of(done.action.kind, self.schedule.chunks)
            self._late = max(0.0, min(self._late, cost / 4) + (done.end - done.start) / 1e9 - cost)


def _handed_on(action: Action, source: Tensor, gradient: Tensor | None) -> Tensor | None:
    """The stage before waits for a gradient also where the output does not depend on the input: zeros."""
    if action.stage == 0:
        return None
    return torch.zeros_like(source) if gradient is None else gradient


def _chunk(action: Action) -> Chunk:
    return action.stage, action.micro_batch


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)
