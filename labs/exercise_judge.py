"""Checks a learner's file on real ranks: runs it on each case, finds the first difference, names the mistake.

An exercise's `check.py` has

    FUNCTIONS   names that the learner's file must define; a mistake that is a function replaces the first
    CASES       name of an input -> the input
    run         (yours, comms, case) -> dict of what is compared; `yours` holds the learner's functions
    expected    (rank, world_size, case) -> the same dict, computed by one process
    USUALLY     what a difference means where no mistake is recognised

and `mistakes.py` holds wrong solutions: a function, or a class whose attributes replace those of the
solution; its name is the mistake's name and its docstring what it usually means. A mistake is recognised
where the learner's code comes, on every rank, to what the mistake comes to. All ranks call these functions
alike and come to the same verdict.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from labs.exercise_board import Board, MismatchError, Stuck, line_of
from labs.exercise_comms import WatchedComms
from labs.exercise_compare import Difference, alike, first_difference
from labs.exercise_files import MissingError, line_in, load, mistakes_of, traceback_of
from labs.exercise_verdict import Report, Told, explain
from labs.exercises import Exercise, Kind, Verdict
from labs.recorder import Recorder

GRACE_S = 3.0
"""How much longer than the time limit ranks wait for the others' report."""
MISTAKE_S = 10.0
"""How long a known mistake may take on a case; what takes longer is none that we know."""
AGAIN_S = 0.5
MOST_RINGS = 3
"""A learner's code may catch everything: after so many `Late`s its rank is ended."""
DEAF = 71
"""Exit code of a rank that was ended so."""


class Late(BaseException):
    """The time limit has passed; not an `Exception`, so that a learner's `except Exception` lets it
    through."""


@dataclass
class Outcome:
    """What a function came to on one rank for one case."""

    kind: Kind
    values: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    """Of an exception, a mismatch, a wait."""
    line: str = ""
    traceback: str = ""
    standings: list[Any] = field(default_factory=list)

    def same(self, other: Outcome) -> bool:
        """Whether another function came to the same, wherever its lines are."""
        return self.kind == other.kind and self.text == other.text and alike(self.values, other.values)


class Judge:
    """Checks files of one exercise; every rank holds one and calls it alike."""

    def __init__(self, exercise: Exercise, recorder: Recorder, rank: int, world_size: int, key: str) -> None:
        self.exercise = exercise
        self.check = importlib.import_module(f"{exercise.package}.check")
        self._recorder = recorder
        self._rank = rank
        self._world_size = world_size
        self._key = key
        self._runs = 0
        self._mistakes = mistakes_of(exercise)
        self._outcomes: dict[tuple[str, str], Outcome] = {}

    def judge_file(self, file: Path, limit_s: float) -> Verdict:
        """Check the learner's file within `limit_s` seconds."""
        until = time.monotonic() + limit_s
        yours, mine = None, ""
        try:
            with _limit(until):
                yours = load(file, self.check.FUNCTIONS)
        except BaseException as error:
            mine = msgspec.json.encode(self._unloadable(file, error, limit_s)).decode()
        told = self._board(file, GRACE_S + limit_s).gather("loaded", mine, GRACE_S)
        failed = {rank: text for rank, text in enumerate(told) if text}
        if failed:  # on some ranks perhaps, in other lines perhaps: the lowest one speaks for all
            verdict = msgspec.json.decode(failed[min(failed)], type=Verdict)
            alone = min(failed) if len(failed) < self._world_size else -1
            return msgspec.structs.replace(verdict, rank=alone)
        return self.judge(yours, file, until)

    def judge(self, yours: Any, file: Path, until: float) -> Verdict:
        """Check functions; `file` is where their lines are, `until` a moment of the monotonic clock."""
        for name, case in self.check.CASES.items():
            board = self._board(file)
            outcome = self._run(yours, case, board, until)
            report = self._report(outcome, case)
            told = board.gather(
                "report", msgspec.json.encode(report).decode(), until + GRACE_S - time.monotonic()
            )
            reports = [msgspec.json.decode(text, type=Report) if text else None for text in told]
            if any(each is None or each.kind != "passed" for each in reports):
                mistake, meaning = self._recognise(outcome, name, reports)
                verdict = explain(self.exercise.name, name, reports, self.check.USUALLY)
                if mistake:
                    return msgspec.structs.replace(verdict, mistake=mistake, meaning=meaning)
                return verdict
        cases = ", ".join(self.check.CASES)
        return Verdict(
            exercise=self.exercise.name,
            kind="passed",
            message=f"right on {self._world_size} ranks: {cases}",
        )

    def _run(self, yours: Any, case: Any, board: Board, until: float) -> Outcome:
        """Run one case on this rank; whatever the learner's code does, an outcome comes back."""
        comms = WatchedComms(self._recorder, board)
        try:
            with _limit(until, lambda frame: self._leave(board, frame)):
                values = self.check.run(yours, comms, case)
                outcome = Outcome("passed", values)
                with contextlib.suppress(Stuck, MismatchError):
                    if forgotten := comms.finish():
                        outcome = Outcome("unwaited", text=forgotten[0].text, line=forgotten[0].line)
        except BaseException as error:
            outcome = _outcome_of(error, board)
        if outcome.kind != "stuck":  # then its last standing, in which it waits, stands for good
            board.end("returned" if outcome.kind == "passed" else "raised")
        return outcome

    def _leave(self, board: Board, frame: FrameType | None) -> None:
        """End this rank, whose code goes on whatever is raised in it; the others read why on the board."""
        report = Report(kind="late", line=line_of(board.file, frame))
        board.announce(f"report/{self._rank}", msgspec.json.encode(report).decode())
        os._exit(DEAF)

    def _report(self, outcome: Outcome, case: Any) -> Report:
        """What this rank tells the others of its outcome."""
        difference: Difference | None = None
        if outcome.kind == "passed":
            expected = self.check.expected(self._rank, self._world_size, case)
            difference = first_difference(expected, outcome.values, self._world_size)
        told = Told(**vars(difference)) if difference is not None else None
        return Report(
            kind="differs" if told is not None else outcome.kind,
            text=outcome.text,
            line=outcome.line,
            traceback=outcome.traceback,
            difference=told,
            standings=outcome.standings,
        )

    def _recognise(self, mine: Outcome, case_name: str, reports: list[Report | None]) -> tuple[str, str]:
        """Run every known mistake on the same case; returns the name and meaning of the one that fits."""
        kinds = {report.kind if report is not None else "worker" for report in reports}
        if kinds & {"worker", "late", "unwritten", "file"}:
            return "", ""
        for name, (_, meaning) in self._mistakes.items():
            known = self._known(name, case_name)
            fits = known.kind != "late" and mine.same(known)
            if self._all(fits) and self._passes_before(name, case_name):
                return name, meaning
        return "", ""

    def _passes_before(self, mistake: str, case_name: str) -> bool:
        """Whether a mistake does not show on the cases before, which the learner's code has passed."""
        for name, earlier in self.check.CASES.items():
            if name == case_name:
                return True
            if not self._all(self._report(self._known(mistake, name), earlier).kind == "passed"):
                return False
        return True

    def _known(self, mistake: str, case_name: str) -> Outcome:
        """What a mistake comes to on this rank for a case; run once."""
        if (mistake, case_name) not in self._outcomes:
            functions, case = self._mistakes[mistake][0], self.check.CASES[case_name]
            outcome = self._run(functions, case, self._board(None), time.monotonic() + MISTAKE_S)
            self._outcomes[mistake, case_name] = outcome
        return self._outcomes[mistake, case_name]

    def _all(self, mine: bool) -> bool:
        """Whether it is so on every rank."""
        return set(self._board(None).gather("all", str(mine), MISTAKE_S)) == {"True"}

    def _board(self, file: Path | None, patience_s: float = 2 * GRACE_S) -> Board:
        """Open a fresh board, which every rank has then."""
        self._runs += 1
        board = Board(self._rank, self._world_size, f"{self._key}/{self._runs}", file)
        board.gather("begin", "", patience_s)
        return board

    def _unloadable(self, file: Path, error: BaseException, limit_s: float) -> Verdict:
        kind: Kind = "late" if isinstance(error, Late) else "file"
        line = _line(file, error)
        if isinstance(error, SyntaxError):
            line = f"{file.name}:{error.lineno}"
            message = f"{type(error).__name__} in line {error.lineno}: {error.msg}"
        elif isinstance(error, Late):
            message = (
                f"the file itself did not come to its end within {limit_s:g} s: {line or 'an endless loop'}"
            )
        elif isinstance(error, MissingError):
            message = str(error)
        else:
            message = f"the file cannot be loaded: {type(error).__name__}: {error}"
        meaning = "Python has to be able to import the file before any rank can call your function."
        return Verdict(
            exercise=self.exercise.name,
            kind=kind,
            message=message,
            meaning=meaning,
            line=line,
            traceback=traceback_of(error),
        )


@contextlib.contextmanager
def _limit(until: float, deaf: Callable[[FrameType | None], None] | None = None) -> Iterator[None]:
    """Raise `Late` inside of the block at a moment of the monotonic clock, again and again until it ends.

    `deaf` is called with what is running where the block catches `Late` and goes on.
    """
    rings = itertools.count(1)

    def ring(_number: int, frame: FrameType | None) -> None:
        if next(rings) > MOST_RINGS and deaf is not None:
            deaf(frame)
        raise Late(frame)

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(0.001, until - time.monotonic()), AGAIN_S)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _outcome_of(error: BaseException, board: Board) -> Outcome:
    """Say what ended the learner's function on this rank."""
    line = _line(board.file, error)
    if isinstance(error, NotImplementedError):
        return Outcome("unwritten", text=str(error), line=line)
    if isinstance(error, Late):
        return Outcome("late", text=board.waits, line=line)
    if isinstance(error, Stuck):
        text = error.standings[board.rank].waits
        return Outcome("stuck", text=text, line=line, standings=error.standings)
    if isinstance(error, MismatchError):
        return Outcome("mismatch", text=str(error), line=line)
    text = f"{type(error).__name__}: {str(error).strip()}"
    return Outcome("exception", text=text, line=line, traceback=traceback_of(error))


def _line(file: Path | None, error: BaseException) -> str:
    """The learner's line that an exception came from; of `Late`, that which was running."""
    running = line_of(file, error.args[0]) if isinstance(error, Late) and error.args else ""
    return line_in(file, error) or running
