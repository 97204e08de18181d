"""The measured steps of a run, compactly: every whole step can be looked at again, in bounded memory.

All steps of a run do the same actions, so a step is its times alone, two numbers an action.
"""

from __future__ import annotations

from array import array

import msgspec

from labs.parallel.schedule_actions import Action
from workbench.views.gantt_chart import Chart, chart_of, gantt_action

NUMBERS_AT_MOST = 4_000_000
NS_A_MS = 1e6
Rows = tuple[tuple[Action, ...], ...]
Measured = list[list[tuple[Action, int, int]]]
"""By rank, in the order they ended: an action with its start and end in ns."""


class Archive(msgspec.Struct, eq=False):
    """Keeps the newest steps, up to a bound on the numbers held (8 bytes each)."""

    at_most: int = NUMBERS_AT_MOST
    held: int = 0
    rows: list[Rows] = []
    """What the steps do; more than one only where a run changes its schedule."""
    times: dict[int, tuple[int, bytes]] = {}
    """By step: its place in `rows`, and start and end of each action in ns."""

    def add(self, step: int, lanes: Measured) -> None:
        """Keep a whole step; the oldest go where there are too many."""
        rows = tuple(tuple(action for action, _, _ in lane) for lane in lanes)
        if rows not in self.rows:
            self.rows.append(rows)
        moments = array("q", (moment for lane in lanes for _, *both in lane for moment in both))
        self.times[step] = (self.rows.index(rows), moments.tobytes())
        self.held += len(moments)
        while self.held > self.at_most and len(self.times) > 1:
            _, gone = self.times.pop(next(iter(self.times)))
            self.held -= len(gone) // moments.itemsize

    def steps(self) -> list[int]:
        """Return the steps that are kept, in the order they were completed."""
        return list(self.times)

    def chart(self, step: int) -> Chart | None:
        """Return the chart of a step, None if it is not kept; of communication it knows messages alone."""
        if step not in self.times:
            return None
        place, kept = self.times[step]
        times = array("q", kept)
        origin = min(times, default=0)
        moments = iter(times)
        lanes = tuple(
            tuple(
                gantt_action(action, (next(moments) - origin) / NS_A_MS, (next(moments) - origin) / NS_A_MS)
                for action in row
            )
            for row in self.rows[place]
        )
        return chart_of(lanes, whole=True, step=step)
