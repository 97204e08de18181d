"""From events to `result.json`: folds a run's events as they come and says at the end how it went.

The collector uses it while it records; the agent and the client use the same fold on the record, should the
collector itself be gone.
"""

from __future__ import annotations

import math
from collections import deque
from pathlib import Path

from launcher import rundir
from launcher.blame import first_failure
from launcher.events import (
    AnyEvent,
    Check,
    Dropped,
    End,
    Failure,
    Log,
    Measured,
    Phase,
    Scalar,
    Span,
    Status,
)
from launcher.evidence import Evidence
from launcher.rundir import CheckResult, FailureResult, Manifest, Result

PASSED, CHECK_FAILED, ENVIRONMENT, WORKER_FAILED = 0, 1, 2, 3
STACK_MARK = "stack of the main thread:"
STDERR_LINES = 200
"""So many of a rank's last lines are searched for a traceback that it could not report."""


class Verdict:
    """The state of one run, as far as its verdict needs it."""

    def __init__(self, world_size: int) -> None:
        self.evidence = Evidence(world_size=world_size)
        self.events = 0
        self.dropped = 0
        self.rejected = 0
        self._checks: dict[str, CheckResult] = {}
        self._metrics: dict[str, float] = {}
        self._ready: dict[int, int] = {}
        self._stacking: set[int] = set()
        self._metric_ranks: dict[str, int] = {}
        self._stderr: dict[int, deque[str]] = {}

    def add(self, event: AnyEvent) -> None:
        """Fold one event."""
        self.events += 1
        if event.rank >= 0:
            self.evidence.connected.add(event.rank)
        match event:
            case Span():
                if event.seq >= 0:
                    self._arrived(event)
            case Scalar():
                if event.step < 0:
                    self._metric(event)
            case Phase():
                self._phase(event)
            case Check():
                self._check(event)
            case Failure():
                self.evidence.failures.append(event)
            case Dropped():
                self.dropped += event.count
            case End():
                if event.rank >= 0:
                    self.evidence.ended.add(event.rank)
            case Log():
                self._log(event)

    def result(
        self,
        manifest: Manifest,
        folder: Path,
        requested_ns: int,
        now_ns: int,
        status: Status | None = None,
        exit_code: int | None = None,
        reason: str = "",
    ) -> Result:
        """Return the result; `status` and `exit_code` are the launcher's where it ended the run itself.

        A metric that is not finite is left out: JSON has no number for it, the record has it.
        """
        if status == "error" and exit_code == ENVIRONMENT:
            self.evidence.environment = reason
        failure = self.failure(status)
        final, code = self._outcome(failure, status, exit_code)
        return Result(
            run_id=manifest.run_id,
            lab=manifest.lab,
            params=manifest.params,
            world_size=manifest.world_size,
            backend=manifest.backend,
            device=manifest.device,
            launcher=manifest.launcher,
            status=final,
            exit_code=code,
            wall_s=round((now_ns - requested_ns) / 1e9, 3),
            ready_s=self._ready_s(requested_ns),
            checks=list(self._checks.values()),
            metrics={name: value for name, value in self._metrics.items() if math.isfinite(value)},
            failure=failure,
            events=self.events,
            dropped=self.dropped,
            rejected=self.rejected,
            record=str(folder / rundir.EVENTS),
            reason=reason,
            paced_ms=manifest.paced_ms,
        )

    def failure(self, status: Status | None) -> FailureResult | None:
        """Return the first failure; an interrupted run has none: its ranks were told to end."""
        if status == "interrupted" and not self.evidence.disk and not self.evidence.agent_lost:
            return None
        self.evidence.stderr = {rank: list(lines) for rank, lines in self._stderr.items()}
        return first_failure(self.evidence)

    def _outcome(
        self, failure: FailureResult | None, status: Status | None, exit_code: int | None
    ) -> tuple[Status, int]:
        if failure is not None:
            return "error", ENVIRONMENT if failure.kind == "environment" else WORKER_FAILED
        if status is not None:
            return status, WORKER_FAILED if exit_code is None else exit_code
        if len(self.evidence.ended) < self.evidence.world_size:
            return "error", WORKER_FAILED
        if any(not check.passed for check in self._checks.values()):
            return "failed", CHECK_FAILED
        return "passed", PASSED

    def _ready_s(self, requested_ns: int) -> float | None:
        if len(self._ready) < self.evidence.world_size:
            return None
        return round((max(self._ready.values()) - requested_ns) / 1e9, 3)

    def _arrived(self, span: Span) -> None:
        key = (span.rank, span.group)
        last = self.evidence.sequence.get(key, -1)
        if span.seq > last:
            self.evidence.sequence[key] = span.seq
        if last < 0:
            self._is_member(span.rank, span.group)

    def _is_member(self, rank: int, group: str) -> None:
        members = self.evidence.members.setdefault(group, [])
        if rank not in members:
            members.append(rank)

    def _phase(self, phase: Phase) -> None:
        if phase.phase == "waiting":
            self.evidence.waiting[phase.rank] = phase
            self._is_member(phase.rank, phase.group)
            return
        if phase.phase != "failed":
            self.evidence.waiting.pop(phase.rank, None)
        if phase.phase == "ready":
            self._ready.setdefault(phase.rank, phase.t)

    def _metric(self, metric: Scalar) -> None:
        """Keep the last value, that of the lowest rank where several tell it."""
        if metric.rank <= self._metric_ranks.get(metric.name, metric.rank):
            self._metric_ranks[metric.name] = metric.rank
            self._metrics[metric.name] = metric.value

    def _check(self, check: Check) -> None:
        """Keep one result a name: it passed only if it did on every rank that tells it."""
        before = self._checks.get(check.name)
        if before is not None and not before.passed:
            return
        self._checks[check.name] = CheckResult(
            name=check.name,
            passed=check.passed,
            measured=_writable(check.measured),
            expected=_writable(check.expected),
            tolerance=check.tolerance,
            unit=check.unit,
            shows=check.shows,
        )

    def _log(self, log: Log) -> None:
        """Keep a stack that a rank sent; it comes as log lines behind a mark."""
        if log.line == STACK_MARK:
            self._stacking.add(log.rank)
            self.evidence.stacks[log.rank] = ""
        elif log.rank in self._stacking:
            if log.line.startswith(" "):
                self.evidence.stacks[log.rank] += log.line + "\n"
            else:
                self._stacking.discard(log.rank)
        if log.stream == "stderr":
            self._stderr.setdefault(log.rank, deque(maxlen=STDERR_LINES)).append(log.line)


def _writable(value: Measured) -> Measured:
    """Give a NaN or an infinity by its name: JSON has no number for it."""
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def write_result(folder: Path, result: Result) -> None:
    """Write `result.json` by rename; a reserve of disk space, if there is one, is given up first."""
    (folder / rundir.RESERVE).unlink(missing_ok=True)
    rundir.write_atomically(folder / rundir.RESULT, rundir.to_json(result))
