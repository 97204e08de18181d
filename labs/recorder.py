"""Spans with the right clock: the CPU's where work is synchronous, pairs of CUDA events where it is queued.

On a GPU a call returns before its work begins, so a span's ends are events on the stream. They are turned
into times at the end of a step, those that have passed by then; nothing here waits inside a step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from launcher.emitter import Emitter
from launcher.events import Lane

Mark = int | torch.cuda.Event
"""A moment: nanoseconds of the monotonic clock, or an event on the current CUDA stream."""

Observer = Callable[[Lane, str, int, int, dict[str, Any]], None]
"""Hears of each span of this rank, as it is emitted: lane, name, start, end, fields."""


class Recorder:
    """Emits the spans of one rank; `step` is the ambient step that they carry."""

    def __init__(self, emit: Emitter, device: torch.device) -> None:
        self.emit = emit
        self.device = device
        self.step = -1
        self.observers: list[Observer] = []
        self._pending: list[tuple[Lane, str, torch.cuda.Event, torch.cuda.Event, dict[str, Any]]] = []
        if device.type == "cuda":
            self._zero = self._event()
            torch.cuda.synchronize(device)
            self._zero_ns = time.monotonic_ns()

    def mark(self) -> Mark:
        """Take the current moment of the device."""
        return self._event() if self.device.type == "cuda" else time.monotonic_ns()

    def span(self, lane: Lane, name: str, start: Mark, end: Mark, **fields: Any) -> None:
        """Emit a span between two marks; `fields` are those of `launcher.events.Span`."""
        fields.setdefault("step", self.step)
        if isinstance(start, int) and isinstance(end, int):
            self._tell(lane, name, start, end, fields)
        else:
            assert not isinstance(start, int)
            assert not isinstance(end, int)
            self._pending.append((lane, name, start, end, fields))

    @contextmanager
    def spanning(self, lane: Lane, name: str, **fields: Any) -> Iterator[None]:
        """Emit the time of a `with` block as a span; none where the block raises."""
        start = self.mark()
        yield
        self.span(lane, name, start, self.mark(), **fields)

    def settle(self, *, wait: bool = False) -> None:
        """Turn the passed CUDA events into spans; with `wait`, all of them (at the end of a run)."""
        if not self._pending:
            return
        if wait:
            torch.cuda.synchronize(self.device)
        later = []
        for lane, name, start, end, fields in self._pending:
            if end.query():  # type: ignore[no-untyped-call]
                self._tell(lane, name, self._ns(start), self._ns(end), fields)
            else:
                later.append((lane, name, start, end, fields))
        self._pending = later

    def _tell(self, lane: Lane, name: str, t0: int, t1: int, fields: dict[str, Any]) -> None:
        self.emit.span(lane, name, t0, t1, **fields)
        for observer in self.observers:
            observer(lane, name, t0, t1, fields)

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event

    def _ns(self, event: torch.cuda.Event) -> int:
        return self._zero_ns + int(self._zero.elapsed_time(event) * 1e6)
