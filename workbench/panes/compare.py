"""The panes of the compare screen: a table of facts, loss curves in one plot, schedules on one time scale."""

from __future__ import annotations

from typing import ClassVar

import plotext
from rich.segment import Segment
from textual.binding import Binding, BindingType

from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.gantt_ink import coloured
from workbench.panes.ink import Line, fit, ink, muted, right
from workbench.panes.loss import whole_ticks
from workbench.panes.plot import decode, rgb, sign_curves, start_plot
from workbench.views import gantt_picture as picture
from workbench.views.compare import LETTERS, OverlaySnapshot, Row, StackSnapshot, TableSnapshot
from workbench.views.series import thin

VALUE_WIDTH = 12
RATIO_WIDTH = 8
MAX_ZOOM = 64


def letter(place: int) -> str:
    """Return the letter of a run."""
    return LETTERS[place % len(LETTERS)]


class CompareTablePane(Pane[TableSnapshot]):
    """What differs, and the figures side by side."""

    NAME = "compare"
    TITLE = "runs side by side"
    SHORT = "table"

    def lines(self, snapshot: TableSnapshot, width: int, height: int) -> list[Line]:
        """Return the runs, then the parameters, checks and figures, a fact a line."""
        lines: list[Line] = []
        for place, (run_id, verdict) in enumerate(zip(snapshot.run_ids, snapshot.verdicts, strict=True)):
            colour = palette.GOOD if verdict.startswith("passed") else palette.BAD
            name = fit(run_id, max(8, width - 4 - len(verdict)), self.glyphs.ellipsis)
            lines.append([_tag(place), ink(f" {name} "), ink(verdict, colour)])
        lines += self._part("what was asked differs in", snapshot.params, width)
        if not snapshot.params:
            lines += [[], [muted("all of them were asked the same")]]
        lines += self._part("checks that differ", snapshot.checks, width)
        return lines + self._part("figures, and their ratio to A", snapshot.figures, width)

    def _part(self, title: str, rows: tuple[Row, ...], width: int) -> list[Line]:
        if not rows:
            return []
        count = len(rows[0].values)
        value = max(len(text) for row in rows for text in row.values)
        each = VALUE_WIDTH if value <= VALUE_WIDTH else min(value, max(VALUE_WIDTH, width // (count + 1)))
        ratios = any(row.ratios for row in rows)
        taken = count * (each + 1) + (RATIO_WIDTH * (count - 1) if ratios else 0)
        name = min(max(len(title) - each + 2, *(len(row.name) for row in rows)), max(8, width - taken))
        lines: list[Line] = [[], self._head(title, name, each, count, ratios)]
        for row in rows:
            line: Line = [ink(fit(row.name, name, self.glyphs.ellipsis))]
            for place, text in enumerate(row.values):
                line.append(ink(" " + right(fit(text, min(each, len(text)), self.glyphs.ellipsis), each)))
                if ratios and place:
                    line.append(muted(right(row.ratios[place], RATIO_WIDTH)))
            lines.append(line)
        return lines

    def _head(self, title: str, name: int, each: int, count: int, ratios: bool) -> Line:
        """The title of a part, and above each column the letter of its run where there is room for both."""
        room = name + each - len(title)
        if room < 1:
            return [muted(title)]
        line: Line = [muted(title), ink(" " * room), _tag(0)]
        for place in range(1, count):
            line += [ink(" " * (each + (RATIO_WIDTH if ratios and place > 1 else 0))), _tag(place)]
        return line


class OverlayPane(Pane[OverlaySnapshot]):
    """The mean losses of the runs in one plot."""

    NAME = "overlay"
    TITLE = "mean loss"
    SHORT = "loss"

    def lines(self, snapshot: OverlaySnapshot, width: int, height: int) -> list[Line]:
        """Return the plot, and under it the last value of each run."""
        if not snapshot.curves:
            return self.waiting("no run reported a loss" if snapshot.over else "waiting for a loss")
        start_plot(width, max(4, height - 1))
        steps: list[float] = []
        for place, points in snapshot.curves:
            kept = thin(points, max(8, width - 10))
            marker = letter(place) if self.ascii_only else "braille"
            xs, ys = [step for step, _ in kept], [value for _, value in kept]
            plotext.plot(xs, ys, color=rgb(palette.rank_colour(place)), marker=marker)
            steps += [points[0][0], points[-1][0]]
        if not self.ascii_only:
            sign_curves(
                [(letter(place), palette.rank_colour(place), points) for place, points in snapshot.curves]
            )
        plotext.xticks(whole_ticks(int(min(steps)), int(max(steps))))
        lines = decode(plotext.build(), ascii_only=self.ascii_only)[: max(4, height - 1)]
        legend: Line = []
        for place, points in snapshot.curves:
            legend += [_tag(place), muted(f" {points[-1][1]:.4g}   ")]
        return [*lines, legend]


class StackPane(Pane[StackSnapshot]):
    """The schedules of the runs, one above the other: a millisecond is as wide in each."""

    NAME = "stack"
    TITLE = "schedules on one scale of time"
    SHORT = "schedules"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus,equals_sign", "zoom(2)", "zoom", key_display="+ -", tooltip="zoom in"),
        Binding("minus", "zoom(-2)", "zoom out", show=False),
        Binding("comma", "pan(-1)", "earlier", key_display=", .", show=False),
        Binding("full_stop", "pan(1)", "later", show=False),
    ]

    def __init__(self, *, ascii_only: bool = False, key: str = "") -> None:
        super().__init__(ascii_only=ascii_only, key=key)
        self.magnified = 1
        self.left = 0.0
        """The first visible moment, in ms."""

    def lines(self, snapshot: StackSnapshot, width: int, height: int) -> list[Line]:
        """Return each chart with its measures, and one axis for all."""
        if not snapshot.charts:
            return self.waiting("no run has a schedule" if snapshot.over else "waiting for a schedule")
        span = snapshot.end / self.magnified
        self.left = min(max(0.0, self.left), snapshot.end - span)
        self.say(f"zoom {self.magnified}" if self.magnified > 1 else "")
        glyphs = self.glyphs
        frame = picture.Frame(
            width, self.left, self.left + span, glyphs.unknown, glyphs.rest, self.ascii_only, self.rank
        )
        lines: list[Line] = []
        for title, chart in snapshot.charts:
            lines += map(coloured, picture.heading(title, chart, width))
            lines += map(coloured, picture.lanes(chart, frame))
        charts = [chart for _, chart in snapshot.charts]
        return [*lines, coloured(picture.axis(frame)), coloured(picture.legend(charts, frame))]

    def action_zoom(self, by: int) -> None:
        """Show half, or twice, as much of time."""
        factor = 2 if by > 0 else 0.5
        self.magnified = int(min(MAX_ZOOM, max(1, self.magnified * factor)))
        self._again()

    def action_pan(self, by: int) -> None:
        """Move the view by a quarter."""
        if self.shown is not None:
            self.left += by * self.shown.end / self.magnified / 4
            self._again()

    def _again(self) -> None:
        self._drawn = None
        self.redraw()


def _tag(place: int) -> Segment:
    return ink(letter(place), palette.rank_colour(place), bold=True)
