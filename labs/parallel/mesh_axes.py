"""The communicators of a three-axis mesh: data outermost, then pipeline, tensor innermost.

Tensor parallel ranks talk the most, several times a layer, so they are neighbours and share a node as long as
they fit; data parallel ranks talk once a step, so their groups may stretch furthest (Narayanan et al. 2021,
section 3). Besides the three axes there are two groups that cut across them: `model`, all the ranks that
together hold one replica, and `embedding`, the two that hold the copies of a tied embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from labs.comms import Comms
from labs.parallel.pipeline_mail import TwoWay, Wire

AXES = ("dp", "pp", "tp")
DP, PP, TP = range(3)


@dataclass(frozen=True)
class MeshAxes:
    """One rank's place on the mesh and its communicators; `embedding` is None where no copies are apart."""

    mesh: DeviceMesh
    place: tuple[int, int, int]
    dp: Comms
    pp: Comms
    tp: Comms
    model: Comms
    embedding: Comms | None
    wire: Wire
    """Sends and receives along `pp`."""

    @property
    def comms(self) -> dict[str, Comms]:
        """The communicators by name."""
        found = {"dp": self.dp, "pp": self.pp, "tp": self.tp, "model": self.model}
        return found if self.embedding is None else {**found, "embedding": self.embedding}


def build_axes(world: Comms, shape: tuple[int, int, int], ends: tuple[int, int] | None = None) -> MeshAxes:
    """Lay all ranks on a mesh of `shape` (dp, pp, tp) and make the groups; every rank calls this together.

    `ends` are the places on the pipeline axis that hold the copies of a tied embedding; None: nothing is
    tied.
    """
    mesh = init_device_mesh(world.recorder.device.type, shape, mesh_dim_names=AXES)
    grid = mesh.mesh.tolist()
    d, p, t = (mesh.get_local_rank(name) for name in AXES)
    # Messages get groups of their own: ranks send unequally often, and gloo counts sends with the
    # collectives. DeviceMesh lends the whole world's group to an axis that spans it, so its own will not do.
    lines = [
        [plane[row][column] for row in range(shape[PP])] for plane in grid for column in range(shape[TP])
    ]
    pp = _mine(world, lines, "pp")
    assert pp is not None
    wire: Wire = pp
    if dist.get_backend() == "nccl":
        down = _mine(world, lines, "pp")
        assert down is not None
        wire = TwoWay(pp.rank, pp, down)
    embedding = None
    if ends is not None and ends[0] != ends[1]:
        pairs = [[line[ends[0]], line[ends[1]]] for line in lines]
        embedding = _mine(world, pairs, "embedding")
    model = _mine(world, [[rank for row in plane for rank in row] for plane in grid], "model")
    assert model is not None
    return MeshAxes(
        mesh=mesh,
        place=(d, p, t),
        dp=world.over(mesh.get_group("dp"), "dp"),
        pp=pp,
        tp=world.over(mesh.get_group("tp"), "tp"),
        model=model,
        embedding=embedding,
        wire=wire,
    )


def _mine(world: Comms, groups: Sequence[Sequence[int]], name: str) -> Comms | None:
    """Make all the groups, as every rank must, and return the one that this rank is in, if it is in one."""
    made = [dist.new_group(list(ranks)) for ranks in groups]
    for ranks, group in zip(groups, made, strict=True):
        if dist.get_rank() in ranks:
            return world.over(group, name)
    return None
