"""The plot of busbw against size: measured, fitted, the two regimes and the link's peak."""

from __future__ import annotations

import math
from typing import ClassVar

import plotext
from textual.binding import Binding, BindingType

from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, ink, muted, right
from workbench.panes.plot import decode, rgb, start_plot
from workbench.views.bandwidth import BandwidthSnapshot, OpCurve, Point

IN_SIGHT = 0.25
"""What part of the link's peak must be reached for its line to be drawn: else the curve would lie flat."""
_UNITS = ("B", "K", "M", "G")


class BandwidthPane(Pane[BandwidthSnapshot]):
    """busbw by size, the newest op first; left and right choose another."""

    NAME = "bandwidth"
    TITLE = "busbw by size"
    SPAN = 4
    WEIGHT = 14
    MAX_HZ = 1.0
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "choose(-1)", "op", key_display="left right", tooltip="the operation before"),
        Binding("right", "choose(1)", "op after", show=False, tooltip="the operation after"),
    ]

    def __init__(self, *, ascii_only: bool = False, key: str = "") -> None:
        super().__init__(ascii_only=ascii_only, key=key)
        self._chosen: str | None = None

    def action_choose(self, by: int) -> None:
        """Show the op `by` places further; past the newest one, follow the newest again."""
        if self.shown is None or not self.shown.ops:
            return
        names = [curve.op for curve in self.shown.ops]
        place = names.index(self._chosen) if self._chosen in names else len(names) - 1
        place = max(0, place + by)
        self._chosen = names[place] if place < len(names) - 1 else None
        self._drawn = None
        self.redraw()

    def lines(self, snapshot: BandwidthSnapshot, width: int, height: int) -> list[Line]:
        """Return the plot, under it the fit in words and the newest sizes."""
        curve = self.curve(snapshot)
        if curve is None or not curve.out_of_place:
            self.say("")
            text = "the run measured no size" if snapshot.over else "waiting for the first size"
            return self.waiting(text)
        average = curve.average
        self.say(f"{curve.op} avg {average:.3g} GB/s" if average is not None else curve.op)
        words = [*self._legend(curve, snapshot), *self._rows(curve, width, min(height - 14, height // 3))]
        return [*self._plot(curve, snapshot, width, max(5, height - len(words))), *words]

    def curve(self, snapshot: BandwidthSnapshot) -> OpCurve | None:
        """Return the op in view: the one chosen, else the newest; None before the first."""
        named = {curve.op: curve for curve in snapshot.ops}
        if self._chosen in named:
            return named[self._chosen]
        return snapshot.ops[-1] if snapshot.ops else None

    def _plot(self, curve: OpCurve, snapshot: BandwidthSnapshot, width: int, height: int) -> list[Line]:
        start_plot(width, height)
        marker = "braille" if not self.ascii_only else None
        low, high = curve.out_of_place[0].size, curve.out_of_place[-1].size
        if curve.fit is not None and high > low:
            sizes = [low * (high / low) ** (i / 60) for i in range(61)]
            rates = [curve.fitted_busbw(size) or 0.0 for size in sizes]
            xs = [math.log2(size) for size in sizes]
            plotext.plot(xs, rates, color=rgb(palette.MUTED), marker=marker or ".")
            if low < curve.fit.half_size < high:
                plotext.vertical_line(math.log2(curve.fit.half_size), color=rgb(palette.WARN))
        if snapshot.link_peak is not None and curve.best >= IN_SIGHT * snapshot.link_peak:
            plotext.horizontal_line(snapshot.link_peak, color=rgb(palette.BAD))
        for points, colour, letter in (
            (curve.in_place, palette.RANKS[1], "i"),
            (curve.out_of_place, palette.RANKS[0], "o"),
        ):
            if points:
                xs = [math.log2(point.size) for point in points]
                plotext.scatter(xs, [point.busbw for point in points], color=rgb(colour), marker=letter)
        ticks = _ticks(low, high)
        plotext.xticks([math.log2(size) for size in ticks], [_size(size) for size in ticks])
        return decode(plotext.build(), ascii_only=self.ascii_only)[:height]

    def _legend(self, curve: OpCurve, snapshot: BandwidthSnapshot) -> list[Line]:
        lines: list[Line] = [
            [
                ink("o", palette.RANKS[0], bold=True),
                muted(" out of place  "),
                ink("i", palette.RANKS[1], bold=True),
                muted(" in place  GB/s by S"),
            ]
        ]
        wrong = curve.wrong
        if wrong is None:
            lines[0].append(muted("  not verified"))
        elif wrong:
            lines[0].append(ink(f"  {self.glyphs.failed} {wrong} wrong elements", palette.BAD, bold=True))
        else:
            lines[0].append(ink(f"  {self.glyphs.passed} results right", palette.GOOD))
        if curve.fit is not None:
            lines += self._regimes(curve)
        if snapshot.link_peak is not None:
            share = curve.best / snapshot.link_peak
            over = " (the switch reduces: NVLS)" if share > 1 else ""
            over = ", above the plot" if share < IN_SIGHT else over
            lines.append([muted(f"link peak {snapshot.link_peak:.4g} GB/s, reached {share:.0%}{over}")])
        return lines

    def _regimes(self, curve: OpCurve) -> list[Line]:
        assert curve.fit is not None
        fit = curve.fit
        return [
            [
                muted("t = "),
                ink(f"{fit.alpha:.4g} us", palette.STRONG),
                muted(f"{self._error(fit.alpha_error)} + S / "),
                ink(f"{fit.beta:.3g} GB/s", palette.STRONG),
                muted(f"{self._error(fit.beta_error)}, fit error {fit.error:.0%}"),
            ],
            [
                muted("latency below "),
                ink(_size(fit.half_size), palette.WARN, bold=True),
                muted(f" {self.glyphs.rule} bandwidth above"),
            ],
        ]

    def _error(self, error: float | None) -> str:
        sign = "+-" if self.ascii_only else "±"
        return " (not determined)" if error is None else f" {sign}{error:.0%}"

    def _rows(self, curve: OpCurve, width: int, room: int) -> list[Line]:
        """Return the newest sizes as a table, as many as there is room for."""
        if room < 2 or width < 52:
            return []
        head = (
            f"{'size':>7}{'median us':>11}{'min us':>10}{'p99 us':>10}{'algbw':>8}{'busbw':>8}{'#wrong':>7}"
        )
        rows = [_row(point) for point in curve.out_of_place[-(room - 1) :]]
        return [[muted(head)], *([ink(row)] for row in rows)]


def _row(p: Point) -> str:
    wrong = "-" if p.wrong is None else f"{p.wrong:.0f}"
    return (
        f"{_size(p.size):>7}{p.median:>11.1f}{p.minimum:>10.1f}{p.p99:>10.1f}"
        f"{right(f'{p.algbw:.3g}', 8)}{right(f'{p.busbw:.3g}', 8)}{wrong:>7}"
    )


def _ticks(low: float, high: float) -> list[float]:
    """Return powers of two between the sizes, at most seven."""
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    step = max(1, math.ceil((last - first + 1) / 7))
    return [2.0**power for power in range(first, last + 1, step)]


def _size(size: float) -> str:
    """Return bytes with binary suffixes, as on the command line: `64K`, `1.5M`."""
    place = 0
    while size >= 1024 and place < len(_UNITS) - 1:
        size, place = size / 1024, place + 1
    return f"{size:.3g}{_UNITS[place]}"
