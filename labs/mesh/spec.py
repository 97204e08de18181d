"""What the workbench must know of the mesh lab: its parameters and the combinations it refuses."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
from msgspec import Meta

from labs.mesh import theory
from labs.params import LabSpec, ParameterError


class MeshParams(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of `workbench --run mesh`."""

    shape: Annotated[str, Meta(description="the grid, such as 2x4 or 2x2x2; auto picks two axes")] = "auto"
    names: Annotated[str, Meta(description="a name for each axis, joined by commas; auto names them")] = (
        "auto"
    )
    sync_axis: Annotated[
        str, Meta(description="the axis over which sync_model averages; auto: the first axis")
    ] = "auto"
    dim: Annotated[
        int, Meta(ge=1, le=4096, description="width of the model that is synchronised and run")
    ] = 16
    ranks_per_node: Annotated[
        int, Meta(ge=0, le=4096, description="pretend nodes of so many ranks; 0: all ranks on one node")
    ] = 0


AUTO_NAMES = {
    1: ("world",),
    2: ("replicate", "model_parallel"),
    3: ("dp", "pp", "tp"),
}


def resolve(params: MeshParams, world_size: int) -> tuple[tuple[int, ...], tuple[str, ...], int]:
    """Return shape, names and the index of the axis to synchronise, with `auto` filled in.

    Raises:
        ParameterError: a shape whose product is not the world size, names that do not fit the shape, an
            axis that has no such name.
    """
    shape = _shape(params, world_size)
    names = _names(params, len(shape))
    if params.sync_axis == "auto":
        return shape, names, 0
    if params.sync_axis not in names:
        raise ParameterError("--sync-axis", f"{params.sync_axis!r} is no axis; allowed: {', '.join(names)}")
    return shape, names, names.index(params.sync_axis)


def _shape(params: MeshParams, world_size: int) -> tuple[int, ...]:
    if params.shape == "auto":
        num_axes = 2 if params.names == "auto" else len(params.names.split(","))
        return theory.default_shape(world_size, num_axes)
    try:
        shape = theory.parse_shape(params.shape)
    except ValueError as error:
        raise ParameterError("--shape", str(error)) from None
    if math.prod(shape) != world_size:
        fitting = "x".join(map(str, theory.default_shape(world_size, len(shape))))
        raise ParameterError(
            "--shape",
            f"{params.shape} has {math.prod(shape)} places for {world_size} ranks; "
            f"the product must be the world size: --shape {fitting}, or --nproc {math.prod(shape)}",
        )
    return shape


def _names(params: MeshParams, num_axes: int) -> tuple[str, ...]:
    if params.names == "auto":
        return AUTO_NAMES.get(num_axes, tuple(f"axis{index}" for index in range(num_axes)))
    try:
        names = theory.parse_names(params.names)
    except ValueError as error:
        raise ParameterError("--names", str(error)) from None
    if len(names) != num_axes:
        raise ParameterError(
            "--names",
            f"{params.names} names {len(names)} axes, the shape has {num_axes}; give one name an axis",
        )
    return names


def validate(params: MeshParams, world_size: int) -> None:
    """Refuse what `resolve` refuses, and nodes that do not divide the world.

    Raises:
        ParameterError: see `resolve`; also `--ranks-per-node` that leaves a node half full.
    """
    resolve(params, world_size)
    check_nodes(params.ranks_per_node, world_size)


def check_nodes(ranks_per_node: int, world_size: int) -> None:
    """Refuse pretended nodes that do not divide the world; 0: one node.

    Raises:
        ParameterError: naming `--ranks-per-node`.
    """
    if ranks_per_node and world_size % ranks_per_node:
        raise ParameterError(
            "--ranks-per-node",
            f"{ranks_per_node} does not divide {world_size} ranks; give a divisor, or 0 for one node",
        )


SPEC = LabSpec(
    id="mesh",
    title="Device mesh",
    summary="Lay the ranks on a grid with named axes, and see the process groups each axis makes.",
    group="communication",
    params=MeshParams,
    panes=("mesh", "communication", "timeline", "ranks", "utilisation", "checks", "log"),
    teaches=(
        "a mesh is a grid of ranks; each axis makes process groups",
        "a 2x4 mesh makes six groups: two rows and four columns",
        "averaging over the replicate axis, point-to-point over the model axis",
        "the order of the axes decides which of them crosses nodes",
    ),
    min_ranks=1,
    max_ranks=64,
    default_ranks=8,
    tells=True,
    validate=validate,
)
