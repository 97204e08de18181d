"""How a run ends: watches its ranks from a thread of the agent and ends them when it must.

Reasons to end: a stop request, the time limit, a rank that reported a failure or vanished. Ending is
SIGTERM, then SIGKILL to everything that the run started; a second stop request skips the wait. The main
thread sits in torchrun's elastic agent meanwhile and only sees its processes exit.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from launcher import lifeline
from launcher.events import Status
from launcher.protocol import RunRequest
from launcher.rundir import ProcessId

FAILURE_MOMENT_S = 1.0
"""How long the other ranks may still report after the first failure."""
VANISHED_MOMENT_S = 2.0
"""How long ranks may take to leave once one of them is gone."""
TORCHRUN_MOMENT_S = 2.0
"""How long `torchrun` may take to end the other ranks itself and to print how the first one went."""
STACKS_MOMENT_S = 0.5
"""How long ranks may take to send their stacks when the time limit has passed."""
TERM_GRACE_S = 2.0
KILLED_MOMENT_S = 0.5
STUCK_S = 15.0
"""After this long in ending, the agent itself is stuck and leaves."""
POLL_S = 0.2


@dataclass(frozen=True)
class Ending:
    """Why the launcher ended the run; `status` None where the ranks' own events decide."""

    status: Status | None = None
    exit_code: int | None = None
    reason: str = ""
    timed_out: str = ""
    """The time limit that passed, in words."""
    agent_lost: bool = False
    """Whether it is told by who is left, since the agent was killed."""


class RunControl:
    """One run, from the moment its request was read until its last process is gone."""

    def __init__(
        self,
        request: RunRequest,
        ask_for_stacks: Callable[[], None],
        break_launch: Callable[[], None],
        stuck: Callable[[], None],
    ) -> None:
        self.request = request
        self.ending = Ending()
        self.requested_ns = time.monotonic_ns()
        self._ask_for_stacks = ask_for_stacks
        self._break_launch = break_launch
        self._stuck = stuck
        self._changed = threading.Condition()
        self._ranks: list[ProcessId] = []
        self._before: set[ProcessId] = set()
        self._failed: set[int] = set()
        self._launched = False
        self._finished = False
        self._stops = 0
        self._end_at = self.requested_ns / 1e9 + request.timeout_s if request.timeout_s > 0 else float("inf")
        self._out_of_time_at = self._end_at
        self._kill_at = float("inf")
        self._break_at = float("inf")
        self._stuck_at = float("inf")
        self._terminated = False
        self._ended_by_us: set[int] = set()
        self._thread = threading.Thread(target=self._watch, name="run-control", daemon=True)

    def begin(self) -> None:
        """Start watching. What runs below the agent now is not of the run."""
        self._before = set(lifeline.family([os.getpid()]))
        self._thread.start()

    def launched(self, ranks: Iterable[int]) -> None:
        """Tell which processes to end: the ranks, or the `torchrun` that has them as children."""
        found = [process for pid in ranks if (process := lifeline.identify(pid)) is not None]
        with self._changed:
            self._ranks = found
            self._launched = True
            self._changed.notify()

    def stop(self, reason: str, exit_code: int) -> None:
        """End the run as interrupted; the second call kills what is left at once."""
        with self._changed:
            self._stops += 1
            now = time.monotonic()
            if self._stops == 1 and self.ending.status is None:
                self.ending = Ending("interrupted", exit_code, reason)
            self._end_at = min(self._end_at, now)
            if self._stops > 1:
                self._kill_at = now
            self._changed.notify()

    def fail(self, exit_code: int, reason: str) -> None:
        """End the run because the launcher itself cannot go on with it (no recorder)."""
        with self._changed:
            if self.ending.status is None:
                self.ending = Ending("error", exit_code, reason)
            self._end_at = min(self._end_at, time.monotonic())
            self._changed.notify()

    def rank_failed(self, rank: int) -> None:
        """A rank reported a failure or broke off; the others get a moment to report theirs.

        Rank -1 is the record: it cannot be written any more, and nothing is worth waiting for.
        """
        with self._changed:
            first = not self._failed
            self._failed.add(rank)
            everyone = rank < 0 or len(self._failed) >= self.request.world_size
            moment = 0.0 if everyone else FAILURE_MOMENT_S
            if rank >= 0 and self.request.launcher == "torchrun":
                moment = TORCHRUN_MOMENT_S
            self._end_at = min(self._end_at, time.monotonic() + moment)
            self._changed.notify()
        if first and not everyone:
            self._ask_for_stacks()

    def own_end(self, pid: int) -> bool:
        """Whether a rank that is gone went by itself: how those go that the launcher ends says nothing.

        An exit code is seen later than its rank went, under load much later: the rank counts, not the moment.
        """
        return pid not in self._ended_by_us

    def rank_ended(self) -> None:
        """A rank has ended with an error; the others get a moment to report what they saw."""
        with self._changed:
            self._end_at = min(self._end_at, time.monotonic() + FAILURE_MOMENT_S)
            self._changed.notify()

    def finish(self) -> None:
        """The launch has returned: end what is left of the run and wait until it is gone."""
        with self._changed:
            self._finished = True
            self._changed.notify()
        self._thread.join()
        deadline = time.monotonic() + STUCK_S
        while (rest := self._rest()) and time.monotonic() < deadline:
            for process in rest:
                lifeline.send(process, signal.SIGKILL)
            time.sleep(0.01)
        lifeline.reap({process.pid for process in self._before})

    def _rest(self) -> list[ProcessId]:
        """Every living process that this run has started."""
        family = lifeline.family([os.getpid()], [rank.pid for rank in self._ranks])
        return [process for process in family if process not in self._before]

    def _watch(self) -> None:
        with self._changed:
            while not self._finished:
                now = time.monotonic()
                if self._launched:
                    self._look(now)
                if self._end_at <= now:
                    self._end(now)
                self._changed.wait(self._pause(time.monotonic()))

    def _pause(self, now: float) -> float:
        next_moment = min(self._end_at if not self._terminated else self._kill_at, self._break_at)
        return min(POLL_S, max(0.005, next_moment - now))

    def _look(self, now: float) -> None:
        """Notice ranks that are gone: torch waits without end for the others of one that left with 0."""
        if not all(lifeline.alive(rank) for rank in self._ranks):
            self._end_at = min(self._end_at, now + VANISHED_MOMENT_S)

    def _end(self, now: float) -> None:
        """Do the step of ending that is due: stacks, SIGTERM, SIGKILL, breaking the launch."""
        self._stuck_at = min(self._stuck_at, now + STUCK_S)
        if now >= self._stuck_at:
            self._stuck()
        if self._end_at == self._out_of_time_at and self.ending.status is None:
            passed = f"the time limit of {self.request.timeout_s:g} s has passed"
            self.ending = Ending("error", 3, passed, passed)
            self._ask_for_stacks()
            self._end_at = now + STACKS_MOMENT_S
            return
        if not self._launched:
            return
        if not self._terminated:
            self._terminated = True
            self._ended_by_us = {rank.pid for rank in self._ranks if lifeline.alive(rank)}
            self._kill_at = min(self._kill_at, now + TERM_GRACE_S)
            self._terminate()
        if now >= self._kill_at:
            for process in self._rest():
                lifeline.send(process, signal.SIGKILL)
            self._kill_at = now + TERM_GRACE_S
        if any(lifeline.alive(rank) for rank in self._ranks):
            self._break_at = float("inf")
        elif self._break_at == float("inf"):
            self._break_at = now + KILLED_MOMENT_S
        elif now >= self._break_at:
            self._break_at = now + KILLED_MOMENT_S
            self._break_launch()

    def _terminate(self) -> None:
        for rank in self._ranks:
            lifeline.send(rank, signal.SIGTERM)
        for process in [*self._ranks, *self._rest()]:  # a stopped process does not act on SIGTERM
            lifeline.send(process, signal.SIGCONT)
