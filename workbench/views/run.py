"""The run as a whole: how far it is, how long it will take, and its verdict."""

from __future__ import annotations

from typing import Literal

import msgspec

from launcher.events import AnyEvent, Check, Dropped, Failure, Phase, Sample, Scalar
from launcher.rundir import Manifest
from workbench.views.base import View
from workbench.views.units import count, duration

State = Literal["starting", "running", "failing", "passed", "failed", "error", "interrupted"]


class RunSnapshot(msgspec.Struct, frozen=True):
    """Progress and verdict; times in seconds on the ranks' own clock. `step` is the one that goes on."""

    state: State = "starting"
    num_ready: int = 0
    step: int = 0
    total_steps: int = 0
    elapsed_s: float = 0.0
    left_s: float | None = None
    num_checks: int = 0
    num_passed: int = 0
    dropped: int = 0
    verdict: str = ""

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.state in ("passed", "failed", "error", "interrupted")


class RunView(View[RunSnapshot]):
    """Takes phases for the progress and whatever moves the clock on."""

    takes = (Phase, Check, Dropped, Failure, Sample, Scalar)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._steps: dict[int, int] = {}
        self._ready: set[int] = set()
        self._total = 0
        self._first_t = self._last_t = 0
        self._step_t: tuple[int, int] | None = None
        self._checks: dict[str, bool] = {}
        self._dropped = 0
        self._failing = False

    def fold(self, event: AnyEvent) -> None:
        """Take one event."""
        self._first_t = min(self._first_t or event.t, event.t)
        self._last_t = max(self._last_t, event.t)
        match event:
            case Phase():
                self._phase(event)
            case Check():
                self._checks[event.name] = self._checks.get(event.name, True) and event.passed
            case Dropped():
                self._dropped += event.count
            case Failure():
                self._failing = True

    def _phase(self, event: Phase) -> None:
        if event.phase != "starting":
            self._ready.add(event.rank)
        if event.step < 0:
            return
        self._steps[event.rank] = max(self._steps.get(event.rank, 0), event.step)
        self._total = max(self._total, event.total_steps)
        if self._step_t is None:
            self._step_t = (event.step, event.t)

    def _left(self, step: int) -> float | None:
        if self._step_t is None or not self._total:
            return None
        first_step, first_t = self._step_t
        done = step - first_step
        if done < 1:
            return None
        return (self._last_t - first_t) / 1e9 / done * max(0, self._total - step + 1)

    def build(self) -> RunSnapshot:
        """Return the progress: the run is at the step of its slowest rank, 0 before the first."""
        result = self.result
        step = min(self._steps.values(), default=0) if len(self._steps) == self.manifest.world_size else 0
        elapsed = (self._last_t - self._first_t) / 1e9
        running: State = "failing" if self._failing else "running" if self._steps else "starting"
        return RunSnapshot(
            state=result.status if result is not None else running,
            num_ready=len(self._ready),
            step=step,
            total_steps=self._total,
            elapsed_s=result.wall_s if result is not None else round(elapsed, 1),
            left_s=None if result is not None else self._left(step),
            num_checks=len(self._checks),
            num_passed=sum(self._checks.values()),
            dropped=result.dropped if result is not None else self._dropped,
            verdict=self._verdict(),
        )

    def _verdict(self) -> str:
        result = self.result
        if result is None:
            return ""
        took = duration(result.wall_s)
        match result.status:
            case "passed":
                return f"passed: {count(len(result.checks), 'check')} in {took}"
            case "failed":
                wrong = [check.name for check in result.checks if not check.passed]
                return f"failed: {count(len(wrong), 'check')} of {len(result.checks)}: {', '.join(wrong)}"
            case "interrupted":
                return f"interrupted after {took}: {result.reason or 'stopped'}"
        if result.failure is None:
            return f"error after {took}: {result.reason or 'the run did not come to its end'}"
        who = f"rank {result.failure.rank}" if result.failure.rank >= 0 else "the launcher"
        return f"error: {who} failed first ({result.failure.kind}): {_first_line(result.failure.message)}"


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
