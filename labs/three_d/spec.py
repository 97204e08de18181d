"""What the workbench must know of the 3D lab: its parameters and the combinations it refuses."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from labs.mesh.spec import check_nodes
from labs.model_sizes import check_depth, check_heads, hidden_width
from labs.pacing import AUTO, StagePace, misfit, round_trip_s
from labs.parallel.schedules import MAX_CHUNKS, misfit_chunks, misfit_micro_batches, rule_of
from labs.params import LabSpec, ParameterError

VOCABULARY = 256
DEEPEST_MLP = 16
"""SGD, which takes the gradients as they are, moves no weight of a deeper one by a digit."""
BACKWARD_RATIO = 2.0
"""A paced backward takes so many forwards."""
ScheduleName = Literal[
    "naive", "gpipe", "1f1b", "interleaved", "looped_bfs", "zb_h1", "interleaved_zb", "zbv", "dualpipev"
]


class ThreeDParams(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of `workbench --run 3d`."""

    dp: Annotated[int, Meta(ge=1, le=64, description="replicas: ranks of the axis dp")] = 2
    tp: Annotated[int, Meta(ge=1, le=64, description="ranks that share a layer's matrices: axis tp")] = 2
    pp: Annotated[int, Meta(ge=1, le=64, description="ranks of a pipeline: axis pp")] = 2
    model: Annotated[
        Literal["lm", "mlp"],
        Meta(description="lm: a small transformer with tied embeddings; mlp: the deep MLP"),
    ] = "lm"
    schedule: Annotated[ScheduleName, Meta(description="the pipeline's: who does what in which order")] = (
        "1f1b"
    )
    micro_batches: Annotated[
        int, Meta(ge=1, le=1024, description="pieces that a replica's batch is cut into (m)")
    ] = 4
    chunks: Annotated[
        int, Meta(ge=0, le=MAX_CHUNKS, description="stages a rank holds (v); 0: the schedule's own")
    ] = 0
    layers: Annotated[
        int, Meta(ge=0, le=1024, description="layers of the whole model; 0: two for each stage")
    ] = 0
    dim: Annotated[int, Meta(ge=2, le=4096, description="width of the model")] = 32
    heads: Annotated[int, Meta(ge=1, le=128, description="attention heads (lm)")] = 4
    context: Annotated[int, Meta(ge=4, le=4096, description="bytes in a sequence (lm)")] = 16
    micro_batch_size: Annotated[
        int, Meta(ge=1, le=4096, description="sequences (lm) or rows (mlp) in a micro-batch")
    ] = 2
    sequence_parallel: Annotated[
        bool, Meta(description="between the layers' matrices, split activations along the sequence (lm)")
    ] = False
    steps: Annotated[int, Meta(ge=1, le=100_000, description="optimizer steps")] = 4
    lr: Annotated[float, Meta(gt=0, le=10, description="learning rate of SGD")] = 0.3
    clip: Annotated[
        float, Meta(gt=0, le=1e6, description="the gradients' norm over all ranks is cut to this")
    ] = 1.0
    pace_ms: StagePace = AUTO
    ranks_per_node: Annotated[
        int, Meta(ge=0, le=4096, description="pretend nodes of so many ranks; 0: all ranks on one node")
    ] = 0

    @property
    def num_chunks(self) -> int:
        """Stages a rank holds, with the schedule's own default filled in."""
        return self.chunks or rule_of(self.schedule).default_chunks

    @property
    def num_stages(self) -> int:
        """Stages of the whole pipeline."""
        return self.pp * self.num_chunks

    @property
    def num_layers(self) -> int:
        """Layers of the whole model, with the default filled in."""
        return self.layers or 2 * self.num_stages

    @property
    def shape(self) -> tuple[int, int, int]:
        """The mesh, outermost axis first: dp, pp, tp."""
        return self.dp, self.pp, self.tp


def validate(params: ThreeDParams, world_size: int) -> None:
    """Refuse a mesh that is not the world, and numbers that do not divide, saying which would fit.

    Raises:
        ParameterError: naming the flag, its value and what is allowed.
    """
    _validate_mesh(params, world_size)
    _validate_sizes(params)
    if reason := misfit(params.pace_ms):
        raise ParameterError("--pace-ms", reason)


def patience_s(params: ThreeDParams, world_size: int) -> float:
    """Return how long a rank may wait for the paced actions of the others in its pipeline."""
    return round_trip_s(params.pace_ms, params.num_stages, BACKWARD_RATIO)


def _validate_sizes(params: ThreeDParams) -> None:
    if params.chunks and (reason := misfit_chunks(params.schedule, params.chunks)):
        raise ParameterError("--chunks", reason)
    if reason := misfit_micro_batches(params.schedule, params.pp, params.micro_batches):
        raise ParameterError("--micro-batches", reason)
    _validate_layers(params)
    if params.sequence_parallel and params.tp == 1:
        raise ParameterError("--sequence-parallel", "--tp 1 splits nothing; give --tp 2 or more with it")
    if params.model == "lm":
        _validate_lm(params)
        return
    if params.sequence_parallel:
        raise ParameterError("--sequence-parallel", "the mlp has no sequence; give --model lm with it")
    if params.dim % params.tp:
        raise ParameterError("--dim", _undivided(params.dim, "columns", params.tp, "--tp"))
    check_depth(params.num_layers, DEEPEST_MLP)


def _validate_mesh(params: ThreeDParams, world_size: int) -> None:
    places = params.dp * params.pp * params.tp
    if places != world_size:
        fits = _fitting_mesh(params, world_size)
        instead = f", or for {world_size} ranks --dp {fits[0]} --pp {fits[1]} --tp {fits[2]}" if fits else ""
        raise ParameterError(
            "--dp",
            f"{params.dp} x --pp {params.pp} x --tp {params.tp} make {places} places for {world_size} ranks; "
            f"give --nproc {places}{instead}",
        )
    check_nodes(params.ranks_per_node, world_size)


def _fitting_mesh(params: ThreeDParams, world_size: int) -> tuple[int, int, int] | None:
    """Return the mesh for so many ranks that fits all other parameters and is most like a cube."""
    divisors = [size for size in range(1, world_size + 1) if world_size % size == 0]
    shapes = [
        (world_size // (pp * tp), pp, tp) for pp in divisors for tp in divisors if world_size % (pp * tp) == 0
    ]
    for dp, pp, tp in sorted(shapes, key=lambda shape: (max(shape), shape)):
        try:
            _validate_sizes(msgspec.structs.replace(params, dp=dp, pp=pp, tp=tp))
        except ParameterError:
            continue
        return dp, pp, tp
    return None


def _validate_layers(params: ThreeDParams) -> None:
    stages = params.num_stages
    paired = params.model == "mlp" and params.tp > 1
    unit = 2 * stages if paired else stages
    if params.num_layers % unit:
        layers = params.num_layers
        below = [str(layers // unit * unit)] if layers > unit else []
        fits = " or ".join([*below, str((layers // unit + 1) * unit)])
        what = f"column-row pairs in {stages} stages" if paired else f"{stages} stages"
        raise ParameterError("--layers", f"{layers} layers do not divide into {what}; {fits} would fit")


def _validate_lm(params: ThreeDParams) -> None:
    if VOCABULARY % params.tp:
        raise ParameterError("--tp", f"{params.tp} does not divide the {VOCABULARY} bytes; give a power of 2")
    if params.heads % params.tp:
        raise ParameterError("--heads", _undivided(params.heads, "heads", params.tp, "--tp"))
    check_heads(params.dim, params.heads)
    if hidden_width(params.dim) % params.tp:
        raise ParameterError(
            "--dim",
            f"{params.dim} gives {hidden_width(params.dim)} hidden features, which --tp {params.tp} does not "
            f"divide; {3 * params.tp * 2 * params.heads} would fit",
        )
    if params.sequence_parallel and params.context % params.tp:
        raise ParameterError("--context", _undivided(params.context, "bytes", params.tp, "--tp"))


def _undivided(number: int, noun: str, parts: int, flag: str) -> str:
    fits = [str(fit) for fit in (number // parts * parts, (number // parts + 1) * parts) if fit]
    return f"{number} {noun} do not divide among {flag} {parts}; {' or '.join(fits)} would fit"


SPEC = LabSpec(
    id="3d",
    title="3D parallel",
    summary="Data, pipeline and tensor parallelism at once, on a mesh of three axes.",
    group="scale",
    params=ThreeDParams,
    panes=(
        "cube",
        "gantt",
        "timeline",
        "communication",
        "loss",
        "shards",
        "ranks",
        "utilisation",
        "checks",
        "log",
    ),
    teaches=(
        "W = dp x pp x tp: which group carries which bytes, and how often",
        "tensor parallel inside a node, pipeline across, data parallel outermost",
        "a stage's gradients are averaged while the other stages still run",
        "tied embeddings and the gradient norm need sums across the axes",
    ),
    min_ranks=1,
    max_ranks=64,
    default_ranks=8,
    # Its checks make every collective wait for the whole group first: nothing would overlap any more.
    debug_detail=False,
    validate=validate,
    patience_s=patience_s,
)
