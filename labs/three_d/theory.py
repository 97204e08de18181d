"""What a step on a three-axis mesh must move, from the sizes alone. Pure functions; loads no torch.

S follows nccl-tests: one buffer for an all-reduce or a send, the total for all-gather and reduce-scatter.
Sources: Shoeybi et al. 2019, section 3 (tensor); Narayanan et al. 2021, section 3.2 (the three axes);
Korthikanti et al. 2022, section 4.2 (sequence).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from labs.mesh.theory import crosses_nodes, flattened_groups, groups_along
from labs.parallel.schedule_actions import Action, Placement, rank_of, stages_of

FP32 = 4
VOCABULARY = 256
AXES = ("dp", "pp", "tp")


@dataclass(frozen=True)
class Job:
    """The sizes that decide the bytes: the mesh (dp, pp, tp), the stages' places, the model, the batch."""

    shape: tuple[int, int, int]
    chunks: int
    placement: Placement
    model: Literal["lm", "mlp"]
    layers: int
    dim: int
    hidden: int
    context: int
    micro_batch_size: int
    micro_batches: int
    sequence: bool = False

    @property
    def num_stages(self) -> int:
        """Stages of the whole pipeline."""
        return self.shape[1] * self.chunks

    @property
    def ends(self) -> tuple[int, int]:
        """The pipeline ranks of the first and of the last stage."""
        pp = self.shape[1]
        return rank_of(0, pp, self.placement), rank_of(self.num_stages - 1, pp, self.placement)

    @property
    def copies_apart(self) -> bool:
        """Whether a tied embedding has copies on two ranks."""
        return self.model == "lm" and self.ends[0] != self.ends[1]

    @property
    def rows(self) -> int:
        """Positions in a micro-batch."""
        return self.micro_batch_size * (self.context if self.model == "lm" else 1)

    def stages_of(self, place: int) -> tuple[int, ...]:
        """The stages of the pipeline rank `place`."""
        return stages_of(place, self.shape[1], self.chunks, self.placement)


def rank_parameters(job: Job, place: int) -> int:
    """Return how many parameters a rank at `place` of the pipeline holds."""
    tp = job.shape[2]
    mine = job.stages_of(place)
    layers = len(mine) * job.layers // job.num_stages
    if job.model == "mlp":
        return layers * job.dim**2 // tp
    is_first, is_last = 0 in mine, job.num_stages - 1 in mine
    split = layers * (4 * job.dim**2 + 3 * job.dim * job.hidden)
    split += VOCABULARY * job.dim * (is_first or is_last)
    return split // tp + layers * 2 * job.dim + job.dim * is_last


def step_bytes(job: Job, place: int) -> Counter[str]:
    """Return S by group, of one step of a rank at `place` of the pipeline; groups of one move nothing."""
    dp, pp, tp = job.shape
    found: Counter[str] = Counter()
    if dp > 1:
        found["dp"] = rank_parameters(job, place) * FP32
    if pp > 1:
        found["pp"] = _pipeline_bytes(job, place)
    if tp > 1:
        found["tp"] = sum(_tensor_bytes(job, stage) for stage in job.stages_of(place))
    if job.copies_apart and place in job.ends:
        found["embedding"] = VOCABULARY * job.dim // tp * FP32
    if pp * tp > 1:
        found["model"] = FP32
    return +found


def _activation(job: Job) -> int:
    """Bytes of one micro-batch between two layers, whole."""
    return job.rows * job.dim * FP32


def _pipeline_bytes(job: Job, place: int) -> int:
    """Each boundary to another rank carries an activation one way and its gradient back, a micro-batch."""
    pp, last = job.shape[1], job.num_stages - 1
    crossing = 0
    for stage in job.stages_of(place):
        crossing += stage > 0 and rank_of(stage - 1, pp, job.placement) != place
        crossing += stage < last and rank_of(stage + 1, pp, job.placement) != place
    spread = job.shape[2] if job.sequence else 1
    return crossing * job.micro_batches * _activation(job) // spread


def _tensor_bytes(job: Job, stage: int) -> int:
    """f and g of a stage's layers for all its micro-batches; embedding, head and loss at the ends.

    The transformer has two all-reduces a layer each way; with sequence parallel each is a reduce-scatter and
    an all-gather, and the whole parameters' gradients are summed once. The mlp has one a pair each way, none
    backwards before the first pair, whose input needs no gradient.
    """
    layers = job.layers // job.num_stages
    is_first, is_last = stage == 0, stage == job.num_stages - 1
    if job.model == "mlp":
        return job.micro_batches * (layers - is_first) * _activation(job)
    sums = 4 * layers + is_first + is_last
    each = sums * _activation(job) * (2 if job.sequence else 1) + is_last * 3 * job.rows * FP32
    norms = (2 * layers + is_last) * job.dim * FP32 if job.sequence else 0
    return job.micro_batches * each + norms


def total_bytes(job: Job) -> Counter[str]:
    """Return S by group, of one step, summed over all ranks."""
    found: Counter[str] = Counter()
    for place in range(job.shape[1]):
        for group, size in step_bytes(job, place).items():
            found[group] += size * job.shape[0] * job.shape[2]
    return found


def groups(job: Job) -> dict[str, list[list[int]]]:
    """Return the groups that ranks talk in, by name: of the three axes, and those that cut across them."""
    found = {name: groups_along(axis, job.shape) for axis, name in enumerate(AXES)}
    if job.copies_apart:
        first, last = job.ends
        found["embedding"] = [[line[first], line[last]] for line in found["pp"]]
    found["model"] = flattened_groups((1, 2), job.shape)
    return found


def links(job: Job, ranks_per_node: int) -> dict[str, bool]:
    """Return for each of the groups whether some of it crosses nodes of so many ranks."""
    return {
        name: any(crosses_nodes(group, ranks_per_node) for group in lines)
        for name, lines in groups(job).items()
    }


def warning(tp: int, ranks_per_node: int, moved: Counter[str]) -> str:
    """Say what it costs that tensor parallel groups cross nodes, and what to do."""
    total = sum(moved.values())
    part = f"{moved['tp'] / total:.0%} of all bytes" if total else "most bytes"
    return (
        f"warning: a tp group of {tp} ranks crosses nodes of {ranks_per_node}: {part} go over slow links "
        f"in the midst of every layer; give --tp a divisor of {ranks_per_node}"
    )


def last_backwards(row: Sequence[Action]) -> set[str]:
    """Return the action, by its text, behind which each stage's gradients are complete."""
    last = {action.stage: action for action in row if action.kind in "BW"}
    return {str(action) for action in last.values()}
