"""The proofs of a run: what was measured beside what was expected."""

from __future__ import annotations

import msgspec

from launcher.events import AnyEvent, Check, Measured
from launcher.rundir import Manifest
from workbench.views.base import View


class CheckRow(msgspec.Struct, frozen=True):
    """One check; where it was made more than once, the one that failed."""

    name: str
    passed: bool
    measured: Measured
    expected: Measured
    tolerance: float | None
    unit: str
    shows: str


class ChecksSnapshot(msgspec.Struct, frozen=True):
    """All checks in the order they came."""

    rows: tuple[CheckRow, ...] = ()
    over: bool = False

    @property
    def num_passed(self) -> int:
        """How many passed."""
        return sum(row.passed for row in self.rows)


class ChecksView(View[ChecksSnapshot]):
    """Takes checks; a name that comes twice has passed only if it passed every time."""

    takes = (Check,)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._rows: dict[str, CheckRow] = {}

    def fold(self, event: AnyEvent) -> None:
        """Take one check."""
        assert isinstance(event, Check)
        known = self._rows.get(event.name)
        if known is not None and not known.passed:
            return
        self._rows[event.name] = CheckRow(
            name=event.name,
            passed=event.passed,
            measured=event.measured,
            expected=event.expected,
            tolerance=event.tolerance,
            unit=event.unit,
            shows=event.shows,
        )

    def build(self) -> ChecksSnapshot:
        """Return the checks so far."""
        return ChecksSnapshot(rows=tuple(self._rows.values()), over=self.result is not None)
