"""What the workbench must know of the dp lab: its parameters and the combinations it refuses."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from labs.params import LabSpec, ParameterError

Variant = Literal["naive", "flat", "bucketed"]


class DataParallelParams(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of `workbench --run dp`."""

    variant: Annotated[
        Variant,
        Meta(
            description="naive: one all-reduce a parameter; flat: one for all gradients; "
            "bucketed: several, which start while backward runs"
        ),
    ] = "naive"
    bucket_mb: Annotated[
        float, Meta(gt=0, le=1024, description="MiB a bucket, for --variant bucketed", extra={"unit": "MiB"})
    ] = 0.1
    steps: Annotated[int, Meta(ge=2, le=100_000, description="optimizer steps")] = 60
    batch: Annotated[int, Meta(ge=2, le=65_536, description="rows of the whole batch, over all ranks")] = 128
    dim: Annotated[int, Meta(ge=2, le=8192, description="width of every layer")] = 128
    layers: Annotated[int, Meta(ge=1, le=64, description="layers of the deep MLP")] = 4
    lr: Annotated[float, Meta(gt=0, le=10, description="learning rate of AdamW")] = 1e-3


def validate(params: DataParallelParams, world_size: int) -> None:
    """Refuse a batch that leaves a rank without a row.

    Raises:
        ParameterError: naming `--batch`.
    """
    if params.batch < world_size:
        raise ParameterError(
            "--batch",
            f"{params.batch} rows leave some of {world_size} ranks without one; "
            f"give --batch {world_size} or more, or fewer ranks",
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
        "communication grows with the model, not with the batch",
    ),
    min_ranks=2,
    max_ranks=64,
    default_ranks=4,
    validate=validate,
)
