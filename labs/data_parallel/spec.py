"""What the workbench must know of the dp lab: its parameters and the combinations it refuses."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from labs.data_parallel import sources
from labs.model_sizes import check_depth, check_heads
from labs.pacing import AUTO, misfit
from labs.params import LabSpec, ParameterError, fields_of
from labs.supply import check_shares

Variant = Literal["naive", "flat", "bucketed", "ddp"]
Model = Literal["mlp", "lm", "classifier"]
Precision = Literal["fp32", "bf16", "fp16"]


class DataParallelParams(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of `workbench --run dp`."""

    variant: Annotated[
        Variant,
        Meta(
            description="naive: one all-reduce a parameter; flat: one for all gradients; "
            "bucketed: several, which start while backward runs; ddp: PyTorch's own, for comparison"
        ),
    ] = "naive"
    bucket_mb: Annotated[
        float,
        Meta(gt=0, le=1024, description="MiB a bucket (--variant bucketed, ddp)", extra={"unit": "MiB"}),
    ] = 0.05
    model: Annotated[
        Model,
        Meta(
            description="mlp: the deep MLP on random rows; lm: a small transformer on text; "
            "classifier: images in IDX files"
        ),
    ] = "mlp"
    data: Annotated[
        str,
        Meta(
            description="your own folder: text files (lm; empty: the standard library's sources) "
            "or MNIST-style IDX files (classifier)",
            extra={"unit": "FOLDER"},
        ),
    ] = ""
    accumulate: Annotated[
        int, Meta(ge=1, le=1024, description="batches whose gradients are added up before one step")
    ] = 1
    precision: Annotated[
        Precision,
        Meta(
            description="of forward, by autocast; fp16 (loss scaled) on GPUs only; many CPUs compute bf16 "
            "ten times slower"
        ),
    ] = "fp32"
    steps: Annotated[int, Meta(ge=2, le=100_000, description="optimizer steps")] = 40
    batch: Annotated[
        int, Meta(ge=2, le=65_536, description="rows, sequences or images of the whole batch, over all ranks")
    ] = 24
    epochs: Annotated[
        int, Meta(ge=1, le=1000, description="times that the run reads all its examples (lm, classifier)")
    ] = 2
    dim: Annotated[int, Meta(ge=2, le=8192, description="width of every layer")] = 64
    layers: Annotated[int, Meta(ge=1, le=64, description="layers of the model")] = 4
    heads: Annotated[int, Meta(ge=1, le=128, description="attention heads (lm)")] = 4
    context: Annotated[int, Meta(ge=2, le=4096, description="bytes in a sequence (lm)")] = 32
    lr: Annotated[float, Meta(gt=0, le=10, description="learning rate of AdamW")] = 2e-3
    pace_ms: Annotated[
        float,
        Meta(
            ge=AUTO,
            le=10_000,
            description="stretch each forward to so long, backward to twice; 0: off; -1: 20 where ranks "
            "outnumber the cores",
            extra={"unit": "ms"},
        ),
    ] = AUTO


ONLY: dict[str, tuple[str, tuple[str, ...]]] = {
    "bucket_mb": ("variant", ("bucketed", "ddp")),
    "data": ("model", ("lm", "classifier")),
    "epochs": ("model", ("lm", "classifier")),
    "heads": ("model", ("lm",)),
    "context": ("model", ("lm",)),
}
"""Parameters that mean something with some values of another one only."""


def validate(params: DataParallelParams, world_size: int) -> None:
    """Refuse what would be ignored, a batch that cannot be shared out, and data that cannot be read.

    Raises:
        ParameterError: naming the flag.
    """
    _refuse_ignored(params)
    if params.batch < world_size:
        raise ParameterError(
            "--batch",
            f"{params.batch} rows leave some of {world_size} ranks without one; "
            f"give --batch {world_size} or more, or fewer ranks",
        )
    if reason := misfit(params.pace_ms):
        raise ParameterError("--pace-ms", reason)
    if params.model == "mlp":
        check_depth(params.layers)
        return
    check_shares(params.batch, world_size)
    if params.model == "lm":
        check_heads(params.dim, params.heads)
    sources.check(params)


def validate_device(params: DataParallelParams, device: str) -> None:
    """Refuse fp16 on the CPU.

    Raises:
        ParameterError: naming `--precision`.
    """
    if params.precision == "fp16" and device != "cuda":
        raise ParameterError(
            "--precision",
            "fp16 needs GPUs, one a rank, and this run is on the CPU; allowed here: fp32, bf16",
        )


def _refuse_ignored(params: DataParallelParams) -> None:
    fields = {field.name: field for field in fields_of(DataParallelParams)}
    for name, (other, values) in ONLY.items():
        field, value = fields[name], getattr(params, other)
        if getattr(params, name) != field.default and value not in values:
            allowed = " or ".join(f"--{other} {one}" for one in values)
            raise ParameterError(
                field.flag, f"means nothing with --{other} {value}; leave it out, or give {allowed}"
            )


SPEC = LabSpec(
    id="dp",
    title="Data parallel",
    summary="Train one model on several ranks: each takes part of the batch, all-reduce averages gradients.",
    group="data",
    params=DataParallelParams,
    panes=("loss", "ranks", "shards", "communication", "timeline", "utilisation", "checks", "log"),
    teaches=(
        "losses differ by rank while parameters stay bitwise equal",
        "averaged gradients are those of one process on the whole batch",
        "why the replicas must start equal, and who sees to it",
        "communication grows with the model, not with the batch; accumulating divides it by N",
        "buckets let the all-reduce hide behind backward; how much of it does",
        "a sampler deals each example to one rank, in another order each epoch",
    ),
    min_ranks=2,
    max_ranks=64,
    default_ranks=4,
    validate=validate,
    validate_device=validate_device,
)
