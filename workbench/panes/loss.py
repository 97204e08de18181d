"""The loss curves: one a rank and their mean, by plotext, at most once a second."""

from __future__ import annotations

import plotext

from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, ink, muted, rank_tag
from workbench.panes.plot import decode, rgb, sign_curves, start_plot
from workbench.views.loss import LossSnapshot, RankLoss
from workbench.views.series import thin
from workbench.views.units import ranks_text

COLUMN, VALUE = 15, 9
"""Width of the column of newest values, and of a value in it."""
TICKS = 5
MANY = 16
"""More curves than this are a carpet, and take a third of a second to draw."""


class LossPane(Pane[LossSnapshot]):
    """Loss a rank and the mean."""

    NAME = "loss"
    TITLE = "loss"
    SPAN = 4
    MAX_HZ = 1.0

    def lines(self, snapshot: LossSnapshot, width: int, height: int) -> list[Line]:
        """Return the plot and, under it, the newest value of each rank."""
        if snapshot.step < 0:
            self.say("")
            return self.waiting("the run reported no loss" if snapshot.over else "waiting for the first loss")
        if snapshot.first_mean is not None and snapshot.last_mean is not None:
            arrow = self.glyphs.arrow
            self.say(f"mean {snapshot.first_mean:.5g} {arrow} {snapshot.last_mean:.5g}")
        if len(snapshot.ranks) <= min(height, MANY):
            return self._beside(snapshot, width, height)
        legend = self._legend(snapshot, width)
        return [*self._plot(snapshot, width, max(4, height - len(legend))), *legend]

    def _beside(self, snapshot: LossSnapshot, width: int, height: int) -> list[Line]:
        """The plot with the newest values in a column at its right, a rank a line."""
        room = width - COLUMN
        plot = self._plot(snapshot, room, height)
        values: list[Line] = [
            [
                rank_tag(curve.rank, 4),
                ink(shown_value(curve.last)) if curve.last is not None else muted("none"),
            ]
            for curve in snapshot.ranks
        ]
        values.append([muted("mean "), ink(shown_value(snapshot.last_mean), bold=True)])
        blank = [ink(" " * room)]
        lines = []
        for place in range(height):
            left = plot[place] if place < len(plot) else blank
            gap = room - sum(segment.cell_length for segment in left)
            right = values[place] if place < len(values) else []
            lines.append([*left, ink(" " * max(0, gap) + "  "), *right])
        return lines

    def _plot(self, snapshot: LossSnapshot, width: int, height: int) -> list[Line]:
        start_plot(width, height)
        columns = max(8, width - 10)
        steps: list[float] = []
        drawn = [curve for curve in self._drawn_curves(snapshot) if curve.points]
        for curve in drawn:
            marker = str(curve.rank % 10) if self.ascii_only else "braille"
            self._curve(curve.points, columns, palette.rank_colour(curve.rank), marker)
            steps += [curve.points[0][0], curve.points[-1][0]]
        if snapshot.mean and self.rank is None:
            self._curve(snapshot.mean, columns, palette.STRONG, "*" if self.ascii_only else "braille")
        if not self.ascii_only and len(drawn) > 1:
            sign_curves(
                [(f"{curve.rank % 10}", palette.rank_colour(curve.rank), curve.points) for curve in drawn]
            )
        if steps:
            plotext.xticks(whole_ticks(int(min(steps)), int(max(steps))))
        return decode(plotext.build(), ascii_only=self.ascii_only)[:height]

    def _drawn_curves(self, snapshot: LossSnapshot) -> list[RankLoss]:
        """The chosen rank's curve, or all of them; of very many the lowest and the highest."""
        if self.rank is not None:
            return [curve for curve in snapshot.ranks if curve.rank == self.rank]
        if len(snapshot.ranks) <= MANY:
            return list(snapshot.ranks)
        return extremes(snapshot)

    def _curve(self, points: tuple[tuple[float, float], ...], columns: int, colour: str, marker: str) -> None:
        kept = thin(points, columns)
        plotext.plot(
            [step for step, _ in kept], [value for _, value in kept], color=rgb(colour), marker=marker
        )

    def _legend(self, snapshot: LossSnapshot, width: int) -> list[Line]:
        entries: list[Line] = [
            [ink("mean ", palette.STRONG, bold=True), ink(shown_value(snapshot.last_mean))]
        ]
        shown = snapshot.ranks if len(snapshot.ranks) <= MANY else self._drawn_curves(snapshot)
        if len(shown) < len(snapshot.ranks) and self.rank is None:
            entries.append([muted(f"of {len(snapshot.ranks)} ranks the lowest and the highest:")])
        entries += [
            [rank_tag(curve.rank), muted(f" {shown_value(curve.last)}")]
            for curve in shown
            if curve.last is not None
        ]
        lines: list[Line] = [[]]
        used = 0
        for entry in entries:
            length = sum(segment.cell_length for segment in entry) + 2
            if used and used + length > width:
                lines.append([])
                used = 0
            lines[-1] += [*entry, ink("  ")]
            used += length
        if snapshot.silent:
            lines.append([muted(f"no loss on rank {ranks_text(snapshot.silent)}: not the last stage")])
        return lines


def extremes(snapshot: LossSnapshot) -> list[RankLoss]:
    """Return the curves that end lowest and highest; one where they are the same."""
    ended = [(curve.last, curve.rank) for curve in snapshot.ranks if curve.last is not None]
    chosen = {min(ended)[1], max(ended)[1]} if ended else set()
    return [curve for curve in snapshot.ranks if curve.rank in chosen]


def shown_value(value: float | None) -> str:
    """At most `VALUE` characters, with fewer digits where an exponent or a sign needs the room."""
    if value is None:
        return "-"
    texts = [f"{value:.{digits}g}" for digits in (4, 3, 2, 1)]
    return next((text for text in texts if len(text) <= VALUE), texts[-1])


def whole_ticks(first: int, last: int) -> list[int]:
    """Return at most `TICKS` whole steps from the first to the last, in even distances."""
    every = max(1, -(-(last - first) // (TICKS - 1)))
    return list(range(first, last + 1, every))
