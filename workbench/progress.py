"""The progress of a headless run on stderr: a bar on a terminal, plain lines anywhere else.

`Tally` folds events into what is worth saying and knows no stream; `Progress` writes it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from typing import TextIO

from launcher.events import AnyEvent, Check, Failure, Hello, Log, Phase, Scalar
from workbench.console import is_terminal, write

BAR_CELLS = 24
REDRAW_S = 0.1
LINE_S = 5.0
LINE_SHARE = 0.1
WARNING = "warning: "
CLEAR_LINE = "\r\x1b[K"


class Tally:
    """What the events of a run so far amount to."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.warm = False
        self.hellos: set[int] = set()
        self.ready: set[int] = set()
        self.done: set[int] = set()
        self.steps: dict[int, int] = {}
        self.total = 0
        self.loss: float | None = None
        self.checks = 0
        self.failed_checks = 0
        self.failure: Failure | None = None

    def add(self, events: Iterable[AnyEvent]) -> None:
        """Fold events in."""
        for event in events:
            match event:
                case Hello():
                    self.hellos.add(event.rank)
                case Phase():
                    self._phase(event)
                case Scalar(name="loss", step=step) if step >= 0:
                    self.loss = event.value
                case Check():
                    self.checks += 1
                    self.failed_checks += not event.passed
                case Failure(victim=False) if self.failure is None:
                    self.failure = event

    def _phase(self, event: Phase) -> None:
        if event.phase in ("ready", "running"):
            self.ready.add(event.rank)
        if event.phase == "done":
            self.done.add(event.rank)
        if event.phase == "running" and event.total_steps > 0:
            self.steps[event.rank] = event.step
            self.total = event.total_steps

    @property
    def step(self) -> int:
        """Number of steps that every rank has begun."""
        return min(self.steps.values()) if len(self.steps) == self.world_size else 0

    @property
    def share(self) -> float:
        """How much of the steps is done, 0 to 1."""
        if len(self.done) == self.world_size:
            return 1.0
        return max(0, self.step - 1) / self.total if self.total else 0.0

    def state(self) -> str:
        """Where the run stands, in words."""
        ranks = "1 rank" if self.world_size == 1 else f"{self.world_size} ranks"
        if self.failure is not None:
            return f"rank {self.failure.rank} failed" if self.failure.rank >= 0 else "the run failed"
        if len(self.done) == self.world_size:
            return "done"
        if self.step:
            loss = f", loss {self.loss:.4g}" if self.loss is not None else ""
            return f"step {self.step} of {self.total}{loss}"
        if len(self.ready) == self.world_size:
            return f"{ranks} running"
        if self.hellos or self.ready:
            return f"{len(self.ready)} of {ranks} ready"
        return f"starting {ranks}" if self.warm else "loading torch"


class Progress:
    """Writes a tally to stderr as it changes."""

    def __init__(
        self, stream: TextIO, lab: str, world_size: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.tally = Tally(world_size)
        self._stream = stream
        self._lab = lab
        self._clock = clock
        self._began = clock()
        self._bar = is_terminal(stream)
        self._blocks = "█░" if "utf" in (stream.encoding or "").lower() else "#."
        self._drawn_at = self._said_at = float("-inf")
        self._said = ""
        self._said_share = 0.0

    def add(self, events: Iterable[AnyEvent]) -> None:
        """Fold events in and show what they change; a warning that rank 0 says stands by itself."""
        events = list(events)
        self.tally.add(events)
        for event in events:
            if isinstance(event, Log) and event.rank == 0 and event.line.startswith(WARNING):
                self.note(event.line)
        now = self._clock()
        if not self._bar:
            self._say_if_news(now)
        elif now - self._drawn_at >= REDRAW_S:
            self._drawn_at = now
            write(self._stream, CLEAR_LINE + self._line(now))

    def warm(self) -> None:
        """The agent has loaded torch."""
        self.tally.warm = True

    def note(self, text: str) -> None:
        """Say something once, above the bar."""
        write(self._stream, f"{CLEAR_LINE if self._bar else ''}{self._lab}: {text}\n")

    def close(self) -> None:
        """Leave the line that the bar stood on empty."""
        if self._bar:
            write(self._stream, CLEAR_LINE)

    def _line(self, now: float) -> str:
        tally = self.tally
        full = round(tally.share * BAR_CELLS)
        bar = self._blocks[0] * full + self._blocks[1] * (BAR_CELLS - full)
        failed = f", {tally.failed_checks} of {tally.checks} checks failed" if tally.failed_checks else ""
        line = f"{self._lab} {bar} {tally.share:4.0%}  {tally.state()}{failed}  {now - self._began:.0f} s"
        return line[: max(20, shutil.get_terminal_size().columns - 1)]

    def _say_if_news(self, now: float) -> None:
        """A line for each new state; while steps go by, one each 10% or 5 s, whichever is later."""
        state = self.tally.state()
        stage = state if not self.tally.step or self.tally.failure else "steps"
        if len(self.tally.done) == self.tally.world_size:
            stage = "done"
        moved = self.tally.share - self._said_share >= LINE_SHARE and now - self._said_at >= 1.0
        if stage == self._said and not (stage == "steps" and (moved or now - self._said_at >= LINE_S)):
            return
        self._said, self._said_at, self._said_share = stage, now, self.tally.share
        self.note(f"{state} ({now - self._began:.1f} s)")
