"""Runs of the lab inside one launch of real ranks, whole and broken, and what its checks said of each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest.mock import patch

import torch
from torch.distributed import device_mesh

from labs.comms import Comms
from labs.context import Context
from labs.parallel import mesh_axes, stage_gradients, tensor_ops, three_d
from labs.parallel.pipeline_mail import Mail
from labs.parallel.schedule_actions import Action
from labs.parallel.schedules import build
from labs.parallel.stage_gradients import StageGradients
from labs.parallel.three_d import ThreeD
from labs.three_d import lab, proofs
from labs.three_d.spec import ThreeDParams
from launcher.events import Check

PACE_MS = 40.0
Mutant = Callable[[], AbstractContextManager[Any]]
SMALL: dict[str, Any] = {
    "dim": 16,
    "heads": 2,
    "context": 8,
    "micro_batch_size": 1,
    "steps": 2,
    "pace_ms": 0.0,
    "clip": 0.5,
    "micro_batches": 2,
}


def params(dp: int, pp: int, tp: int, **given: Any) -> ThreeDParams:
    """Small parameters for a mesh."""
    return ThreeDParams(dp=dp, pp=pp, tp=tp, **{**SMALL, **given})


def no_average() -> AbstractContextManager[Any]:
    """Each replica goes its own way."""
    return patch.object(StageGradients, "_start", lambda self, action, parameters: None)


def sum_over_replicas() -> AbstractContextManager[Any]:
    """Gradients are summed over dp where they should be averaged."""
    start = Comms.all_reduce

    def summed(self: Comms, tensor: Any, op: str = "sum", async_op: bool = False) -> Any:
        return start(self, tensor, "sum" if op == "avg" else op, async_op)

    return patch.object(Comms, "all_reduce", summed)


def average_late() -> AbstractContextManager[Any]:
    """All gradients are averaged when the schedule is over, none behind its stage."""
    stack = ExitStack()
    finish = StageGradients.finish
    after = StageGradients.after

    def late(self: StageGradients) -> None:
        for action in self.last.values():
            after(self, action)
        self.started = [(next(iter(self.last.values()))._replace(kind="F"), n) for _, n in self.started]
        finish(self)

    stack.enter_context(patch.object(StageGradients, "after", lambda self, action: None))
    stack.enter_context(patch.object(StageGradients, "finish", late))
    return stack


def no_backward_sum() -> AbstractContextManager[Any]:
    """f without its all-reduce: the norms' gradients on each tp rank are a part of the sum."""
    return patch.object(tensor_ops._CopyIn, "backward", staticmethod(lambda ctx, *g: (g[0], None)))


def norms_stay_partial() -> AbstractContextManager[Any]:
    """Sequence parallel without the sum of whole parameters' gradients."""
    return patch.object(stage_gradients, "finish_partial_gradients", lambda module, comms, sequence: None)


def copies_apart() -> AbstractContextManager[Any]:
    """The two copies of the tied embedding are not told each other's gradient."""
    return patch.object(ThreeD, "_add_copies", lambda self: None)


def count_everything() -> AbstractContextManager[Any]:
    """The norm counts whole parameters on every tp rank, and both copies of the embedding."""
    return patch.object(ThreeD, "counted", lambda self: list(self.parameters()))


def norm_of_one_rank() -> AbstractContextManager[Any]:
    """Each rank clips by the norm of what it holds."""
    return patch.object(three_d, "global_norm", lambda counted, comms: _own_norm(counted))


def _own_norm(counted: list[torch.nn.Parameter]) -> torch.Tensor:
    """The norm of these gradients alone."""
    total = sum(float(p.grad.square().sum()) for p in counted if p.grad is not None)
    return torch.tensor(total**0.5)


def same_rows() -> AbstractContextManager[Any]:
    """Every replica takes the first one's rows."""
    return patch.object(lab, "share", lambda whole, replica, num: whole.chunk(num)[0])


def transposed_mesh() -> AbstractContextManager[Any]:
    """The first axis varies fastest: every group holds other ranks than the mesh says."""
    make = device_mesh.init_device_mesh

    def transposed(kind: str, shape: tuple[int, ...], mesh_dim_names: tuple[str, ...]) -> Any:
        made = make(kind, shape[::-1], mesh_dim_names=mesh_dim_names[::-1])
        return _Transposed(made)

    return patch.object(mesh_axes, "init_device_mesh", transposed)


class _Transposed:
    """A mesh seen with its axes in reverse."""

    def __init__(self, mesh: Any) -> None:
        self.mesh = mesh.mesh.permute(2, 1, 0)
        self.get_local_rank, self.get_group = mesh.get_local_rank, mesh.get_group


def wrong_pairs() -> AbstractContextManager[Any]:
    """The embedding's copies are summed with those of the neighbouring tp rank."""
    mine = mesh_axes._mine

    def crossed(world: Comms, groups: Any, name: str) -> Any:
        if name == "embedding":
            groups = [[first, other[1]] for (first, _), other in zip(groups, groups[::-1], strict=True)]
        return mine(world, groups, name)

    return patch.object(mesh_axes, "_mine", crossed)


def another_order() -> AbstractContextManager[Any]:
    """The engine runs GPipe where 1F1B was planned."""
    start = ThreeD.__init__

    def other(self: ThreeD, axes: Any, schedule: Any, *rest: Any, **named: Any) -> None:
        start(self, axes, build("gpipe", schedule.num_ranks, schedule.num_micro_batches), *rest, **named)

    return patch.object(ThreeD, "__init__", other)


def count_twice() -> AbstractContextManager[Any]:
    """The bytes told are not those that moved."""
    count = Comms._count
    return patch.object(Comms, "_count", lambda self, name, size: count(self, name, 2 * size))


def stand_still() -> AbstractContextManager[Any]:
    """The optimizer has other parameters than the stages."""
    return patch.object(torch.optim.SGD, "step", lambda self: None)


def dawdling_stage() -> AbstractContextManager[Any]:
    """The last stage waits before each action for as long as a forward takes."""
    take = Mail.take

    def late(self: Mail, action: Action) -> Any:
        time.sleep(PACE_MS / 1e3 * (action.stage > 0))
        return take(self, action)

    stack = ExitStack()
    stack.enter_context(patch.object(Mail, "take", late))
    # It must be seen on a busy machine too.
    stack.enter_context(patch.object(proofs, "MOST_MISSED", math.inf))
    return stack


def drifting_replica() -> AbstractContextManager[Any]:
    """One replica's parameters change by a last bit."""
    finish = proofs.Proof.finish

    def drift(self: proofs.Proof, job: Any, paced: Any) -> None:
        if self.mine.place[0] == 1:
            with torch.no_grad():
                for parameter in self._engine.parameters():
                    parameter.mul_(1 + 2**-23)
        finish(self, job, paced)

    return patch.object(proofs.Proof, "finish", drift)


Case = tuple[ThreeDParams, str]
"""What to run, and the name of a mutant above, or empty."""


def prove(ctx: Context, cases: list[Case]) -> list[list[Check]]:
    """Run the lab once for each case on this rank; return the checks that this rank emitted, by case."""
    found = []
    for given, mutant in cases:
        # Other meshes reuse the names of groups: each run counts its collectives for itself.
        ctx.comms.ledger.sequence.clear()
        before = len(ctx.checks)
        with globals()[mutant]() if mutant else ExitStack():
            lab.run(ctx, given)
        found.append(ctx.checks[before:])
    return found
