"""The measured steps of a run, compactly: every whole step can be looked at again, in bounded memory.

All steps of a run do the same actions, so a step is its times alone, two numbers an action.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict

from labs.parallel.schedule_actions import Action
from workbench.views.gantt_chart import Chart, chart_of, gantt_action

NUMBERS_AT_MOST = 4_000_000
NS_A_MS = 1e6
Rows = tuple[tuple[Action, ...], ...]
Measured = list[list[tuple[Action, int, int]]]
"""By rank, in the order they ended: an action with its start and end in ns."""


class Archive:
    """Keeps the newest steps, up to a bound on the numbers held (8 bytes each)."""

    def __init__(self, numbers_at_most: int = NUMBERS_AT_MOST) -> None:
        self._at_most = numbers_at_most
        self._held = 0
        self._rows: dict[Rows, Rows] = {}
        self._steps: OrderedDict[int, tuple[Rows, array[int]]] = OrderedDict()

    def add(self, step: int, lanes: Measured) -> None:
        """Keep a whole step; the oldest go where there are too many."""
        rows = tuple(tuple(action for action, _, _ in lane) for lane in lanes)
        rows = self._rows.setdefault(rows, rows)
        times = array("q", (moment for lane in lanes for _, *moments in lane for moment in moments))
        self._steps[step] = (rows, times)
        self._held += len(times)
        while self._held > self._at_most and len(self._steps) > 1:
            _, (_, gone) = self._steps.popitem(last=False)
            self._held -= len(gone)

    def steps(self) -> list[int]:
        """Return the steps that are kept, in the order they were completed."""
        return list(self._steps)

    def chart(self, step: int) -> Chart | None:
        """Return the chart of a step, None if it is not kept; of communication it knows messages alone."""
        if step not in self._steps:
            return None
        rows, times = self._steps[step]
        origin = min(times, default=0)
        moments = iter(times)
        lanes = tuple(
            tuple(
                gantt_action(action, (next(moments) - origin) / NS_A_MS, (next(moments) - origin) / NS_A_MS)
                for action in row
            )
            for row in rows
        )
        return chart_of(lanes, whole=True, step=step)
