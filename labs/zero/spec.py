"""What the workbench must know of the zero lab: its parameters and the combinations it refuses."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from labs.params import LabSpec, ParameterError

Stage = Literal["0", "1", "2", "3"]
ELEMENTS_A_RANK = 64
"""The least of a layer on each rank, so that padding stays out of the measurements."""


class ZeroParams(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of `workbench --run zero`."""

    stage: Annotated[
        Stage,
        Meta(
            description="what is sharded. 0: nothing; 1: optimizer state; 2: gradients too; 3: parameters too"
        ),
    ] = "3"
    steps: Annotated[int, Meta(ge=2, le=100_000, description="optimizer steps")] = 20
    batch: Annotated[int, Meta(ge=2, le=65_536, description="rows of the whole batch, over all ranks")] = 64
    dim: Annotated[int, Meta(ge=16, le=8192, description="width of every layer")] = 128
    layers: Annotated[int, Meta(ge=1, le=64, description="layers of the deep MLP")] = 4
    lr: Annotated[float, Meta(gt=0, le=10, description="learning rate of AdamW")] = 1e-3


def validate(params: ZeroParams, world_size: int) -> None:
    """Refuse a batch that leaves a rank without a row, and layers too small to share out evenly.

    Raises:
        ParameterError: naming `--batch` or `--dim`.
    """
    if params.batch < world_size:
        raise ParameterError(
            "--batch",
            f"{params.batch} rows leave some of {world_size} ranks without one; "
            f"give --batch {world_size} or more, or fewer ranks",
        )
    if params.dim**2 < ELEMENTS_A_RANK * world_size:
        least = math.ceil(math.sqrt(ELEMENTS_A_RANK * world_size))
        raise ParameterError(
            "--dim",
            f"{params.dim} makes layers of {params.dim**2} elements, too few for {world_size} ranks; "
            f"give --dim {least} or more, or fewer ranks",
        )


SPEC = LabSpec(
    id="zero",
    title="ZeRO",
    summary="Shard optimizer state, gradients, parameters in turn: the same result from less memory.",
    group="data",
    params=ZeroParams,
    panes=("loss", "ranks", "shards", "communication", "timeline", "utilisation", "checks", "log"),
    teaches=(
        "which rank holds which slice of parameters, gradients and optimizer state",
        "what each stage saves in memory, by the rule 4+4+8 bytes a parameter",
        "stages 1 and 2 move what plain data parallelism moves, stage 3 half as much again",
        "a layer's parameters are whole only while the layer runs",
    ),
    min_ranks=2,
    max_ranks=64,
    default_ranks=4,
    validate=validate,
)
