"""What the workbench must know of the pipeline lab: its parameters and the combinations it refuses."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from labs.pacing import AUTO, StagePace, misfit, round_trip_s
from labs.parallel.schedules import MAX_CHUNKS, misfit_chunks, misfit_micro_batches, rule_of
from labs.params import LabSpec, ParameterError

ScheduleName = Literal[
    "naive", "gpipe", "1f1b", "interleaved", "looped_bfs", "zb_h1", "interleaved_zb", "zbv", "dualpipev"
]
TORCH_SCHEDULES = ("gpipe", "1f1b", "interleaved", "looped_bfs", "interleaved_zb", "zbv", "dualpipev")
MAX_WIDTH = 4096


class PipelineParams(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of `workbench --run pp`."""

    schedule: Annotated[ScheduleName, Meta(description="who does what in which order")] = "1f1b"
    micro_batches: Annotated[int, Meta(ge=1, le=1024, description="pieces that a batch is cut into (m)")] = 8
    chunks: Annotated[
        int, Meta(ge=0, le=MAX_CHUNKS, description="stages a rank holds (v); 0: the schedule's own")
    ] = 0
    layers: Annotated[
        int, Meta(ge=0, le=1024, description="layers of the whole model; 0: two for each stage")
    ] = 0
    dim: Annotated[int, Meta(ge=1, le=MAX_WIDTH, description="width of a layer")] = 32
    stage_dims: Annotated[
        str, Meta(description="widths of the stages, joined by commas and repeated; auto: all as --dim")
    ] = "auto"
    micro_batch_size: Annotated[int, Meta(ge=1, le=4096, description="examples in a micro-batch")] = 8
    steps: Annotated[int, Meta(ge=1, le=10_000, description="optimizer steps")] = 5
    pace_ms: StagePace = AUTO
    backward_ratio: Annotated[
        float, Meta(gt=0, le=10, description="a backward costs so many forwards, when paced")
    ] = 2.0
    checkpoint: Annotated[
        Literal["none", "full"],
        Meta(description="full: keep only a stage's input and run its forward again in the backward"),
    ] = "none"
    engine: Annotated[
        Literal["own", "torch"], Meta(description="own, or torch.distributed.pipelining beside it")
    ] = "own"

    @property
    def num_chunks(self) -> int:
        """Stages a rank holds, with the schedule's own default filled in."""
        return self.chunks or rule_of(self.schedule).default_chunks


def num_layers(params: PipelineParams, world_size: int) -> int:
    """Return the layers of the whole model, with the default filled in."""
    return params.layers or 2 * world_size * params.num_chunks


def widths(params: PipelineParams) -> tuple[int, ...]:
    """Return the widths that the stages take in turn.

    Raises:
        ParameterError: a word that is not a width.
    """
    if params.stage_dims == "auto":
        return (params.dim,)
    words = params.stage_dims.split(",")
    if not all(word.strip().isdigit() and 1 <= int(word) <= MAX_WIDTH for word in words):
        raise ParameterError(
            "--stage-dims",
            f"{params.stage_dims!r} is not auto or whole numbers 1 to {MAX_WIDTH} joined by commas: 64,32,16",
        )
    return tuple(int(word) for word in words)


def validate(params: PipelineParams, world_size: int) -> None:
    """Refuse numbers that do not fit the schedule, saying which would.

    Raises: ParameterError: chunks or micro-batches that the schedule cannot have, layers that stages do not
        divide, widths or a pace that are none, an engine that has not this schedule.
    """
    if params.chunks and (reason := misfit_chunks(params.schedule, params.chunks)):
        raise ParameterError("--chunks", reason)
    if reason := misfit_micro_batches(params.schedule, world_size, params.micro_batches):
        raise ParameterError("--micro-batches", reason)
    stages = world_size * params.num_chunks
    if params.layers % stages:
        below = [str(params.layers // stages * stages)] if params.layers > stages else []
        fits = " or ".join([*below, str((params.layers // stages + 1) * stages)])
        raise ParameterError(
            "--layers", f"{params.layers} layers do not divide into {stages} stages; {fits} would fit"
        )
    widths(params)
    if reason := misfit(params.pace_ms):
        raise ParameterError("--pace-ms", reason)
    if params.engine == "torch" and params.schedule not in TORCH_SCHEDULES:
        raise ParameterError(
            "--engine", f"torch has no {params.schedule}; use own, or one of {', '.join(TORCH_SCHEDULES)}"
        )
    if params.engine == "torch" and params.checkpoint != "none":
        raise ParameterError("--checkpoint", "full needs --engine own: torch's stages leave it to the model")


def patience_s(params: PipelineParams, world_size: int) -> float:
    """Return how long a rank may wait for the others' paced actions; a checkpointed forward runs twice."""
    backward = params.backward_ratio + (params.checkpoint == "full")
    return round_trip_s(params.pace_ms, world_size * params.num_chunks, backward)


SPEC = LabSpec(
    id="pp",
    title="Pipeline parallel",
    summary="Cut a model into stages, run micro-batches through them by nine schedules, and see the bubble.",
    group="model",
    params=PipelineParams,
    panes=("gantt", "loss", "ranks", "communication", "shards", "utilisation", "checks", "log"),
    teaches=(
        "stages hand activations on and gradients back; only the last stage has a loss",
        "the bubble, by three measures, and what micro-batches and chunks do to it",
        "1F1B has GPipe's bubble and less memory; zero bubble splits the backward in two",
        "checkpointing trades memory for about a third more compute",
    ),
    min_ranks=1,
    max_ranks=64,
    default_ranks=4,
    validate=validate,
    patience_s=patience_s,
)
