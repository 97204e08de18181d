"""Say whether a schedule can run and what is wrong with it, naming the action and the rank. Loads no torch.

A pipeline run from a wrong schedule hangs or trains a wrong model; here the same mistakes are sentences.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from labs.parallel.schedule_actions import KINDS, Action, Schedule, ScheduleError, dependency
from labs.parallel.schedule_simulator import alive_activations


def check(schedule: Schedule, memory_bound: Sequence[float] | None = None) -> None:
    """Refuse a schedule that cannot run.

    Raises:
        ScheduleError: the first problem that `problems` finds.
    """
    for problem in problems(schedule, memory_bound):
        raise ScheduleError(problem)


def problems(schedule: Schedule, memory_bound: Sequence[float] | None = None) -> tuple[str, ...]:
    """Return what is wrong with `schedule`, one sentence each; empty if it can run.

    `memory_bound` gives for each rank the most activations allowed, in micro-batches of its full depth.
    """
    if len(schedule.rows) != schedule.num_ranks:
        return (f"the schedule has {len(schedule.rows)} rows for {schedule.num_ranks} ranks",)
    found = [*_places(schedule), *_orders(schedule), *_missing(schedule)]
    # Whether it deadlocks is only a question for rows in which every receive has its send.
    if not found:
        found.extend(_deadlocks(schedule))
    if memory_bound is not None:
        found.extend(_over_memory(schedule, memory_bound))
    return tuple(found)


def _places(schedule: Schedule) -> Iterator[str]:
    """Each rank acts on its own stages and on micro-batches that exist."""
    for rank, row in enumerate(schedule.rows):
        stages = schedule.stages_of(rank)
        for action in row:
            if action.stage not in stages:
                yield f"rank {rank}: {action} is not its stage; it holds {', '.join(map(str, stages))}"
            if not 0 <= action.micro_batch < schedule.num_micro_batches:
                yield f"rank {rank}: {action} is beyond the {schedule.num_micro_batches} micro-batches"


def _orders(schedule: Schedule) -> Iterator[str]:
    """On its own rank: nothing twice, F before B or I, I before W, and not both B and the split pair."""
    for rank, row in enumerate(schedule.rows):
        seen: defaultdict[tuple[int, int], str] = defaultdict(str)
        for action in row:
            before = seen[action.stage, action.micro_batch]
            first = {"F": "", "B": "F", "I": "F", "W": "I"}[action.kind]
            twin = {"F": "", "B": "IW", "I": "B", "W": "B"}[action.kind]
            if action.kind in before:
                yield f"rank {rank}: {action} comes twice"
            elif first and first not in before:
                yield f"rank {rank}: {action} comes before {_as(action, first)}"
            elif any(kind in before for kind in twin):
                yield f"rank {rank}: {action} repeats a gradient that is done already"
            seen[action.stage, action.micro_batch] += action.kind


def _missing(schedule: Schedule) -> Iterator[str]:
    """Every stage does every micro-batch forwards and backwards; what is absent leaves a receive without a
    send."""
    done: defaultdict[tuple[int, int], str] = defaultdict(str)
    for row in schedule.rows:
        for action in row:
            done[action.stage, action.micro_batch] += action.kind
    for stage in range(schedule.num_stages):
        for micro_batch in range(schedule.num_micro_batches):
            kinds = done[stage, micro_batch]
            for absent in _absent(kinds):
                action = _as(Action(stage, "F", micro_batch), absent)
                yield f"rank {schedule.rank_of(stage)}: {action} is missing{_unsent(schedule, action)}"


def _absent(kinds: str) -> Iterator[str]:
    if "F" not in kinds:
        yield "F"
    if "B" not in kinds and "I" not in kinds:
        yield "I" if "W" in kinds else "B"
    elif "B" not in kinds and "W" not in kinds:
        yield "W"


def _unsent(schedule: Schedule, absent: Action) -> str:
    """Name the receive of another stage that an absent action leaves without its send."""
    stage = absent.stage + {"F": 1, "B": -1, "I": -1, "W": 0}[absent.kind]
    if stage == absent.stage or not 0 <= stage < schedule.num_stages:
        return ""
    kind = "forward" if absent.kind == "F" else "backward"
    return f"; the {kind} of stage {stage} on rank {schedule.rank_of(stage)} has a receive without its send"


def _deadlocks(schedule: Schedule) -> Iterator[str]:
    """Run the rows without clocks; where nobody can go on, say what every stuck rank waits for."""
    done: set[Action | None] = {None}
    at = [0] * schedule.num_ranks
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(schedule.rows):
            while at[rank] < len(row) and dependency(row[at[rank]], schedule.num_stages) in done:
                action = row[at[rank]]
                done.add(_as(action, "I") if action.kind == "B" else action)
                at[rank] += 1
                moved = True
    for rank, row in enumerate(schedule.rows):
        need = dependency(row[at[rank]], schedule.num_stages) if at[rank] < len(row) else None
        if need is not None:
            where = f"the {'forward' if need.kind == 'F' else 'backward'} of micro-batch {need.micro_batch}"
            yield (
                f"rank {rank}: deadlock in {row[at[rank]]}, which waits for {where} on stage {need.stage} "
                f"(rank {schedule.rank_of(need.stage)})"
            )


def _over_memory(schedule: Schedule, bound: Sequence[float]) -> Iterator[str]:
    """Name the first action of each rank that keeps more activations alive than its bound."""
    for rank, (row, most) in enumerate(zip(schedule.rows, bound, strict=True)):
        for action, alive in zip(row, alive_activations(row), strict=True):
            if alive / schedule.chunks > most:
                kept = f"{alive / schedule.chunks:g} micro-batches alive, more than {most:g}"
                yield f"rank {rank}: {action} keeps {kept}"
                break


def _as(action: Action, kind: str) -> Action:
    return next(action._replace(kind=known) for known in KINDS if known == kind)
