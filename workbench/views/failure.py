"""The first failure of a run: which rank, why, where in its code, and what to try."""

from __future__ import annotations

import msgspec

from launcher.events import AnyEvent, Failure
from launcher.rundir import FailureResult, Manifest
from workbench.views.base import View


class FailureSnapshot(msgspec.Struct, frozen=True):
    """`failure` is None while nothing has failed; `final` once the result has named the first rank."""

    failure: FailureResult | None = None
    final: bool = False


class FailureView(View[FailureSnapshot]):
    """Takes failures as they come; the result, which weighs them all, has the last word."""

    takes = (Failure,)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._first: Failure | None = None
        self._others: list[int] = []

    def fold(self, event: AnyEvent) -> None:
        """Take one failure: the first that is not a victim's is shown."""
        assert isinstance(event, Failure)
        if self._first is None or (self._first.victim and not event.victim):
            if self._first is not None:
                self._others.append(self._first.rank)
            self._first = event
        elif event.rank != self._first.rank:
            self._others.append(event.rank)

    def build(self) -> FailureSnapshot:
        """Return the failure to show."""
        if self.result is not None:
            return FailureSnapshot(self.result.failure, final=True)
        if self._first is None:
            return FailureSnapshot()
        first = self._first
        shown = FailureResult(
            rank=first.rank,
            kind=first.kind,
            message=first.message,
            collective=first.collective,
            traceback=first.traceback,
            advice=first.advice,
            victims=sorted(set(self._others)),
        )
        return FailureSnapshot(shown)
