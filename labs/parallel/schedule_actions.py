"""The alphabet of pipeline schedules: actions, their text form, and a schedule as plain data.

A schedule is one row of actions a rank. It prints, parses, compares and is tested with no process; the
validator, the simulator and the pipeline engine all read this one form. Loads no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["F", "B", "I", "W"]
Placement = Literal["loop", "v"]
KINDS: tuple[Kind, ...] = ("F", "B", "I", "W")
KIND_NAMES: dict[Kind, str] = {
    "F": "forward",
    "B": "full backward",
    "I": "input gradient",
    "W": "weight gradient",
}
_ACTION = re.compile(r"(\d+)([FBIW])(\d+)")
_OVERLAP = re.compile(r"\(([^()]*)\)OVERLAP_F_B")


class ScheduleError(ValueError):
    """A schedule that cannot be built, read or run; the message names the rank, the action or the number."""


class Action(NamedTuple):
    """One computation of one stage for one micro-batch; its text form is `2F0`."""

    stage: int
    kind: Kind
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"


@dataclass(frozen=True)
class Schedule:
    """What every rank does, in its order.

    `chunks` (v) is the number of stages a rank holds. With placement `loop` rank r holds stages r, r+p, ...;
    with `v` (two chunks) it holds r and 2p-1-r, so that the first and the last stage share rank 0.
    """

    name: str
    num_ranks: int
    num_micro_batches: int
    chunks: int
    placement: Placement
    rows: tuple[tuple[Action, ...], ...]

    @property
    def num_stages(self) -> int:
        """Stages of the whole pipeline, p times v."""
        return self.num_ranks * self.chunks

    @property
    def splits_backward(self) -> bool:
        """Whether some backward is done as I and W apart."""
        return any(action.kind in "IW" for row in self.rows for action in row)

    def rank_of(self, stage: int) -> int:
        """Return the rank that holds `stage`."""
        return rank_of(stage, self.num_ranks, self.placement)

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """Return the stages that `rank` holds, first chunk first."""
        return stages_of(rank, self.num_ranks, self.chunks, self.placement)


def rank_of(stage: int, num_ranks: int, placement: Placement) -> int:
    """Return the rank that holds `stage` among `num_ranks` ranks."""
    if placement == "v" and stage >= num_ranks:
        return 2 * num_ranks - 1 - stage
    return stage % num_ranks


def stages_of(rank: int, num_ranks: int, chunks: int, placement: Placement) -> tuple[int, ...]:
    """Return the stages that `rank` holds, first chunk first."""
    if placement == "v":
        return (rank, 2 * num_ranks - 1 - rank)
    return tuple(rank + chunk * num_ranks for chunk in range(chunks))


def parse_action(text: str) -> Action:
    """Return the action that `text` names, `2F0` for stage 2, forward, micro-batch 0.

    Raises:
        ScheduleError: the text is not a stage, one of F B I W and a micro-batch.
    """
    match = _ACTION.fullmatch(text)
    if match is None:
        raise ScheduleError(f"{text!r} is not an action: write stage, one of F B I W, micro-batch, as in 2F0")
    kind = next(kind for kind in KINDS if kind == match[2])
    return Action(int(match[1]), kind, int(match[3]))


def parse_row(text: str) -> tuple[Action, ...]:
    """Return the actions of one rank, written apart by blanks or commas; torch's overlapped pairs
    `(0F7;7B3)OVERLAP_F_B` are read as their forward, then their backward.

    Raises:
        ScheduleError: some word is not an action.
    """
    flat = _OVERLAP.sub(lambda match: match[1].replace(";", " "), text)
    return tuple(parse_action(word) for word in flat.replace(",", " ").split())


def format_row(row: Iterable[Action]) -> str:
    """Return the text of one rank's actions; `parse_row` reads it back."""
    return " ".join(map(str, row))


def format_rows(rows: Iterable[Sequence[Action]]) -> str:
    """Return one line a rank; `parse_rows` reads it back."""
    return "\n".join(format_row(row) for row in rows)


def parse_rows(text: str) -> tuple[tuple[Action, ...], ...]:
    """Return one row a line.

    Raises:
        ScheduleError: some word is not an action; the message names the rank.
    """
    rows = []
    for rank, line in enumerate(text.strip().splitlines()):
        try:
            rows.append(parse_row(line))
        except ScheduleError as error:
            raise ScheduleError(f"rank {rank}: {error}") from None
    return tuple(rows)


def dependency(action: Action, num_stages: int) -> Action | None:
    """Return the action of another stage whose output this one needs, its kind I standing for I or B.

    A forward needs the activation of the stage before, a backward the gradient of the stage behind; the first
    stage's forward, the last stage's backward (it has the loss) and every W need nothing from elsewhere.
    """
    if action.kind == "F" and action.stage > 0:
        return Action(action.stage - 1, "F", action.micro_batch)
    if action.kind in "BI" and action.stage < num_stages - 1:
        return Action(action.stage + 1, "I", action.micro_batch)
    return None
