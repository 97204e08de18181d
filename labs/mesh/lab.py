"""The mesh lab: lay the ranks on a grid, check every group, average one axis, walk along another."""

from __future__ import annotations

from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from labs.comms import Comms
from labs.context import Context
from labs.mesh import theory
from labs.mesh.spec import MeshParams, resolve

BATCH = 4
T = TypeVar("T")


def run(ctx: Context, params: MeshParams) -> None:
    """Build the mesh and prove it: groups, coordinates, slices, `sync_model`, a forward by send and recv."""
    shape, names, sync_axis = resolve(params, ctx.world_size)
    stages = len(names) + 2
    ctx.step(0, stages)
    mesh = init_device_mesh(ctx.device.type, shape, mesh_dim_names=names)
    place = dict(zip(names, theory.coordinates(ctx.rank, shape), strict=True))
    ctx.place(place)
    comms = {name: ctx.comms.over(mesh.get_group(name), name) for name in names}
    made = {}
    for axis, name in enumerate(names):
        made[name] = check_axis(ctx, mesh, comms[name], axis, shape, name)
        ctx.step(axis + 1, stages)
    check_flattened(ctx, mesh, shape, names)
    weight = sync_model(ctx, comms[names[sync_axis]], sync_axis, shape, params.dim)
    ctx.step(stages - 1, stages)
    if len(names) > 1:
        walk_axis = next(axis for axis in reversed(range(len(names))) if axis != sync_axis)
        walk(ctx, for_messages(ctx, comms[names[walk_axis]]), walk_axis, shape, weight)
    tell_groups(ctx, made, params.ranks_per_node or ctx.world_size)


def gather(ctx: Context, mine: T) -> list[T]:
    """Return every rank's `mine`, in rank order, on every rank."""
    gathered: list[T] = [mine] * ctx.world_size
    dist.all_gather_object(gathered, mine)
    return gathered


def check_axis(
    ctx: Context, mesh: DeviceMesh, comms: Comms, axis: int, shape: tuple[int, ...], name: str
) -> list[tuple[int, ...]]:
    """Compare what DeviceMesh made of one axis with its definition; returns the groups that the ranks see."""
    piece = mesh[name]
    local_rank = mesh.get_local_rank(name)
    ctx.say(f'mesh["{name}"] = {piece.mesh.tolist()}: get_group {comms.ranks}, get_local_rank {local_rank}')
    seen = gather(ctx, (comms.ranks, local_rank))
    groups = sorted({tuple(ranks) for ranks, _ in seen})
    expected = [tuple(group) for group in theory.groups_along(axis, shape)]
    places = [local for _, local in seen]
    if ctx.rank != 0:
        return groups
    ctx.check(
        f"groups of axis {name}",
        groups == sorted(expected),
        measured=spell(groups),
        expected=spell(sorted(expected)),
        shows="ranks that agree in every other coordinate share a group",
    )
    local = [theory.coordinates(rank, shape)[axis] for rank in range(ctx.world_size)]
    ctx.check(
        f"local ranks of axis {name}",
        places == local,
        measured=" ".join(map(str, places)),
        expected=" ".join(map(str, local)),
        shows="a rank's number within its group is its coordinate on the axis",
    )
    return groups


def check_flattened(ctx: Context, mesh: DeviceMesh, shape: tuple[int, ...], names: tuple[str, ...]) -> None:
    """Flatten the first axes into one and compare: the groups are those that agree in what is left."""
    if len(names) < 2:
        return
    chosen = names[: max(2, len(names) - 1)]
    # No axis can have this name: names are identifiers.
    flat = mesh[chosen]._flatten("+".join(chosen))
    members = dist.get_process_group_ranks(flat.get_group())
    ctx.say(f"mesh[{', '.join(chosen)}] flattened: {members}, here at {flat.get_local_rank()}")
    seen = gather(ctx, members)
    groups = sorted({tuple(ranks) for ranks in seen})
    expected = sorted(tuple(g) for g in theory.flattened_groups(tuple(range(len(chosen))), shape))
    if ctx.rank == 0:
        ctx.check(
            f"{' and '.join(chosen)} flattened",
            groups == expected,
            measured=spell(groups),
            expected=spell(expected),
            shows="a slice of the mesh, flattened, is one axis whose groups join those of its parts",
        )


def sync_model(ctx: Context, comms: Comms, axis: int, shape: tuple[int, ...], dim: int) -> Tensor:
    """Average a layer over one axis only; returns the averaged weight, shape (dim, dim).

    Each rank starts with its own number everywhere, so the mean tells which ranks took part.
    """
    weight = torch.full((dim, dim), float(ctx.rank), device=ctx.device)
    ctx.tensor("weight[0]", "before", weight[0, :1])
    comms.all_reduce(weight)
    weight.div_(comms.world_size)
    ctx.tensor("weight[0]", "after", weight[0, :1], origin=[-1])
    seen = gather(ctx, (float(weight.min()), float(weight.max())))
    expected = []
    for rank in range(ctx.world_size):
        group = theory.group_of(rank, axis, shape)
        expected.append(sum(group) / len(group))
    if ctx.rank == 0:
        ctx.check(
            f"sync_model averages over {comms.name} alone",
            seen == [(mean, mean) for mean in expected],
            measured=" ".join(f"{low:g}" for low, _ in seen),
            expected=" ".join(f"{mean:g}" for mean in expected),
            shows="ranks of a group hold the mean of their numbers, and nobody else's",
        )
    return weight


def for_messages(ctx: Context, comms: Comms) -> Comms:
    """Return a communicator for send and recv along an axis; its own where the axis spans the world.

    A send counts in the group's sequence of calls, and a rank with one neighbour sends less than one with
    two. In the group that collectives use too, torch's DETAIL debugging would call that a mismatch.
    """
    if comms.world_size < ctx.world_size:
        return comms
    return comms.over(dist.new_group(), comms.name)


def walk(ctx: Context, comms: Comms, axis: int, shape: tuple[int, ...], weight: Tensor) -> None:
    """Pass a batch (4, dim) through the parts of the model along one axis, by send and recv.

    Part i waits for part i-1: the activations cross the axis, one boundary after another. A layer multiplies
    by less than 2, so that the way through many ranks stays in range.
    """
    dim = weight.shape[0]
    layer = weight / ctx.world_size + 1.0
    batch = torch.ones(BATCH, dim, device=ctx.device)
    if comms.rank > 0:
        comms.recv(batch, comms.rank - 1)
    with ctx.span("compute", "forward"):
        batch = batch @ layer / dim
    if comms.rank < comms.world_size - 1:
        comms.send(batch, comms.rank + 1)
    seen = gather(ctx, (float(batch[0, 0]), float(weight[0, 0])))
    if ctx.rank != 0:
        return
    wrong = []
    for rank in range(ctx.world_size):
        expected = 1.0
        for peer in theory.group_of(rank, axis, shape):
            expected *= seen[peer][1] / ctx.world_size + 1.0
            if peer == rank:
                break
        if abs(seen[rank][0] - expected) > 1e-4 * expected:
            wrong.append(rank)
    ctx.check(
        f"a forward along {comms.name}",
        not wrong,
        measured="wrong on ranks " + ", ".join(map(str, wrong)) if wrong else "right on every rank",
        expected="right on every rank",
        tolerance=1e-4,
        shows="each part applied its own layer to what the part before it sent",
    )


def tell_groups(ctx: Context, made: dict[str, list[tuple[int, ...]]], ranks_per_node: int) -> None:
    """Count the groups that each axis got, and say which axes have members on two nodes (1) or not (0)."""
    if ctx.rank != 0:
        return
    ctx.metric("groups", sum(len(groups) for groups in made.values()))
    for name, groups in made.items():
        ctx.metric(f"{name}.size", len(groups[0]))
        crosses = any(theory.crosses_nodes(list(group), ranks_per_node) for group in groups)
        ctx.metric(f"{name}.crosses_nodes", float(crosses))


def spell(groups: list[tuple[int, ...]]) -> str:
    """Write groups as `[0 4] [1 5]`."""
    return " ".join(f"[{' '.join(map(str, group))}]" for group in groups)
