"""The checks: passed or not, measured beside expected, and what each one shows."""

from __future__ import annotations

from rich.cells import cell_len

from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, fit, ink, muted, wrap
from workbench.views.checks import CheckRow, ChecksSnapshot
from workbench.views.units import allowance, number

WIDE = 70


class ChecksPane(Pane[ChecksSnapshot]):
    """What the run proved."""

    NAME = "checks"
    TITLE = "checks"

    def lines(self, snapshot: ChecksSnapshot, width: int, height: int) -> list[Line]:
        """Return a line a check; with room, what was measured, in full, and what it shows under it."""
        if not snapshot.rows:
            self.say("")
            return self.waiting("the run made no check" if snapshot.over else "waiting for the first check")
        self.say(f"{snapshot.num_passed} of {len(snapshot.rows)} passed")
        if width < WIDE:
            return [line for row in snapshot.rows for line in self._short(row, width)]
        return [line for row in snapshot.rows for line in self._long(row, width)]

    def _title(self, row: CheckRow, width: int) -> Line:
        glyph = self.glyphs.passed if row.passed else self.glyphs.failed
        colour = palette.GOOD if row.passed else palette.BAD
        return [
            ink(f"{glyph} ", colour, bold=True),
            ink(fit(row.name, width - 2, self.glyphs.ellipsis), "" if row.passed else colour),
        ]

    def _measured(self, row: CheckRow) -> str:
        if row.measured is None and row.expected is None:
            return ""
        unit = row.unit if row.unit == "B" else ""
        tolerance = f" within {allowance(row.tolerance, unit)}" if row.tolerance else ""
        after = f" {row.unit}" if row.unit and not unit else ""
        return f"{number(row.measured, unit)}, expected {number(row.expected, unit)}{tolerance}{after}"

    def _short(self, row: CheckRow, width: int) -> list[Line]:
        lines = [self._title(row, width)]
        if not row.passed:
            lines += [[ink("  "), ink(text, palette.BAD)] for text in wrap(self._measured(row), width - 2)]
        return lines

    def _long(self, row: CheckRow, width: int) -> list[Line]:
        half = max(30, width * 2 // 5)
        colour = palette.MUTED if row.passed else palette.BAD
        told = wrap(self._measured(row), width - half - 1)
        if cell_len(row.name) > half - 2:  # the name has its line, and what was measured the next ones
            lines = [self._title(row, width)]
        else:
            lines = [[*self._title(row, half), ink(" "), ink(told.pop(0), colour)]]
        lines += [[ink(" " * (half + 1)), ink(text, colour)] for text in told if text]
        return [*lines, *([ink("  "), muted(text)] for text in wrap(row.shows, width - 4) if text)]
