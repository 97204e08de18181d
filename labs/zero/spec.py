"""What the workbench must know of the zero lab: its parameters and the combinations it refuses."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from labs.model_sizes import check_depth, check_heads
from labs.params import LabSpec, ParameterError, fields_of
from labs.supply import Supply, check_shares, check_text
from labs.zero import theory

Stage = Literal["0", "1", "2", "3", "fsdp2", "hsdp"]
ELEMENTS_A_RANK = 64
"""The least of a layer on each rank, so that padding stays out of the measurements."""


class ZeroParams(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of `workbench --run zero`."""

    stage: Annotated[
        Stage,
        Meta(
            description="what is sharded. 0: nothing; 1: optimizer state; 2: gradients too; 3: parameters "
            "too; fsdp2: as 3, by PyTorch's fully_shard; hsdp: as 3 in groups, replicated over them"
        ),
    ] = "3"
    model: Annotated[
        Literal["mlp", "lm"], Meta(description="mlp: the deep MLP; lm: a small transformer over bytes")
    ] = "mlp"
    data: Annotated[
        str,
        Meta(
            description="your own folder of text files (lm; empty: the standard library's sources)",
            extra={"unit": "FOLDER"},
        ),
    ] = ""
    steps: Annotated[int, Meta(ge=2, le=100_000, description="optimizer steps")] = 20
    batch: Annotated[
        int, Meta(ge=2, le=65_536, description="rows, or sequences of the lm, of the batch over all ranks")
    ] = 64
    accumulate: Annotated[
        int, Meta(ge=1, le=1024, description="micro-batches a step, whose gradients add up")
    ] = 1
    epochs: Annotated[
        int, Meta(ge=1, le=1000, description="times that the run reads all its examples (lm)")
    ] = 2
    dim: Annotated[int, Meta(ge=16, le=8192, description="width of every layer")] = 128
    layers: Annotated[int, Meta(ge=1, le=64, description="layers")] = 4
    heads: Annotated[int, Meta(ge=1, le=128, description="attention heads (lm)")] = 4
    context: Annotated[int, Meta(ge=4, le=4096, description="bytes in a sequence (lm)")] = 32
    lr: Annotated[float, Meta(gt=0, le=10, description="learning rate of AdamW")] = 1e-3
    precision: Annotated[
        Literal["fp32", "bf16"],
        Meta(
            description="bf16: compute and communicate in bf16, the optimizer steps fp32 masters; many CPUs "
            "compute it ten times slower"
        ),
    ] = "fp32"
    clip: Annotated[
        float, Meta(ge=0, le=1e6, description="largest norm of the whole gradient; 0: do not clip")
    ] = 0.0
    shard_group: Annotated[
        int, Meta(ge=0, le=1024, description="ranks that share one replica out (hsdp); 0: the most below all")
    ] = 0
    offload: Annotated[
        bool, Meta(description="keep shards and optimizer state in the CPU's memory (GPUs, from stage 3 on)")
    ] = False


LM_ONLY = ("data", "epochs", "heads", "context")
"""Parameters that mean nothing to the MLP."""


def supply_of(params: ZeroParams) -> Supply:
    """Return what the run reads; micro-batches are parts of a step's batch."""
    return Supply(params.steps, params.epochs, params.batch)


def group_of(params: ZeroParams, world_size: int) -> int:
    """Return how many ranks share one replica out."""
    if params.stage != "hsdp":
        return world_size
    return params.shard_group or theory.default_shard_group(world_size)


def validate(params: ZeroParams, world_size: int) -> None:
    """Refuse what does not fit the ranks, and options that do not go together.

    Raises:
        ParameterError: naming the flag and what would fit.
    """
    least = world_size * params.accumulate
    if params.batch < least:
        where = f" in some of {params.accumulate} micro-batches" if params.accumulate > 1 else ""
        raise ParameterError(
            "--batch",
            f"{params.batch} rows leave some of {world_size} ranks without one{where}; "
            f"give --batch {least} or more, or fewer ranks",
        )
    if params.dim**2 < ELEMENTS_A_RANK * world_size:
        wide = math.ceil(math.sqrt(ELEMENTS_A_RANK * world_size))
        raise ParameterError(
            "--dim",
            f"{params.dim} makes layers of {params.dim**2} elements, too few for {world_size} ranks; "
            f"give --dim {wide} or more, or fewer ranks",
        )
    _validate_group(params, world_size)
    _validate_model(params, world_size)
    if params.offload and theory.SHARDED[params.stage] < 3:
        raise ParameterError("--offload", "moves shards of parameters; give --stage 3, fsdp2 or hsdp with it")


def _validate_model(params: ZeroParams, world_size: int) -> None:
    """Refuse what the model would ignore, and a language model or text that does not fit."""
    if params.model == "mlp":
        for field in fields_of(ZeroParams):
            if field.name in LM_ONLY and getattr(params, field.name) != field.default:
                raise ParameterError(
                    field.flag, "means nothing with --model mlp; leave it out, or give --model lm"
                )
        check_depth(params.layers)
        return
    check_heads(params.dim, params.heads)
    check_shares(params.batch, world_size)
    check_text(params.data, params.context, supply_of(params), "--batch x --context")


def _validate_group(params: ZeroParams, world_size: int) -> None:
    """Refuse shard groups that make no grid of the ranks."""
    if params.stage != "hsdp":
        if params.shard_group:
            raise ParameterError(
                "--shard-group", f"stage {params.stage} shards over all ranks; give --stage hsdp"
            )
        return
    if params.shard_group:
        if world_size % params.shard_group:
            fitting = [str(d) for d in range(1, world_size + 1) if world_size % d == 0]
            raise ParameterError(
                "--shard-group",
                f"{params.shard_group} does not divide {world_size} ranks; allowed: {', '.join(fitting)}",
            )
    elif not theory.default_shard_group(world_size):
        raise ParameterError(
            "--nproc",
            f"{world_size} ranks make no grid with two axes for hsdp; "
            f"give 4 or another number with divisors, or --shard-group {world_size}",
        )


def validate_device(params: ZeroParams, device: str) -> None:
    """Refuse to offload from the CPU to the CPU.

    Raises:
        ParameterError: naming `--offload`.
    """
    if params.offload and device != "cuda":
        raise ParameterError(
            "--offload",
            "moves shards from GPUs to the CPU's memory, and this run is on the CPU; "
            "leave it out, or run with one GPU a rank",
        )


SPEC = LabSpec(
    id="zero",
    title="ZeRO",
    summary="Shard optimizer state, gradients, parameters in turn: the same result from less memory.",
    group="data",
    params=ZeroParams,
    panes=(
        "loss",
        "ranks",
        "shards",
        "memory",
        "communication",
        "timeline",
        "utilisation",
        "checks",
        "log",
    ),
    teaches=(
        "which rank holds which slice of parameters, gradients and optimizer state",
        "what each stage saves in memory, by the rules 4+4+8 and 2+2+12 bytes a parameter",
        "stages 1 and 2 move what plain data parallelism moves, stage 3 half as much again",
        "a layer's parameters are whole only while the layer runs",
        "hybrid sharding: which bytes stay inside a group, and which cross to the replicas",
        "a sampler deals each example to one rank, in another order each epoch",
    ),
    min_ranks=2,
    max_ranks=64,
    default_ranks=4,
    validate=validate,
    validate_device=validate_device,
)
