"""The same schedules by `torch.distributed.pipelining`, with the interface of `labs.parallel.pipeline`.

Torch's stages are watched, not changed: each of their computations is timed, stretched when paced, and its
activations counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import pipelining

from labs.parallel.activations import Meter
from labs.parallel.pipeline import Done, Loss
from labs.parallel.schedule_actions import Action, Kind, Schedule
from labs.parallel.schedule_simulator import Costs

CLASSES: dict[str, Any] = {
    "gpipe": pipelining.ScheduleGPipe,
    "1f1b": pipelining.Schedule1F1B,
    "interleaved": pipelining.ScheduleInterleaved1F1B,
    "looped_bfs": pipelining.ScheduleLoopedBFS,
    "interleaved_zb": pipelining.ScheduleInterleavedZeroBubble,
    "zbv": pipelining.ScheduleZBVZeroBubble,
    "dualpipev": getattr(pipelining, "ScheduleDualPipeV", None),
}


class _WatchedStage(pipelining.PipelineStage):
    """A stage of torch's that tells when it computes; `told(action, call)` makes the call."""

    told: Callable[[Action, Callable[[], Any]], Any]

    def _tell(self, kind: Kind, micro_batch: int, call: Callable[[], Any]) -> Any:
        return self.told(Action(self.stage_index, kind, micro_batch), call)

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        parent = super().forward_one_chunk
        return self._tell("F", fwd_chunk_id, lambda: parent(fwd_chunk_id, *args, **kwargs))

    def backward_one_chunk(  # type: ignore[override]
        self, bwd_chunk_id: int, *, full_backward: bool = True, **kwargs: Any
    ) -> Any:
        parent = super().backward_one_chunk
        return self._tell(
            "B" if full_backward else "I",
            bwd_chunk_id,
            lambda: parent(bwd_chunk_id, full_backward=full_backward, **kwargs),
        )

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        parent = super().backward_weight_one_chunk
        return self._tell("W", bwd_chunk_id, lambda: parent(bwd_chunk_id, *args, **kwargs))


class TorchPipeline:
    """One rank's part of torch's pipeline; gradients land in `.grad`, as the mean over micro-batches."""

    def __init__(
        self,
        schedule: Schedule,
        stages: Mapping[int, nn.Module],
        shapes: Mapping[int, tuple[int, ...]],
        loss: Loss,
        device: torch.device,
        group: dist.ProcessGroup | None = None,
        *,
        pace: Costs | None = None,
        watch: Callable[[Done], None] | None = None,
    ) -> None:
        """`shapes[s]` is the shape of a micro-batch that enters stage s; the last one that of the output."""
        self.schedule = schedule
        self.meter = Meter(stages.values())
        self.trace: list[Done] = []
        self._pace, self._watch, self._group = pace, watch, group
        watched = [self._stage(stage, module, shapes, device) for stage, module in stages.items()]
        kind = CLASSES[schedule.name]
        assert kind is not None
        single = schedule.chunks == 1
        self._torch: Any = kind(watched[0] if single else watched, schedule.num_micro_batches, loss_fn=loss)

    def _stage(
        self, stage: int, module: nn.Module, shapes: Mapping[int, tuple[int, ...]], device: torch.device
    ) -> _WatchedStage:
        made = _WatchedStage(
            module,
            stage,
            self.schedule.num_stages,
            device,
            group=self._group,
            # Whether a gradient will come back is read from these examples.
            input_args=torch.empty(shapes[stage], device=device, requires_grad=stage > 0),
            output_args=torch.empty(shapes[stage + 1], device=device, requires_grad=True),
        )
        made.told = self._do
        return made

    def step(
        self, inputs: Sequence[Tensor] | None = None, targets: Sequence[Tensor] | None = None
    ) -> list[Tensor]:
        """As `Pipeline.step`: the micro-batches' losses on the rank with the last stage, else nothing."""
        self.trace = []
        given = () if inputs is None else (torch.cat(list(inputs)),)
        losses: list[Tensor] = []
        if targets is None:
            self._torch.step(*given)
        else:
            self._torch.step(*given, target=torch.cat(list(targets)), losses=losses)
        return [loss.detach() for loss in losses]

    def _do(self, action: Action, call: Callable[[], Any]) -> Any:
        start = time.monotonic_ns()
        with self.meter.hooks((action.stage, action.micro_batch)):
            result = call()
        if self._pace is not None:
            cost = self._pace.of(action.kind, self.schedule.chunks)
            time.sleep(max(0.0, cost - (time.monotonic_ns() - start) / 1e9))
        done = Done(action, start, time.monotonic_ns())
        self.trace.append(done)
        if self._watch is not None:
            self._watch(done)
        return result
