"""Data, pipeline and tensor parallelism at once: what the three do to each other's gradients.

A rank holds stages of a pipeline, split by tensors, and is one of several replicas. Per step:

1. the pipeline runs its schedule; the layers' own all-reduces (f and g) sum over `tp` as they go;
2. behind its last backward each stage's gradients are averaged over `dp`, while the schedule goes on;
3. a tied embedding has a copy on the first and one on the last stage: its gradient is the sum of the two,
   taken over their `embedding` group (Shoeybi et al. 2019; Narayanan et al. 2021);
4. the gradient norm is that of the whole model: over `model`, each parameter counted once.

Losses and gradients are those of one process on the whole batch, the mean over replicas and micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from torch import Tensor, nn

from labs.parallel.clipping import global_norm
from labs.parallel.mesh_axes import MeshAxes
from labs.parallel.pipeline import Done, Loss, Pipeline
from labs.parallel.schedule_actions import Schedule
from labs.parallel.schedule_simulator import Costs
from labs.parallel.stage_gradients import StageGradients
from labs.parallel.tensor import slices_of


class ThreeD:
    """One rank's part of a model on a three-axis mesh.

    Args:
        axes: the communicators; the pipeline's ranks are the places on `pp`.
        schedule: the pipeline's, for as many ranks as `pp` has.
        stages: this rank's stages, split over `tp`.
        loss: of a micro-batch, on the last stage: `loss(output, target)`.
        tied: this rank's copy of a tied embedding, if it has one that another rank has too.
        sequence: whether the stages are sequence parallel.
        pace, watch: as for `Pipeline`.
    """

    def __init__(
        self,
        axes: MeshAxes,
        schedule: Schedule,
        stages: Mapping[int, nn.Module],
        loss: Loss,
        *,
        tied: nn.Parameter | None = None,
        sequence: bool = False,
        pace: Costs | None = None,
        watch: Callable[[Done], None] | None = None,
    ) -> None:
        place = axes.pp.rank
        self.axes, self.stages, self.tied = axes, dict(stages), tied
        self.gradients = StageGradients(schedule.rows[place], stages, axes.dp, axes.tp, sequence)
        self.pipeline = Pipeline(
            schedule, place, stages, axes.wire, loss, pace=pace, watch=lambda done: self._after(done, watch)
        )

    def agree(self, first: Tensor | None) -> None:
        """Agree with the other stages on shapes before the first step; `first`: a micro-batch, on stage 0."""
        self.pipeline.agree(first)

    def step(
        self, inputs: Sequence[Tensor] | None = None, targets: Sequence[Tensor] | None = None
    ) -> list[Tensor]:
        """Run the schedule; return this replica's losses, on the last stage. Gradients are whole then."""
        self.gradients.begin()
        losses = self.pipeline.step(inputs, targets)
        self.gradients.finish()
        self._add_copies()
        return losses

    def _after(self, done: Done, watch: Callable[[Done], None] | None) -> None:
        if watch is not None:
            watch(done)
        self.gradients.after(done.action)

    def _add_copies(self) -> None:
        """Sum the gradients of the two copies of a tied embedding; both then step alike and stay equal."""
        if self.axes.embedding is not None and self.tied is not None and self.tied.grad is not None:
            total = self.tied.grad.contiguous()
            self.axes.embedding.all_reduce(total)
            self.tied.grad = total

    def parameters(self) -> Iterator[nn.Parameter]:
        """This rank's parameters, each once."""
        seen = dict.fromkeys(p for stage in self.stages.values() for p in stage.parameters())
        return iter(seen)

    def counted(self) -> list[nn.Parameter]:
        """The parameters that this rank answers for in the norm of the whole model.

        Slices count on every rank, whole parameters on the first rank of `tp` alone, a tied embedding with
        its first copy alone. Replicas (`dp`) have equal norms, each for itself.
        """
        found: dict[nn.Parameter, None] = {}
        second = self.axes.embedding is not None and self.axes.embedding.rank > 0
        for stage in self.stages.values():
            split = slices_of(stage)
            for name, parameter in stage.named_parameters():
                if (name in split or self.axes.tp.rank == 0) and not (second and parameter is self.tied):
                    found[parameter] = None
        return list(found)

    def norm(self) -> Tensor:
        """Return the 2-norm of the whole model's gradients, alike on every rank; 4 bytes over `model`."""
        comms = self.axes.model
        return global_norm(self.counted(), comms if comms.world_size > 1 else None)

    def clip(self, max_norm: float) -> Tensor:
        """Scale all gradients by max_norm / norm where the norm exceeds `max_norm`; return the norm.

        Raises:
            ValueError: `max_norm` is not positive.
        """
        if not max_norm > 0:
            raise ValueError(f"max_norm is {max_norm}; allowed: > 0")
        norm = self.norm()
        factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(factor.to(parameter.grad.dtype))
        return norm
