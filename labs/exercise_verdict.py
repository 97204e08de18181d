"""From what every rank reports of a case to one verdict: who is to blame, and what it means. Pure.

The order in which reports count: a rank that is gone, code not written yet, an exception of a rank's own, a
rank that never came back, operations that do not fit, a deadlock, wrong values, handles nobody waited for.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from labs.exercise_board import Standing
from labs.exercises import Kind, Verdict


class Told(msgspec.Struct, frozen=True):
    """A `labs.exercise_compare.Difference` as it travels."""

    order: int
    item: str
    index: str
    expected: str
    got: str
    pattern: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank tells of one case."""

    kind: Kind
    text: str = ""
    line: str = ""
    traceback: str = ""
    difference: Told | None = None
    standings: list[Standing] = []


def explain(exercise: str, case: str, reports: Sequence[Report | None], usually: str) -> Verdict:
    """Return the verdict of a case that did not pass on every rank; `usually` is what a difference means."""
    verdict = (
        _gone(reports)
        or _unwritten(reports)
        or _raised(reports)
        or _late(reports)
        or _mismatched(reports)
        or _stuck(reports)
        or _differing(reports, usually)
        or _unwaited(reports)
    )
    assert verdict is not None
    return msgspec.structs.replace(verdict, exercise=exercise, case=case)


def _of(reports: Sequence[Report | None], kind: Kind) -> list[tuple[int, Report]]:
    return [
        (rank, report) for rank, report in enumerate(reports) if report is not None and report.kind == kind
    ]


def _gone(reports: Sequence[Report | None]) -> Verdict | None:
    gone = [rank for rank, report in enumerate(reports) if report is None]
    if not gone:
        return None
    return Verdict(
        exercise="",
        kind="worker",
        rank=gone[0],
        message=f"{_ranks(gone)} did not report: ended, or deaf to the time limit",
        meaning="Code that ends its process, or waits inside a call of its own, takes the rank with it.",
    )


def _unwritten(reports: Sequence[Report | None]) -> Verdict | None:
    found = _of(reports, "unwritten")
    if not found:
        return None
    rank, report = found[0]
    return Verdict(
        exercise="",
        kind="unwritten",
        rank=rank,
        line=report.line,
        message=f"not written yet: {report.line or 'the function'} raises NotImplementedError",
        meaning="Put your own code in place of that line; its docstring says what goes in and comes out.",
    )


def _raised(reports: Sequence[Report | None]) -> Verdict | None:
    found = _of(reports, "exception")
    if not found:
        return None
    rank, report = found[0]
    alone = len(found) < len(reports)
    where = f" in {report.line}" if report.line else ""
    meaning = "The traceback shows the line."
    if alone:
        meaning = (
            f"Only {_ranks([each for each, _ in found])} raised: look at what is different there, "
            "such as a first or last rank, an empty piece or a branch on the rank."
        )
    return Verdict(
        exercise="",
        kind="exception",
        rank=rank,
        line=report.line,
        traceback=report.traceback,
        message=f"{_ranks([each for each, _ in found])} raised {report.text}{where}",
        meaning=meaning,
    )


def _late(reports: Sequence[Report | None]) -> Verdict | None:
    found = _of(reports, "late")
    if not found:
        return None
    rank, report = next(((rank, each) for rank, each in found if not each.text), found[0])
    if report.text:
        message = f"rank {rank} still waited in {report.text} when the time was up"
        meaning = "The ranks went on exchanging without end, or the machine is too busy for the time limit."
    else:
        message = f"rank {rank} was still running {report.line or 'your code'} when the time was up"
        meaning = "An endless loop, or a call that never returns: look at what is different on that rank."
    return Verdict(exercise="", kind="late", rank=rank, line=report.line, message=message, meaning=meaning)


def _mismatched(reports: Sequence[Report | None]) -> Verdict | None:
    found = _of(reports, "mismatch")
    if not found:
        return None
    rank, report = found[0]
    return Verdict(
        exercise="",
        kind="mismatch",
        rank=rank,
        line=report.line,
        message=report.text,
        meaning="Partners must agree on the operation, its order, the number of elements and their type; "
        "here nothing checks it for them.",
    )


def _stuck(reports: Sequence[Report | None]) -> Verdict | None:
    found = _of(reports, "stuck")
    if not found:
        return None
    standings = found[0][1].standings
    waiting = {rank: standing for rank, standing in enumerate(standings) if standing.status == "waiting"}
    over = {rank for rank, standing in enumerate(standings) if standing.status != "waiting"}
    rank = next((each for each, at in waiting.items() if over & set(at.peers)), min(waiting))
    standing = waiting[rank]
    return Verdict(
        exercise="",
        kind="stuck",
        rank=rank,
        line=standing.line,
        message=f"deadlock: {_why(rank, waiting, over)}",
        expected="every send and every collective meets its partners",
        got="; ".join(f"rank {each}: {at.waits}" for each, at in waiting.items()),
        meaning=_meaning(rank, waiting, over),
    )


def _why(rank: int, waiting: dict[int, Standing], over: set[int]) -> str:
    standing = waiting[rank]
    absent = [peer for peer in standing.peers if peer in over]
    did = {"recv": "never sent", "send": "never received"}.get(standing.waits.split()[0], "never called it")
    if absent:
        end = "it has come to its end" if len(absent) == 1 else "they have come to their end"
        return f"rank {rank} waits in {standing.waits}, {_which(standing, absent)}{did}: {end}"
    chain, at = [rank], rank
    while (at := next(iter(waiting[at].peers), -1)) not in chain and at in waiting:
        chain.append(at)
    steps = [f"rank {each} waits in {waiting[each].waits}" for each in chain]
    return f"{', '.join(steps)}: a circle of waits"


def _which(standing: Standing, absent: list[int]) -> str:
    return "which " if standing.waits.split()[0] in ("recv", "send") else f"which {_ranks(absent)} "


def _meaning(rank: int, waiting: dict[int, Standing], over: set[int]) -> str:
    first = {standing.waits.split()[0] for standing in waiting.values()}
    if set(waiting[rank].peers) & over:
        if first <= {"recv", "send"}:
            return "A loop is one step too short on one side, or a branch is taken by one of the two only."
        return (
            "Every rank of a group must call a collective, and equally often: look for a branch on the rank."
        )
    if first == {"send"}:
        return (
            "Every rank sends before it receives, and a send returns only when the other side receives: "
            "begin it with isend, receive, then wait for it; or let every other rank receive first."
        )
    if first == {"recv"}:
        return "Every rank receives before it sends, so nobody ever sends: someone has to begin."
    return "The ranks issue their operations in different orders: each waits for what comes later elsewhere."


def _differing(reports: Sequence[Report | None], usually: str) -> Verdict | None:
    found = {rank: report.difference for rank, report in _of(reports, "differs") if report.difference}
    if not found:
        return None
    rank = min(found, key=lambda each: (found[each].order, each))
    difference = found[rank]
    others = [each for each in found if each != rank]
    pattern = f"{difference.pattern[0].upper()}{difference.pattern[1:]}. " if difference.pattern else ""
    where = f" at {difference.index}" if difference.index else ""
    also = f"; {_ranks(others)} {'differ' if len(others) > 1 else 'differs'} too" if others else ""
    return Verdict(
        exercise="",
        kind="differs",
        rank=rank,
        item=difference.item,
        index=difference.index,
        expected=difference.expected,
        got=difference.got,
        message=f"rank {rank}: {difference.item}{where}: expected {difference.expected}, "
        f"got {difference.got}{also}",
        meaning=f"{pattern}{usually}",
    )


def _unwaited(reports: Sequence[Report | None]) -> Verdict | None:
    found = _of(reports, "unwaited")
    if not found:
        return None
    rank, report = found[0]
    return Verdict(
        exercise="",
        kind="unwaited",
        rank=rank,
        line=report.line,
        message=f"rank {rank} returned without waiting for its {report.text}, begun in {report.line}",
        meaning="Until wait() returns, the tensor of an operation in flight may neither be read nor changed: "
        "what it holds is chance.",
    )


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
