"""Which wrapper a stage is, and over which ranks: for hybrid sharding a mesh with two axes."""

from __future__ import annotations

from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from labs.context import Context
from labs.parallel.fully_sharded import Observer
from labs.zero.spec import ZeroParams, group_of
from labs.zero.stages import Change, FullySharded, Options, Replicated, ShardedState, Stage
from labs.zero.task import Task


def make_stage(
    ctx: Context, params: ZeroParams, task: Task, module: nn.Module, observer: Observer, changed: Change
) -> Stage:
    """Return the module in training at the stage asked for. Collective."""
    options = Options(params.lr, task.dtype, params.offload)
    match params.stage:
        case "0":
            return Replicated(module, ctx.comms, options)
        case "1" | "2":
            return ShardedState(module, ctx.comms, options, int(params.stage))
        case "fsdp2":
            from labs.zero.twin import TorchSharded  # loads DTensors, which the other stages do without

            return TorchSharded(module, ctx.comms, options, changed)
        case "hsdp":
            return _hybrid(ctx, params, module, options, observer)
    return FullySharded(module, ctx.comms, options, observer)


def _hybrid(
    ctx: Context, params: ZeroParams, module: nn.Module, options: Options, observer: Observer
) -> FullySharded:
    """Neighbouring ranks share a replica out, where the links are fastest; replicas lie across."""
    group = group_of(params, ctx.world_size)
    mesh = init_device_mesh(
        ctx.device.type, (ctx.world_size // group, group), mesh_dim_names=("replicate", "shard")
    )
    ctx.place({name: mesh.get_local_rank(name) for name in ("replicate", "shard")})
    shard = ctx.comms.over(mesh.get_group("shard"), "shard")
    replicate = ctx.comms.over(mesh.get_group("replicate"), "replicate")
    return FullySharded(module, shard, options, observer, replicate)
