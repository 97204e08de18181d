"""Who failed first: from what the ranks said and how they went, the failure that caused the others.

Time stamps alone do not tell. A rank that is killed says nothing, and its peers report a lost connection some
milliseconds before anyone notices; a rank that never arrives at a collective reports nothing at all, and the
first to complain is the one with the shortest patience. So the kinds of evidence are ranked. Pure.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence

import msgspec

from launcher.events import Failure, Phase
from launcher.rundir import FailureResult


class Evidence(msgspec.Struct, kw_only=True):
    """What is known of a run that did not end well. Times are monotonic nanoseconds."""

    world_size: int
    failures: list[Failure] = []
    """Failure events in the order of their arrival."""
    vanished: dict[int, int] = {}
    """Ranks whose connection ended without `end` or `failure`, and when."""
    exit_codes: dict[int, int] = {}
    """Exit codes by rank; negative ones are signals. Ranks that the launcher itself ended are absent."""
    ended: set[int] = set()
    """Ranks that sent `end`."""
    waiting: dict[int, Phase] = {}
    """The collective that each rank was still pending in."""
    sequence: dict[tuple[int, str], int] = {}
    """The last collective (number) that each rank finished in each group."""
    members: dict[str, list[int]] = {}
    """Ranks that ever showed a span in a group."""
    stacks: dict[int, str] = {}
    """Stacks that ranks sent when they were asked."""
    connected: set[int] = set()
    """Ranks that ever said hello."""
    timed_out: str = ""
    """The launcher's time limit in words, where it passed."""
    agent_lost: bool = False
    disk: str = ""
    """The error of the record's disk, where it refused."""


def first_failure(evidence: Evidence) -> FailureResult | None:
    """Return the failure that came first, its victims named; None where nothing failed."""
    for judge in (_disk, _agent, _own_failure, _killed, _hang, _out_of_time, _gone, _any_victim):
        found = judge(evidence)
        if found is not None:
            return found
    return None


def _disk(evidence: Evidence) -> FailureResult | None:
    if not evidence.disk:
        return None
    return FailureResult(
        rank=-1,
        kind="environment",
        message=f"the run's record cannot be written: {evidence.disk}",
        advice="free some space, or give another folder with --runs-dir",
    )


def _agent(evidence: Evidence) -> FailureResult | None:
    if not evidence.agent_lost:
        return None
    return FailureResult(
        rank=-1,
        kind="signal",
        message="the launcher agent was killed, and every rank with it",
        advice="look for an out-of-memory kill (dmesg), or a job limit that ended the process",
    )


def _own_failure(evidence: Evidence) -> FailureResult | None:
    """A rank that failed by itself, the earliest; one that was killed before it comes first."""
    own = [failure for failure in evidence.failures if not failure.victim]
    if not own:
        return None
    first = min(own, key=lambda failure: failure.t)
    killed = _killed(evidence)
    if killed is not None and evidence.vanished.get(killed.rank, first.t + 1) < first.t:
        return killed
    return FailureResult(
        rank=first.rank,
        kind=first.kind,
        message=first.message,
        collective=_collective(first.collective, first.group, first.seq),
        traceback=first.traceback,
        advice=first.advice,
        victims=_others(evidence, first.rank),
    )


def _killed(evidence: Evidence) -> FailureResult | None:
    """A rank that a signal ended: it could not report, its peers' lost connections follow from it."""
    killed = {rank: code for rank, code in evidence.exit_codes.items() if code < 0}
    if not killed:
        return None
    late = 1 << 63
    rank = min(killed, key=lambda number: (evidence.vanished.get(number, late), number))
    name = _signal_name(-killed[rank])
    waiting = evidence.waiting.get(rank)
    return FailureResult(
        rank=rank,
        kind="signal",
        message=f"rank {rank} was killed by {name}",
        collective=_collective(waiting.name, waiting.group, waiting.seq) if waiting else "",
        advice=_signal_advice(-killed[rank]),
        victims=_others(evidence, rank),
    )


def _hang(evidence: Evidence) -> FailureResult | None:
    """Ranks waited in vain in a collective: the one that never arrived there is the failure."""
    pending = {
        failure.rank: (failure.collective, failure.group, failure.seq)
        for failure in evidence.failures
        if failure.victim and failure.kind == "timeout"
    }
    for rank, phase in evidence.waiting.items():
        if pending:
            pending.setdefault(rank, (phase.name, phase.group, phase.seq))
    if not pending:
        return None
    name, group, seq = min(pending.values(), key=lambda call: (call[2] < 0, call[2]))
    arrived = {rank for rank, (_, where, number) in pending.items() if where == group and number >= seq}
    late = [
        rank
        for rank in _members(evidence, group)
        if rank not in arrived and not _passed(evidence, rank, group, seq)
    ]
    if not late:
        return None
    rank = late[0]
    ended = " (it has already ended)" if rank in evidence.ended else ""
    return FailureResult(
        rank=rank,
        kind="hang",
        message=(
            f"{_ranks(late)} never arrived at {_collective(name, group, seq)}{ended}; "
            f"{_ranks(sorted(arrived))} waited there"
        ),
        collective=_collective(name, group, seq),
        traceback=evidence.stacks.get(rank, ""),
        advice="look at what that rank was doing: a branch that the others do not take, a loop, a slow disk",
        victims=sorted(arrived),
    )


def _out_of_time(evidence: Evidence) -> FailureResult | None:
    if not evidence.timed_out:
        return None
    idle = sorted(evidence.waiting)
    busy = [rank for rank in range(evidence.world_size) if rank not in idle and rank not in evidence.ended]
    rank = busy[0] if busy else (idle[0] if idle else -1)
    if busy and idle:
        what = f"{_ranks(busy)} did not wait for anyone; {_ranks(idle)} waited"
    elif busy:
        what = f"{_ranks(busy)} had not ended"
    else:
        what = "; ".join(
            f"rank {r} waits in {_collective(p.name, p.group, p.seq)}"
            for r, p in sorted(evidence.waiting.items())
        )
    return FailureResult(
        rank=rank,
        kind="timeout",
        message=f"{evidence.timed_out}; {what}" if what else evidence.timed_out,
        traceback=evidence.stacks.get(rank, ""),
        advice="give more time with --timeout, or look at the stack of that rank",
        victims=[other for other in idle if other != rank],
    )


def _gone(evidence: Evidence) -> FailureResult | None:
    """A rank that went without a word and without a signal."""
    codes = {rank: code for rank, code in evidence.exit_codes.items() if code > 0}
    silent = {rank for rank in evidence.vanished if rank not in {f.rank for f in evidence.failures}}
    gone = sorted(silent, key=lambda rank: evidence.vanished[rank]) or sorted(
        rank
        for rank in codes
        if rank not in evidence.ended and rank not in {f.rank for f in evidence.failures}
    )
    if not gone:
        return None
    rank = gone[0]
    code = codes.get(rank)
    how = f"with exit code {code}" if code is not None else "without a word"
    return FailureResult(
        rank=rank,
        kind="early_exit",
        message=f"rank {rank} ended {how} before the lab did",
        advice=f"see the last lines of rank{rank}.err.log in the run's folder",
        victims=_others(evidence, rank),
    )


def _any_victim(evidence: Evidence) -> FailureResult | None:
    """Only victims spoke, and nothing tells of whom: the first of them is all there is."""
    if not evidence.failures:
        return None
    first = evidence.failures[0]
    return FailureResult(
        rank=first.rank,
        kind=first.kind,
        message=first.message,
        collective=_collective(first.collective, first.group, first.seq),
        traceback=first.traceback,
        advice=first.advice,
        victims=_others(evidence, first.rank),
    )


def _others(evidence: Evidence, rank: int) -> list[int]:
    return sorted({f.rank for f in evidence.failures if f.rank not in (rank, -1)})


def _members(evidence: Evidence, group: str) -> Sequence[int]:
    known: Mapping[str, list[int]] = evidence.members
    return range(evidence.world_size) if group in ("world", "") else sorted(known.get(group, []))


def _passed(evidence: Evidence, rank: int, group: str, seq: int) -> bool:
    return evidence.sequence.get((rank, group), -1) >= seq >= 0


def _collective(name: str, group: str, seq: int) -> str:
    if not name:
        return ""
    number = f" number {seq}" if seq >= 0 else ""
    return f"{name}{number} of group {group}" if group else f"{name}{number}"


def _ranks(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _signal_advice(number: int) -> str:
    if number == signal.SIGKILL:
        return "someone killed it, or the system ran out of memory (dmesg tells)"
    if number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS):
        return "native code crashed; the rank's log holds its last words, /dev/shm may be full"
    return "look for what sent the signal"
