"""What every view model is: a reducer that folds events and hands out one frozen snapshot."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

import msgspec

from launcher.events import AnyEvent
from launcher.rundir import Manifest, Result

S = TypeVar("S", bound=msgspec.Struct)


class View(Generic[S]):
    """Folds the events of its kinds; `snapshot` returns the same object until something visible changed.

    The first snapshot, before any event, is the pane's designed first frame.
    """

    takes: ClassVar[tuple[type, ...]] = ()

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.result: Result | None = None
        self._snapshot: S | None = None
        self._stale = True

    def feed(self, event: AnyEvent) -> None:
        """Fold the event if it is of a kind that this view takes."""
        if isinstance(event, self.takes):
            self.fold(event)
            self._stale = True

    def finish(self, result: Result) -> None:
        """The run has ended with this result."""
        self.result = result
        self._stale = True

    def fold(self, event: AnyEvent) -> None:
        """Take one event into the state; only events of `takes` arrive here."""
        raise NotImplementedError

    def build(self) -> S:
        """Return a snapshot of the state."""
        raise NotImplementedError

    def snapshot(self) -> S:
        """Return the current snapshot: the same object as before where nothing visible changed."""
        if self._snapshot is None or self._stale:
            fresh = self.build()
            if fresh != self._snapshot:
                self._snapshot = fresh
            self._stale = False
        assert self._snapshot is not None
        return self._snapshot
