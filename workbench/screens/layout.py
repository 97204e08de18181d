"""The grid of the run screen, as data: panes packed into rows of six columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

COLUMNS = 6


def pack(names: Sequence[str], spans: Mapping[str, int]) -> list[list[str]]:
    """Return rows of pane names: each pane goes into the first row that has room for its span."""
    rows: list[list[str]] = []
    room: list[int] = []
    for name in names:
        span = spans[name]
        place = next((index for index, left in enumerate(room) if left >= span), None)
        if place is None:
            rows.append([name])
            room.append(COLUMNS - span)
        else:
            rows[place].append(name)
            room[place] -= span
    return rows
