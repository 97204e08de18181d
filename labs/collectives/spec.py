"""What the workbench must know of the collectives lab: its parameters and the combinations it refuses."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from labs.collectives.theory import OPS, RING, TREE, Op
from labs.params import LabSpec, ParameterError

Chosen = Literal["all", Op]
ReduceOp = Literal["sum", "avg", "min", "max", "product"]
Algorithm = Literal["library", "ring", "tree"]


class CollectivesParams(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of `workbench --run collectives`."""

    op: Annotated[Chosen, Meta(description="one operation, or all of them in turn")] = "all"
    reduce_op: Annotated[ReduceOp, Meta(description="how the reducing operations combine elements")] = "sum"
    root: Annotated[int, Meta(ge=0, le=63, description="the rank that gives or gets, where there is one")] = 0
    elements: Annotated[int, Meta(ge=1, le=16_384, description="elements of one piece of a buffer")] = 4
    dtype: Annotated[
        Literal["float32", "float64", "bfloat16", "int32", "int64"], Meta(description="element type")
    ] = "float32"
    async_op: Annotated[
        bool, Meta(description="start each operation, compute meanwhile, then wait for its handle")
    ] = False
    algorithm: Annotated[
        Algorithm, Meta(description="besides the library's call, run the op step by step from sends")
    ] = "library"
    mismatch: Annotated[
        bool, Meta(description="the last rank brings one element more to an all-reduce: see what is told")
    ] = False


def ops_of(params: CollectivesParams) -> tuple[Op, ...]:
    """Return the operations to run, in the order of the lab."""
    return tuple(op for op in OPS if params.op in ("all", op))


def steps_of(params: CollectivesParams) -> tuple[Op, ...]:
    """Return the operations that the chosen algorithm runs step by step."""
    able: dict[Algorithm, tuple[Op, ...]] = {"library": (), "ring": RING, "tree": TREE}
    return tuple(op for op in ops_of(params) if op in able[params.algorithm])


def validate(params: CollectivesParams, world_size: int) -> None:
    """Refuse a root that is no rank, a mean of integers, and an algorithm that does not fit the op.

    Raises:
        ParameterError: naming the flag.
    """
    if params.root >= world_size:
        raise ParameterError(
            "--root", f"{params.root} is no rank of {world_size}; allowed: 0 to {world_size - 1}"
        )
    if params.reduce_op == "avg" and params.dtype.startswith("int"):
        raise ParameterError(
            "--reduce-op",
            f"avg of {params.dtype}: gloo cannot; use --reduce-op sum and divide, or a float --dtype",
        )
    if params.algorithm != "library" and not steps_of(params):
        able = ", ".join(RING if params.algorithm == "ring" else TREE)
        raise ParameterError("--algorithm", f"{params.algorithm} does not fit {params.op}; it runs {able}")
    if params.mismatch and params.op not in ("all", "all_reduce"):
        raise ParameterError("--mismatch", f"does not fit {params.op}; use it with --op all_reduce")
    if params.mismatch and (params.async_op or params.algorithm != "library"):
        unused = "--async-op" if params.async_op else f"--algorithm {params.algorithm}"
        raise ParameterError("--mismatch", f"is one plain all-reduce by the library; leave {unused} out")


SPEC = LabSpec(
    id="collectives",
    title="Collectives",
    summary="Run every collective, and see each rank's buffer before and after beside the definition.",
    group="communication",
    params=CollectivesParams,
    panes=("buffers", "communication", "timeline", "ranks", "checks", "log"),
    teaches=(
        "what each operation leaves on which rank",
        "all-reduce is reduce-scatter followed by all-gather",
        "what a rank sends for each, and how the ring gets there",
        "a handle separates starting an operation from waiting for it",
    ),
    min_ranks=2,
    max_ranks=64,
    default_ranks=4,
    validate=validate,
)
