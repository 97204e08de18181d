"""The bandwidth sweep as it comes: busbw by size for each op, the fit so far, and what the node could do.

Reads the scalars that `labs/bandwidth/report.py` documents; the step is the index of the size.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from launcher.events import AnyEvent, Scalar
from launcher.rundir import Manifest
from workbench.views.base import View

Placement = Literal["out_of_place", "in_place"]


class Point(msgspec.Struct, frozen=True):
    """One size (bytes): times in microseconds, bandwidths in GB/s; `wrong` is None where not verified."""

    size: float
    median: float
    minimum: float
    p99: float
    algbw: float
    busbw: float
    wrong: float | None = None


class FitPoint(msgspec.Struct, frozen=True):
    """t = alpha + S/beta as of the newest size: us, GB/s, relative errors (None where not determined)."""

    alpha: float
    beta: float
    error: float
    alpha_error: float | None = None
    beta_error: float | None = None

    @property
    def half_size(self) -> float:
        """The size (bytes) at which half of the time is latency."""
        return self.alpha * 1e-6 * self.beta * 1e9


class OpCurve(msgspec.Struct, frozen=True):
    """One op's points in the order of their sizes."""

    op: str
    out_of_place: tuple[Point, ...] = ()
    in_place: tuple[Point, ...] = ()
    fit: FitPoint | None = None

    @property
    def factor(self) -> float:
        """busbw over algbw, as the points themselves have it."""
        return next((p.busbw / p.algbw for p in self.out_of_place if p.algbw > 0), 1.0)

    def fitted_busbw(self, size: float) -> float | None:
        """Return the busbw (GB/s) that the fit gives for `size` bytes."""
        if self.fit is None:
            return None
        seconds = self.fit.alpha * 1e-6 + size / (self.fit.beta * 1e9)
        return self.factor * size / seconds / 1e9 if seconds > 0 else None

    @property
    def average(self) -> float | None:
        """The average busbw (GB/s) over sizes and placements, the footer of nccl-tests."""
        rates = [p.busbw for p in (*self.out_of_place, *self.in_place)]
        return sum(rates) / len(rates) if rates else None

    @property
    def best(self) -> float:
        """The highest busbw (GB/s) out of place, 0 before the first."""
        return max((p.busbw for p in self.out_of_place), default=0.0)

    @property
    def wrong(self) -> int | None:
        """Wrong elements so far; None where nothing was verified."""
        counts = [p.wrong for p in (*self.out_of_place, *self.in_place) if p.wrong is not None]
        return int(sum(counts)) if counts else None


class BandwidthSnapshot(msgspec.Struct, frozen=True):
    """All ops so far, the newest last, and the two rates to hold them against (GB/s)."""

    ops: tuple[OpCurve, ...] = ()
    link_peak: float | None = None
    memcpy: float | None = None
    over: bool = False


class BandwidthView(View[BandwidthSnapshot]):
    """Takes the scalars `OP/PLACEMENT/QUANTITY` and `OP/fit/QUANTITY` of rank 0."""

    takes = (Scalar,)

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._values: dict[str, dict[tuple[str, str, int], float]] = {}
        self._link_peak: float | None = None
        self._memcpy: float | None = None

    def fold(self, event: AnyEvent) -> None:
        """Take one number of the sweep; scalars of other kinds are not this view's."""
        assert isinstance(event, Scalar)
        if event.name == "link_peak":
            self._link_peak = event.value
        elif event.name == "memcpy":
            self._memcpy = event.value
        parts = event.name.split("/")
        if len(parts) == 3 and parts[1] in ("out_of_place", "in_place", "fit") and event.step >= 0:
            self._values.setdefault(parts[0], {})[parts[1], parts[2], event.step] = event.value

    def build(self) -> BandwidthSnapshot:
        """Return the curves; a size is there once its last quantity has come."""
        return BandwidthSnapshot(
            ops=tuple(
                OpCurve(op, _points(values, "out_of_place"), _points(values, "in_place"), _fit(values))
                for op, values in self._values.items()
            ),
            link_peak=self._link_peak,
            memcpy=self._memcpy,
            over=self.result is not None,
        )


def _points(values: dict[tuple[str, str, int], float], placement: Placement) -> tuple[Point, ...]:
    points = []
    for where, name, step in values:
        if (where, name) != (placement, "busbw"):
            continue
        read = [
            values.get((placement, quantity, step)) for quantity in ("size", "median", "min", "p99", "algbw")
        ]
        if None in read:
            continue
        size, median, minimum, p99, algbw = (float(value or 0.0) for value in read)
        busbw, wrong = values[placement, "busbw", step], values.get((placement, "wrong", step))
        points.append(Point(size, median, minimum, p99, algbw, busbw, wrong))
    return tuple(sorted(points, key=lambda point: point.size))


def _fit(values: dict[tuple[str, str, int], float]) -> FitPoint | None:
    steps = [step for where, name, step in values if (where, name) == ("fit", "error")]
    if not steps:
        return None
    newest = max(steps)
    return FitPoint(
        alpha=values["fit", "alpha", newest],
        beta=values["fit", "beta", newest],
        error=values["fit", "error", newest],
        alpha_error=values.get(("fit", "alpha_error", newest)),
        beta_error=values.get(("fit", "beta_error", newest)),
    )
