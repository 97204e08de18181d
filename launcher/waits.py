"""Who waits in which collective, and who never arrived there: read from phases and sequence numbers. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from launcher.evidence import Evidence, Wait, ranks_text


@dataclass(frozen=True)
class Absent:
    """The ranks that `waiting` waited for in `wait`, the most suspect first, and a sentence that says so."""

    ranks: tuple[int, ...]
    wait: Wait
    waiting: tuple[int, ...]
    message: str


def waits_of(evidence: Evidence) -> dict[int, Wait]:
    """Return what each rank was waiting in last: its pending phase, or what its failure names."""
    waits = {
        rank: Wait(phase.name, phase.group, phase.seq)
        for rank, phase in evidence.waiting.items()
        if rank not in evidence.ended
    }
    for failure in evidence.failures:
        if failure.collective and failure.kind in ("exception", "timeout"):
            waits[failure.rank] = Wait(failure.collective, failure.group, failure.seq)
    return waits


def absent_of(evidence: Evidence) -> Absent | None:
    """Return who never arrived where others waited; None where nobody waited.

    A rank that waits itself, in another collective, is a victim of somebody too, unless all ranks wait.
    """
    waits = waits_of(evidence)
    if not waits:
        return None
    idle = [rank for rank in range(evidence.world_size) if rank not in waits]
    # The collective that most wait in; of those equally many wait in, one that somebody is behind in.
    counts = Counter(waits.values())
    wait = max(
        sorted(counts, key=lambda w: (w.group, w.seq, w.name)),
        key=lambda w: (counts[w], bool(_behind(evidence, idle, w, waits))),
    )
    absent = _behind(evidence, idle, wait, waits) or idle
    if not absent:
        return _all_wait(waits)
    # One that has not even ended is more suspect than one that ran to its end past the collective.
    absent = sorted(absent, key=lambda rank: (rank in evidence.ended, _last(evidence, rank, wait), rank))
    return Absent(tuple(absent), wait, tuple(sorted(waits)), _absence(evidence, absent, wait, waits))


def _behind(evidence: Evidence, ranks: list[int], wait: Wait, waits: dict[int, Wait]) -> list[int]:
    """Those of `ranks` that belong to the group and have not come back from this collective."""
    seen = set(evidence.members.get(wait.group, ()))
    known = seen if seen - set(waits) else set(ranks)
    return [
        rank for rank in ranks if rank in known and (wait.seq < 0 or _last(evidence, rank, wait) < wait.seq)
    ]


def _last(evidence: Evidence, rank: int, wait: Wait) -> int:
    return evidence.sequence.get((rank, wait.group), -1)


def _absence(evidence: Evidence, absent: list[int], wait: Wait, waits: dict[int, Wait]) -> str:
    there = [rank for rank in sorted(waits) if waits[rank] == wait]
    message = f"{ranks_text(sorted(absent))} never arrived at {wait}; {ranks_text(there)} waited there"
    last = _last(evidence, absent[0], wait)
    if len(absent) == 1 and absent[0] in evidence.ended:
        message += f"; rank {absent[0]} had ended already"
    elif len(absent) == 1 and 0 <= last < wait.seq:
        message += f"; the last one that rank {absent[0]} came to was number {last}"
    return message


def _all_wait(waits: dict[int, Wait]) -> Absent:
    """Every rank waits: they wait for each other, in different collectives or for a message."""
    counts = Counter(waits.values())
    rarest = min(waits, key=lambda rank: (counts[waits[rank]], waits[rank].seq, rank))
    groups: dict[Wait, list[int]] = {}
    for rank in sorted(waits):
        groups.setdefault(waits[rank], []).append(rank)
    told = ", ".join(
        f"{ranks_text(ranks)} in {wait}" for wait, ranks in sorted(groups.items(), key=lambda item: item[1])
    )
    others = tuple(rank for rank in sorted(waits) if rank != rarest)
    return Absent((rarest,), waits[rarest], others, f"every rank waits for another: {told}")
