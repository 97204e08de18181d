"""What each ZeRO stage must hold and move, from the number of parameters alone. Loads no torch.

Rajbhandari et al. 2020, "ZeRO", sections 3 and 5 to 7, with Adam. fp32: 4 bytes a parameter for the
parameters, 4 for the gradients, 8 for Adam's two moments. Mixed precision: 2 + 2 + 12, the 12 being fp32
masters and moments. Where the parameters themselves are sharded, the masters are the shards and the copy in
bf16 lives only while a layer runs: 4 + 4 + 8 again, of which a rank has its part, so the same 16 in all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

FP32 = 4
BF16 = 2
MOMENTS = 2
Moment = Literal["init", "before step", "after step"]
MOMENTS_OF_A_STEP: tuple[Moment, ...] = ("init", "before step", "after step")
KINDS = ("parameters", "gradients", "optimizer")
SHARDED = {"0": 0, "1": 1, "2": 2, "3": 3, "fsdp2": 3, "hsdp": 3}
"""By stage: 1 shards the optimizer's state, 2 gradients too, 3 parameters too."""


@dataclass(frozen=True)
class Setting:
    """What the formulas need of a run.

    `layers` and `root` are elements of the parameters in the layers and outside of them, `part` what one rank
    holds of all when they are shared out; whole rows a rank (`fsdp2`) may make that more than the fraction.
    """

    stage: str
    layers: int
    root: int
    part: float
    world_size: int
    shard_group: int
    """Ranks that share one replica out: the world, except for `hsdp`."""
    mixed: bool = False
    accumulate: int = 1
    first: int = 0
    """Elements of the first layer, where its input needs no gradient (the MLP's, not the transformer's)."""

    @property
    def psi(self) -> int:
        """Elements of all parameters."""
        return self.layers + self.root

    @property
    def wire(self) -> int:
        """Bytes of an element that travels."""
        return BF16 if self.mixed else FP32

    @property
    def padding(self) -> float:
        """How much more travels than there is, where each rank's part is whole rows."""
        return self.part * self.shard_group / self.psi

    @property
    def copies(self) -> int:
        """On how many ranks each element of the optimizer's state lies."""
        return self.world_size if self.stage == "0" else self.world_size // self.shard_group


def bytes_a_parameter(setting: Setting, kind: str, moment: Moment = "after step") -> int:
    """Return bytes a parameter of one kind, of 4 + 4 + 8 or 2 + 2 + 12; masters are there from the start."""
    masters_in_optimizer = setting.mixed and SHARDED[setting.stage] < 3
    weight = BF16 if masters_in_optimizer else FP32
    if kind == "optimizer":
        masters = FP32 if masters_in_optimizer else 0
        return masters + (0 if moment == "init" else FP32 * MOMENTS)
    return weight


def memory(setting: Setting, moment: Moment) -> dict[str, float]:
    """Return the bytes a rank holds, by kind, outside any layer's forward and backward.

    `init` is before the first step, when Adam has no moments yet; `before step` is after a backward, `after
    step` when the gradients have been let go.
    """
    sharded = SHARDED[setting.stage]
    elements = {
        kind: setting.part if sharded >= least else float(setting.psi)
        for kind, least in (("parameters", 3), ("gradients", 2), ("optimizer", 1))
    }
    if moment != "before step":
        elements["gradients"] = 0.0
    return {kind: elements[kind] * bytes_a_parameter(setting, kind, moment) for kind in KINDS}


def moves(setting: Setting) -> dict[str, float]:
    """Return, by axis of the mesh, how many times Psi (n-1)/n elements a rank sends in a step, n its ranks.

    An all-reduce counts twice, as a reduce-scatter and an all-gather. With K micro-batches a step: stages 0
    and 1 reduce once, stage 2 after each (so that gradients stay sharded) and gathers once. Stage 3 gathers
    each layer for forward and for backward and reduce-scatters it, each K times; what is in no layer stays
    whole for the step, and a first layer whose input needs no gradient is reduced once, since nothing tells
    the end of its backward. PyTorch's fully_shard sees that end, and frees what is in no layer after each
    backward too. In hybrid sharding the parts are all-reduced over the replicas besides.
    """
    times, psi = setting.accumulate, setting.psi
    layers, root = setting.layers / psi, setting.root / psi
    reduced = times * layers - (times - 1) * setting.first / psi + root
    match setting.stage:
        case "0" | "1":
            return {"world": 2.0}
        case "2":
            return {"world": times + 1.0}
        case "fsdp2":
            return {"world": (3 * times * layers + 2 * times * root) * setting.padding}
        case "hsdp":
            replicas = 2 * reduced / setting.shard_group
            return {"shard": 2 * times * layers + root + reduced, "replicate": replicas}
    return {"world": 2 * times * layers + root + reduced}


def axis_size(setting: Setting, axis: str) -> int:
    """Return how many ranks an axis has."""
    sizes = {"shard": setting.shard_group, "replicate": setting.world_size // setting.shard_group}
    return sizes.get(axis, setting.world_size)


def unit(setting: Setting, axis: str) -> float:
    """Return Psi (n-1)/n elements in bytes: what each of the `moves` is measured in."""
    ranks = axis_size(setting, axis)
    return setting.psi * setting.wire * (ranks - 1) / ranks


def sent(op: str, size: int, ranks: int) -> float:
    """Return what a rank sends for calls of `op` over S = `size` bytes, by a ring (nccl-tests' factors)."""
    share = (ranks - 1) / ranks
    return {"all_reduce": 2 * share, "all_gather": share, "reduce_scatter": share}.get(op, 0.0) * size


def default_shard_group(world_size: int) -> int:
    """Return the largest divisor of the ranks that leaves two axes, or 0 where there is none."""
    return next((size for size in range(world_size // 2, 1, -1) if world_size % size == 0), 0)


def rows_held(shape: tuple[int, ...], rank: int, ranks: int) -> tuple[int, int]:
    """Return (start, stop) of a rank's rows, as flattened elements; rows are dealt as by `torch.chunk`."""
    rows, width = shape[0], 1
    for size in shape[1:]:
        width *= size
    each = -(-rows // ranks)
    return min(rank * each, rows) * width, min((rank + 1) * each, rows) * width


def rows_part(shapes: Iterable[tuple[int, ...]], ranks: int) -> int:
    """Return the elements that a rank's shards take when each has as many rows as the largest."""
    total = 0
    for shape in shapes:
        start, stop = rows_held(shape, 0, ranks)
        total += stop - start
    return total
