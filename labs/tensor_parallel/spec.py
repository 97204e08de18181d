"""What the workbench must know of the tp lab: its parameters and the combinations it refuses."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from labs.model_sizes import check_depth, check_heads, hidden_width
from labs.params import LabSpec, ParameterError

VOCABULARY = 256


class TensorParallelParams(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of `workbench --run tp`."""

    variant: Annotated[
        Literal["megatron", "gather", "dtensor"],
        Meta(
            description="megatron: column-row pairs; gather: columns, activations all-gathered; "
            "dtensor: the pairs by PyTorch's parallelize_module"
        ),
    ] = "megatron"
    model: Annotated[
        Literal["mlp", "lm"], Meta(description="mlp: the deep MLP; lm: a small transformer over bytes")
    ] = "mlp"
    sequence_parallel: Annotated[
        bool, Meta(description="between the pairs, split activations along the sequence (lm)")
    ] = False
    steps: Annotated[int, Meta(ge=1, le=100_000, description="optimizer steps")] = 20
    batch: Annotated[int, Meta(ge=1, le=65_536, description="rows, or sequences of the lm, in a batch")] = 16
    dim: Annotated[int, Meta(ge=2, le=16_384, description="width of the model")] = 64
    layers: Annotated[int, Meta(ge=1, le=64, description="layers")] = 4
    heads: Annotated[int, Meta(ge=1, le=128, description="attention heads (lm)")] = 8
    context: Annotated[int, Meta(ge=4, le=4096, description="bytes in a sequence (lm)")] = 32
    lr: Annotated[float, Meta(gt=0, le=10, description="learning rate of AdamW")] = 1e-3


def validate(params: TensorParallelParams, world_size: int) -> None:
    """Refuse what does not divide among the ranks, and options that do not go together.

    Raises:
        ParameterError: naming the flag and what would fit.
    """
    if params.model == "lm" and VOCABULARY % world_size:
        fits = 1 << (world_size.bit_length() - 1)
        raise ParameterError(
            "--nproc",
            f"{world_size} ranks do not divide the {VOCABULARY} bytes; {fits} or {2 * fits} would fit",
        )
    if params.dim % world_size:
        raise ParameterError(
            "--dim", f"{params.dim} does not divide among {world_size} ranks; give a multiple of {world_size}"
        )
    if params.model == "mlp":
        _validate_mlp(params)
    else:
        _validate_lm(params, world_size)


def _validate_mlp(params: TensorParallelParams) -> None:
    if params.sequence_parallel:
        raise ParameterError("--sequence-parallel", "the mlp has no sequence; give --model lm with it")
    if params.variant != "gather" and params.layers % 2:
        raise ParameterError(
            "--layers", f"{params.layers} layers make no column-row pairs; give an even number"
        )
    check_depth(params.layers)


def _validate_lm(params: TensorParallelParams, world_size: int) -> None:
    if params.variant == "gather":
        raise ParameterError(
            "--variant", "gather splits the mlp only; give --model mlp, or --variant megatron or dtensor"
        )
    if params.heads % world_size:
        fitting = -(-params.heads // world_size) * world_size
        # The vocabulary has left powers of two alone, so the fewer ranks that fit are one too.
        fewer = params.heads & -params.heads
        instead = f", or --nproc {fewer}" if fewer > 1 else ""
        raise ParameterError(
            "--heads",
            f"{params.heads} heads do not divide among {world_size} ranks; give --heads {fitting}{instead}",
        )
    check_heads(params.dim, params.heads)
    hidden = hidden_width(params.dim)
    if hidden % world_size:
        raise ParameterError(
            "--dim",
            f"{params.dim} gives {hidden} hidden features, which {world_size} ranks do not divide; "
            f"{6 * world_size * params.heads} would fit",
        )
    if params.sequence_parallel and params.context % world_size:
        raise ParameterError(
            "--context",
            f"{params.context} bytes do not divide among {world_size} ranks (sequence parallel); "
            f"give a multiple of {world_size}",
        )


SPEC = LabSpec(
    id="tp",
    title="Tensor parallel",
    summary="Split one model's matrices over the ranks: columns, then rows, and one sum for the pair.",
    group="model",
    params=TensorParallelParams,
    panes=("loss", "shards", "communication", "timeline", "ranks", "utilisation", "checks", "log"),
    teaches=(
        "split by columns: activations are gathered, gradients reduce-scattered",
        "column then row: one all-reduce forward and one backward a pair",
        "heads and vocabulary split too, the loss without gathering the logits",
        "sequence parallel: the same bytes, activations 1/W in size",
        "bytes and calls a layer, and what a pipeline would send for the same model",
    ),
    min_ranks=2,
    max_ranks=64,
    default_ranks=4,
    validate=validate,
)
