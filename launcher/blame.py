"""Who failed first: from what the ranks said and how they went, the failure that caused the others.

Time stamps alone do not tell. A rank that is killed says nothing, and its peers report a lost connection some
milliseconds before anyone notices; a rank that never arrives at a collective reports nothing at all, and the
first to complain is the one with the shortest patience. So the kinds of evidence are ranked: a rank's own
failure or its disappearance, whichever came first; then who never arrived; then the first that spoke. Pure.
"""

from __future__ import annotations

import signal

from launcher.events import Failure, FailureKind
from launcher.evidence import (
    LEFT_WITH_COLLECTOR,
    ORPHANED,
    Evidence,
    collective_text,
    is_victim,
    ranks_text,
    waited_in_vain,
)
from launcher.rundir import FailureResult
from launcher.waits import Absent, absent_of, waits_of

NOTICED_LATER_NS = 500_000_000
"""Victims may report a lost connection so long before the disappearance of the rank is noticed."""
SERVER_GONE = 256
"""Instead of an exit code, which ends at 255: the forkserver was killed, and the rank with it."""
KILLED_HINT = "look for an out-of-memory kill (dmesg), or a job limit that ended the process"
LOG_HINT = "its last words are in rank{}.err.log in the run's folder"


def first_failure(evidence: Evidence) -> FailureResult | None:
    """Return the failure that came first, its victims named; None where nothing failed."""
    judges = (
        _disk,
        _environment,
        _agent,
        _server,
        _own_or_gone,
        _out_of_time,
        _never_arrived,
        _codes,
        _spoke,
    )
    for judge in judges:
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


def _environment(evidence: Evidence) -> FailureResult | None:
    if not evidence.environment:
        return None
    return FailureResult(
        rank=-1, kind="environment", message=evidence.environment, advice="run again; see --doctor"
    )


def _agent(evidence: Evidence) -> FailureResult | None:
    """The agent was killed: a failure that a rank had reported before comes first, else it is the cause."""
    if not evidence.agent_lost or len(evidence.ended) == evidence.world_size:
        return None
    own = [failure for failure in evidence.failures if failure.rank >= 0 and not is_victim(failure)]
    if own:
        return _own(evidence, min(own, key=lambda failure: failure.t))
    return FailureResult(
        rank=-1,
        kind="signal",
        message="the launcher agent was killed, and every rank with it",
        advice=KILLED_HINT,
        victims=sorted(set(range(evidence.world_size)) - evidence.ended),
    )


def _server(evidence: Evidence) -> FailureResult | None:
    """The forkserver was killed, and the system ended every rank with it: no rank did anything wrong."""
    if SERVER_GONE not in evidence.exit_codes.values():
        return None
    if any(failure.rank >= 0 and not is_victim(failure) for failure in evidence.failures):
        return None
    return FailureResult(
        rank=-1,
        kind="signal",
        message="the process that forks the ranks was killed, and every rank with it",
        advice=KILLED_HINT,
        victims=sorted(set(range(evidence.world_size)) - evidence.ended),
    )


def _own_or_gone(evidence: Evidence) -> FailureResult | None:
    """The earliest of the failures that ranks report as their own, and of the ranks that went silently."""
    own = [failure for failure in evidence.failures if not is_victim(failure)]
    first = min(own, key=lambda failure: failure.t, default=None)
    unheard = _killed_unheard(evidence)
    if first is None and unheard is not None:
        return _gone(evidence, unheard)
    gone = _first_gone(evidence)
    if gone is not None and (first is None or evidence.vanished[gone] < first.t):
        return _gone(evidence, gone)
    return None if first is None else _own(evidence, first)


def _killed_unheard(evidence: Evidence) -> int | None:
    """A rank that a signal ended before its first event was sent, so that no connection told of it.

    The ranks that the launcher ended afterwards vanish too, but have no exit code of their own.
    """
    told = {failure.rank for failure in evidence.failures} | evidence.ended | set(evidence.vanished)
    killed = [rank for rank, code in evidence.exit_codes.items() if code < 0 and rank not in told]
    coded = set(evidence.vanished) & set(evidence.exit_codes)
    return min(killed) if killed and not coded else None


def _first_gone(evidence: Evidence) -> int | None:
    """The rank that disappeared first, unless others had failed already: then the launcher ended it.

    A lost connection is noticed at its other end a little before the disappearance itself; a collective's
    timeout is no such sign.
    """
    gone = {
        rank: when
        for rank, when in evidence.vanished.items()
        if evidence.exit_codes.get(rank) not in (LEFT_WITH_COLLECTOR, ORPHANED)
    }
    if evidence.timed_out or evidence.agent_lost or not gone:
        return None
    when = min(gone.values())
    for failure in evidence.failures:
        early = NOTICED_LATER_NS if is_victim(failure) and not waited_in_vain(failure) else 0
        if failure.t + early < when:
            return None
    # Of those that went at about the same time, one that a signal or an exit code tells of.
    near = [rank for rank in gone if gone[rank] - when <= NOTICED_LATER_NS]
    return min(near, key=lambda rank: (evidence.exit_codes.get(rank, 0) == 0, gone[rank], rank))


def _own(evidence: Evidence, failure: Failure) -> FailureResult:
    message = failure.message
    others = {other.rank for other in evidence.failures if other.kind == "mismatch"} | {failure.rank}
    if failure.kind == "mismatch" and len(others) > 1:
        message += f" (reported by {ranks_text(sorted(others))})"
    return FailureResult(
        rank=failure.rank,
        kind=failure.kind,
        message=message,
        collective=collective_text(failure.collective, failure.group, failure.seq),
        traceback=failure.traceback,
        advice=failure.advice,
        victims=_others(evidence, failure.rank),
    )


def _gone(evidence: Evidence, rank: int) -> FailureResult:
    """A rank that went without a word: by a signal, with an exit code, or nobody knows how."""
    code = evidence.exit_codes.get(rank)
    wait = waits_of(evidence).get(rank)
    printed = _printed_traceback(evidence, rank)
    kind, how = describe_exit(code)
    before = "" if code is not None and code < 0 else " before the lab did"
    if rank not in evidence.connected:
        before = " before it could say anything"
    message = f"rank {rank} {how}{before}"
    if printed and kind == "early_exit":
        kind, message = "exception", f"{message}: {printed.splitlines()[-1]}"
    return FailureResult(
        rank=rank,
        kind=kind,
        message=message,
        collective=str(wait) if wait else "",
        traceback=printed,
        advice=_signal_advice(-code) if code is not None and code < 0 else LOG_HINT.format(rank),
        victims=_others(evidence, rank),
    )


def describe_exit(code: int | None) -> tuple[FailureKind, str]:
    """Return the kind of failure and how a rank went that ended with `code` (None: unknown) silently."""
    if code is None:
        return "early_exit", "ended without a word"
    if code < 0:
        return "signal", f"was killed by {_signal_name(-code)}"
    return "early_exit", f"ended with exit code {code}"


def _never_arrived(evidence: Evidence) -> FailureResult | None:
    """Ranks waited in vain in a collective: the one that never arrived there is the failure."""
    if not any(waited_in_vain(failure) for failure in evidence.failures):
        return None
    absent = absent_of(evidence)
    return None if absent is None else _hang(evidence, absent, "hang", absent.message)


def _out_of_time(evidence: Evidence) -> FailureResult | None:
    if not evidence.timed_out:
        return None
    absent = absent_of(evidence)
    if absent is not None:
        return _hang(evidence, absent, "timeout", f"{evidence.timed_out}; {absent.message}")
    busy = [rank for rank in range(evidence.world_size) if rank not in evidence.ended]
    what = f"; {ranks_text(busy)} had not ended" if busy else ""
    rank = busy[0] if busy else -1
    return FailureResult(
        rank=rank,
        kind="timeout",
        message=f"{evidence.timed_out}{what}, and nobody waited for another",
        traceback=evidence.stacks.get(rank, ""),
        advice="give more time with --timeout, or look at the stack of that rank",
    )


def _hang(evidence: Evidence, absent: Absent, kind: str, message: str) -> FailureResult:
    rank = absent.ranks[0]
    return FailureResult(
        rank=rank,
        kind=kind,
        message=message,
        collective=str(absent.wait),
        traceback=evidence.stacks.get(rank, ""),
        advice="look at what that rank was doing: a branch that the others do not take, a loop, a slow disk",
        victims=[other for other in absent.waiting if other != rank],
    )


def _codes(evidence: Evidence) -> FailureResult | None:
    """Exit codes are all there is: ranks that failed before they could connect."""
    known = {failure.rank for failure in evidence.failures} | evidence.ended
    silent = {
        rank: code
        for rank, code in evidence.exit_codes.items()
        if rank not in known and code not in (LEFT_WITH_COLLECTOR, ORPHANED)
    }
    bad = [rank for rank, code in silent.items() if code != 0] or list(silent)
    return _gone(evidence, min(bad)) if bad else None


def _spoke(evidence: Evidence) -> FailureResult | None:
    """Only victims spoke, and nothing tells of whom: the first of them is all there is."""
    if not evidence.failures:
        return None
    return _own(evidence, min(evidence.failures, key=lambda failure: failure.t))


def _others(evidence: Evidence, rank: int) -> list[int]:
    """The other ranks that failed, or waited, at the time."""
    found = {failure.rank for failure in evidence.failures} | set(waits_of(evidence))
    return sorted(found - {rank, -1})


def _printed_traceback(evidence: Evidence, rank: int) -> str:
    """The last Python traceback, or faulthandler's report, in what the rank printed."""
    lines = evidence.stderr.get(rank, [])
    openings = ("Traceback (most recent call last)", "Fatal Python error")
    starts = [number for number, line in enumerate(lines) if line.startswith(openings)]
    return "\n".join(lines[starts[-1] :]).rstrip() if starts else ""


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
