"""What the 3D lab proves: one process's training, the mesh's groups, and theory's bytes on every axis."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from labs.context import Context, hash_of
from labs.mesh.theory import coordinates
from labs.parallel.schedule_actions import Schedule, format_row
from labs.parallel.schedule_simulator import Costs, Timed
from labs.parallel.stage_models import name_in_whole
from labs.parallel.tensor import slices_of
from labs.parallel.tensor_ops import slice_along
from labs.parallel.three_d import ThreeD
from labs.pipeline_parallel import timing
from labs.pipeline_parallel.proofs import STEPS_KEPT, check_equal, relative_error
from labs.pipeline_parallel.timing import Trace
from labs.three_d import theory
from labs.three_d.alone import Alone
from labs.worst import farthest, worst

COMPARED_STEPS = 20
"""Steps that one process repeats: training is chaotic, and lets last bits grow step by step."""
MOST_MISSED = 0.1
"""By which part of their cost actions may be off for the bubble to be judged: they hold tp's collectives,
whose ranks wait for each other inside them."""
GROUPS = (*theory.AXES, "embedding", "model")


@dataclass
class Evidence:
    """What one rank found out; plain numbers, for rank 0 to judge."""

    place: tuple[int, int, int]
    groups: dict[str, list[int]] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    """By step, on the ranks of the last stage."""
    whole_losses: list[float] = field(default_factory=list)
    gradients: float = 0.0
    norms: float = 0.0
    drift: float = 0.0
    still: int = 0
    """Parameters that never moved."""
    order: str = ""
    traces: list[Trace] = field(default_factory=list)
    """The newest steps' actions."""
    starts: list[tuple[str, int]] = field(default_factory=list)
    """Behind which action an all-reduce of gradients began, and its elements."""
    moved: list[dict[str, int]] = field(default_factory=list)
    """S by group, by step."""
    content: str = ""
    tied: str = ""


class Proof:
    """Collects evidence on every rank, step by step, and judges it on rank 0."""

    def __init__(self, ctx: Context, schedule: Schedule, engine: ThreeD, alone: Alone) -> None:
        self._ctx, self._schedule, self._engine, self._alone = ctx, schedule, engine, alone
        self.mine = Evidence(engine.axes.place)
        self.mine.groups = {name: comms.ranks for name, comms in engine.axes.comms.items()}
        self._before: Counter[str] = Counter()
        self._start = [p.detach().clone() for p in engine.parameters()]

    def begin(self) -> None:
        """Begin a step."""
        self._before = self._moved()

    def gradients(self, losses: Sequence[Tensor], whole: float) -> None:
        """Compare a step's gradients with those of one process, before either are clipped."""
        if losses:
            self.mine.losses.append(float(torch.stack(list(losses)).mean()))
        self.mine.whole_losses.append(whole)
        self.mine.gradients = max(self.mine.gradients, self._farthest())

    def norms(self, mine: Tensor, whole: float | None) -> None:
        """Compare the norms, where one process has one; the step's communication is over."""
        if whole is not None:
            self.mine.norms = worst((self.mine.norms, abs(float(mine) - whole) / max(whole, 1e-12)))
        self.mine.moved.append(dict(self._moved() - self._before))
        trace = [(str(action), start, end) for action, start, end in self._engine.pipeline.trace]
        self.mine.traces = [*self.mine.traces, trace][-STEPS_KEPT:]

    def parameters(self) -> None:
        """Compare the parameters after the last step that one process takes too."""
        self.mine.drift = self._drift()

    def finish(self, job: theory.Job, paced: Costs | None) -> None:
        """Gather what all ranks found, and judge.

        `paced` are the costs that actions were stretched to, None where they were not.
        """
        mine, engine = self.mine, self._engine
        now = list(engine.parameters())
        mine.still = sum(bool(torch.equal(a, b)) for a, b in zip(now, self._start, strict=True))
        row = self._schedule.rows[engine.axes.pp.rank]
        done = format_row(one.action for one in engine.pipeline.trace)
        mine.order = "" if done == format_row(row) else f"did {done}, planned {format_row(row)}"
        mine.starts = [(str(action), elements) for action, elements in engine.gradients.started]
        mine.content = hash_of(now)
        mine.tied = "" if engine.tied is None else hash_of([engine.tied])
        found = [mine] * self._ctx.world_size
        dist.all_gather_object(found, mine)
        if self._ctx.rank == 0:
            judge_training(self._ctx, found)
            judge_groups(self._ctx, found, job)
            judge_bytes(self._ctx, found, job)
            judge_overlap(self._ctx, found, self._schedule, job)
            if paced is not None and job.shape[1] > 1:
                timing.judge_bubble(self._ctx, self._schedule, paced, pipelines(found), MOST_MISSED)

    def _moved(self) -> Counter[str]:
        """S by group so far. A message counts where it is sent."""
        counted: Counter[str] = Counter()
        for (op, group), size in self._ctx.comms.traffic.bytes.items():
            if group in GROUPS and op != "recv":
                counted[group] += size
        return counted

    def _farthest(self) -> float:
        """The largest difference of a gradient, over the largest element of its tensor."""
        farthest = 0.0
        for name, own, dim in self._own():
            other = self._alone.parameters[name].grad
            if own.grad is None or other is None:
                return math.inf
            farthest = max(farthest, relative_error(own.grad, self._part(other, dim)))
        return farthest

    def _drift(self) -> float:
        """How far apart the parameters ended, over the way that the whole model went."""
        squares = 0.0
        for name, own, dim in self._own():
            other = self._part(self._alone.parameters[name].detach(), dim)
            squares += float((own.detach() - other).double().square().sum())
        return math.sqrt(squares) / max(self._alone.way, 1e-12)

    def _own(self) -> list[tuple[str, torch.nn.Parameter, int | None]]:
        """This rank's parameters by their names in the whole model, with the dimension of their split."""
        found = []
        for stage in self._engine.stages.values():
            dims = slices_of(stage)
            for name, parameter in stage.named_parameters():
                found.append((name_in_whole(name), parameter, dims.get(name)))
        return found

    def _part(self, whole: Tensor, dim: int | None) -> Tensor:
        return whole if dim is None else slice_along(whole, dim, self._engine.axes.tp)


def judge_training(ctx: Context, found: Sequence[Evidence]) -> None:
    """Check losses, gradients, norms and parameters against one process."""
    reporters = [one.losses for one in found if one.losses]
    means = [sum(losses) / len(reporters) for losses in zip(*reporters, strict=True)]
    errors = (
        (
            "losses equal",
            farthest(means, found[0].whole_losses),
            "the mean over replicas and micro-batches is the whole batch's",
        ),
        (
            "gradients equal",
            worst(one.gradients for one in found),
            "summed over tp, averaged over dp, and over both copies of the tied embedding",
        ),
        (
            "gradient norm equals",
            worst(one.norms for one in found),
            "slices, whole parameters and copies each counted once, over all axes",
        ),
        (
            "parameters equal",
            worst(one.drift for one in found),
            "the slices together are the model that one process trained",
        ),
    )
    check_equal(ctx, errors, sum(one.still for one in found))


def judge_groups(ctx: Context, found: Sequence[Evidence], job: theory.Job) -> None:
    """Check every group in use against the mesh, and that copies of the same parameters stayed equal."""
    for name, groups in theory.groups(job).items():
        seen = sorted({tuple(one.groups[name]) for one in found if name in one.groups})
        right = sorted(tuple(group) for group in groups)
        shows = "ranks that agree in every other coordinate share a group"
        passed = seen == right and all(rank in one.groups.get(name, [rank]) for rank, one in enumerate(found))
        ctx.check(f"groups of {name}", passed, _spell(seen), _spell(right), shows=shows)
    places = [one.place for one in found]
    right_places = [coordinates(rank, job.shape) for rank in range(len(found))]
    shows = "the rank counts row by row through dp, pp, tp: neighbours share a tensor group"
    ctx.check("places on the mesh", places == right_places, _spell(places), _spell(right_places), shows=shows)
    apart = _apart({one.place[1:]: [] for one in found}, [(one.place[1:], one.content) for one in found])
    shows = "the ranks of a dp group hold bitwise the same parameters after all steps"
    ctx.check("replicas stay equal", not apart, _differ(apart), "equal", shows=shows)
    if job.copies_apart:
        copies = [(one.place[::2], one.tied) for one in found if one.tied]
        apart = _apart({key: [] for key, _ in copies}, copies)
        shows = "first and last stage hold bitwise the same table after all steps"
        ctx.check("tied copies stay equal", not apart, _differ(apart), "equal", shows=shows)


def _apart(
    groups: dict[tuple[int, ...], list[str]], hashes: Sequence[tuple[tuple[int, ...], str]]
) -> list[tuple[int, ...]]:
    """Return the keys whose hashes are not all one."""
    for key, value in hashes:
        groups[key].append(value)
    return [key for key, values in groups.items() if len(set(values)) > 1]


def _differ(keys: Sequence[tuple[int, ...]]) -> str:
    return f"differ at {_spell(keys)}" if keys else "equal"


def _spell(groups: Sequence[Sequence[int]]) -> str:
    return " ".join(f"[{' '.join(map(str, group))}]" for group in groups)


def pipelines(found: Sequence[Evidence]) -> list[list[list[list[Timed]]]]:
    """Return the timed steps of each pipeline: of the ranks that differ in their place on pp alone."""
    lines: dict[tuple[int, int], list[Evidence]] = {}
    for one in sorted(found, key=lambda one: one.place):
        lines.setdefault((one.place[0], one.place[2]), []).append(one)
    return [timing.timed_steps([one.traces for one in line]) for line in lines.values()]


def judge_bytes(ctx: Context, found: Sequence[Evidence], job: theory.Job) -> None:
    """Check S of each axis, on every rank and in every step."""
    right = [theory.step_bytes(job, one.place[1]) for one in found]
    for name in GROUPS:
        total = sum(one[name] for one in right)
        wrong = [
            f"rank {rank}: {step.get(name, 0)}"
            for rank, one in enumerate(found)
            for step in one.moved
            if step.get(name, 0) != right[rank][name]
        ]
        if not total and not wrong:
            continue
        shows = "S by the rule of nccl-tests, forward and backward, summed over all ranks"
        ctx.check(f"bytes of {name} a step", not wrong, wrong[0] if wrong else total, total, 0, "B", shows)
        ctx.metric(f"{name}.bytes_per_step", sum(one.moved[-1].get(name, 0) for one in found), "B")


def judge_overlap(ctx: Context, found: Sequence[Evidence], schedule: Schedule, job: theory.Job) -> None:
    """Check that the schedule was followed, and that gradients left as their stage ended."""
    wrong = [f"rank {rank} {one.order}" for rank, one in enumerate(found) if one.order]
    total = sum(len(schedule.rows[one.place[1]]) for one in found)
    good = f"{total} actions in order"
    shows = "each rank did the actions of the schedule, in its order"
    ctx.check("order is the planned one", not wrong, wrong[0] if wrong else good, good, shows=shows)
    if job.shape[0] == 1:
        return
    late = []
    for rank, one in enumerate(found):
        planned = theory.last_backwards(schedule.rows[one.place[1]])
        elements = sum(count for _, count in one.starts)
        if {text for text, _ in one.starts} != planned or elements != theory.rank_parameters(
            job, one.place[1]
        ):
            late.append(f"rank {rank} behind {' '.join(text for text, _ in one.starts) or 'nothing'}")
    good = "behind each stage's last backward"
    shows = "a stage's all-reduce hides behind the backwards that other stages still do"
    name = "gradients leave as their stage ends"
    ctx.check(name, not late, late[0] if late else good, good, shows=shows)
