"""What a learner's code has called so far on one rank, and the handles of its operations in flight."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch.multiprocessing.reductions import StorageWeakRef

from labs.comms import Handle
from labs.recorder import Mark

if TYPE_CHECKING:
    from labs.exercise_comms import WatchedComms


@dataclass
class Journal:
    """What this rank has called, in order, shared by its communicators: `calls` as `send to rank 1`."""

    calls: list[str] = field(default_factory=list)
    elements: Counter[str] = field(default_factory=Counter)
    """Elements by op; of a collective, those this rank brings."""
    handles: list[WatchedHandle] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    queues: defaultdict[str, deque[WatchedHandle]] = field(default_factory=lambda: defaultdict(deque))
    """Collectives of each group that have not started: they start in their order."""

    gathered: list[StorageWeakRef] = field(default_factory=list)
    """The buffers of all-gathers, as long as they live."""

    def gathered_alive(self) -> int:
        """Return how many buffers that an all-gather filled still have somebody who refers to them."""
        return sum(not reference.expired() for reference in self.gathered)  # type: ignore[no-untyped-call]

    def ops(self) -> list[str]:
        """Return the name of every call, in order."""
        return [call.split()[0] for call in self.calls]


class WatchedHandle(Handle):
    """An operation in flight; `wait()` returns when its tensors may be used."""

    _comms: WatchedComms

    def __init__(
        self, comms: WatchedComms, name: str, text: str, missing: Callable[[], list[int]], start: Mark
    ) -> None:
        self._comms = comms
        self._name = name
        self._missing = missing
        self._start = start
        self.text = text
        self.elements = 0
        self.line = comms.board.learners_line()
        self.real: Any = None
        self.then: Callable[[], Any] | None = None
        """What is left to do when the real operation is over."""
        self.ready: Callable[[], bool] = lambda: self.real is not None
        self.span: dict[str, Any] = {}
        self._waited = False
        self.asked = False
        """Whether anybody has called `wait`."""

    def is_completed(self) -> bool:
        """Whether the operation is over; does not wait."""
        return self._waited or (self.ready() and bool(self.real.is_completed()))

    def wait(self) -> None:
        """Wait for the operation; a second call returns at once.

        Raises:
            Stuck: it can never come to its end.
            MismatchError: the partners brought what does not fit together.
        """
        self.asked = True
        if self._waited:
            return
        with self._comms.pending(self.text, -1):
            self._comms.board.wait(self.ready, self.text, self._missing)
            self.real.wait()
        if self.then is not None:
            self.then()
        self._waited = True
        self.real = self.then = None  # they hold the tensors
        if self.span:
            recorder = self._comms.recorder
            recorder.span("comm", self._name, self._start, recorder.mark(), **self.span)
