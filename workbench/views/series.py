"""A long series in bounded memory: neighbours are merged as it grows, extremes are kept when it is drawn."""

from __future__ import annotations

from collections.abc import Sequence

Points = tuple[tuple[float, float], ...]
"""Pairs of step and value, in the order of the steps."""

CAPACITY = 1024


class Series:
    """Keeps at most `capacity` points of a series of any length; the newest point is always exact."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._points: list[tuple[float, float]] = []
        self._stride = 1
        self._pending: list[tuple[float, float]] = []
        self.first: float | None = None
        self.last: float | None = None

    def add(self, step: float, value: float) -> None:
        """Append a value; the mean of `stride` neighbours is one point once the series is long."""
        if self.first is None:
            self.first = value
        self.last = value
        self._pending.append((step, value))
        if len(self._pending) >= self._stride:
            self._points.append(_mean(self._pending))
            self._pending = []
        if len(self._points) >= self._capacity:
            self._points = [_mean(self._points[i : i + 2]) for i in range(0, len(self._points), 2)]
            self._stride *= 2

    def points(self) -> Points:
        """Return the points kept, the newest value last."""
        return (*self._points, *self._pending[-1:])


def thin(points: Sequence[tuple[float, float]], columns: int) -> list[tuple[float, float]]:
    """Return at most two points a column: the lowest and the highest of each, in their order."""
    if columns < 1 or len(points) <= 2 * columns:
        return list(points)
    kept: list[tuple[float, float]] = []
    for column in range(columns):
        start, stop = column * len(points) // columns, (column + 1) * len(points) // columns
        part = points[start:stop]
        low = min(part, key=lambda point: point[1])
        high = max(part, key=lambda point: point[1])
        kept += sorted({low, high})
    return kept


def _mean(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return points[-1][0], sum(value for _, value in points) / len(points)
