"""The Gantt of a pipeline: a lane a rank, time across, planned above measured, live as actions finish."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual.binding import Binding, BindingType

from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.ink import Line, faint, fit, ink, muted, rank_tag, style
from workbench.views.gantt import Chart, GanttAction, GanttSnapshot, Measures, cells, label
from workbench.views.units import duration

LABEL = 4
MAX_ZOOM = 64
KIND_WORDS = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}


class GanttPane(Pane[GanttSnapshot]):
    """Planned above measured: h j k l move a cursor from action to action, + - zoom, < > turn steps."""

    NAME = "gantt"
    TITLE = "schedule"
    SHORT = "gantt"
    SPAN = 6
    WEIGHT = 26
    MAX_HZ = 4.0
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("h", "cursor(-1, 0)", "action", key_display="hjkl"),
        Binding("l", "cursor(1, 0)", "next action", show=False),
        Binding("k", "cursor(0, -1)", "lane above", show=False),
        Binding("j", "cursor(0, 1)", "lane below", show=False),
        Binding("plus,equals_sign", "zoom(2)", "zoom", key_display="+ -"),
        Binding("minus", "zoom(-2)", "zoom out", show=False),
        Binding("comma", "pan(-1)", "earlier", show=False),
        Binding("full_stop", "pan(1)", "later", show=False),
        Binding("less_than_sign", "turn_step(-1)", "previous step", show=False),
        Binding("greater_than_sign", "turn_step(1)", "next step", show=False),
    ]

    def __init__(self, *, ascii_only: bool = False, key: str = "") -> None:
        super().__init__(ascii_only=ascii_only, key=key)
        self.zoom = 1
        self.left = 0.0
        """The first visible moment, in ms."""
        self.step: int | None = None
        """The step that is kept in view; None follows the newest."""
        self.lane = 0
        """The cursor's lane: planned lanes first, then measured ones."""
        self.place: int | None = None
        """The cursor's action in its lane; None: no cursor."""

    def lines(self, snapshot: GanttSnapshot, width: int, height: int) -> list[Line]:
        """Return facts, lanes, time axis, and the action under the cursor."""
        measured = self._measured(snapshot)
        if snapshot.planned is None and measured is None:
            self.say("")
            return self.waiting("the run told no schedule" if snapshot.over else "waiting for the schedule")
        self._say_step(snapshot, measured)
        until = max((chart.end for chart in (snapshot.planned, measured) if chart), default=0.0)
        start, end = self._window(until)
        lines: list[Line] = []
        offset = 0
        for name, chart in (("planned", snapshot.planned), ("measured", measured)):
            if chart is None:
                continue
            lines += self._facts(f"{name} {snapshot.name}", chart, width)
            lines += self._lanes(chart, start, end, width, offset)
            offset += len(chart.lanes)
        lines.append(self._axis(start, end, width))
        return [*lines, self._detail(snapshot, measured, width)]

    def _measured(self, snapshot: GanttSnapshot) -> Chart | None:
        if not snapshot.steps:
            return None
        return next((chart for chart in snapshot.steps if chart.step == self.step), snapshot.steps[-1])

    def _say_step(self, snapshot: GanttSnapshot, measured: Chart | None) -> None:
        words = [f"paced {snapshot.paced_ms:g} ms"] if snapshot.paced_ms else []
        if measured is not None:
            of = f" of {snapshot.total_steps}" if snapshot.total_steps > 0 else ""
            words.append(f"step {measured.step + 1}{of}")
        if self.zoom > 1:
            words.append(f"zoom {self.zoom}")
        self.say(f" {self.glyphs.dot} ".join(words))

    def _window(self, until: float) -> tuple[float, float]:
        """The visible span of time, within the whole one."""
        span = until / self.zoom
        self.left = min(max(0.0, self.left), until - span)
        return self.left, self.left + span

    def _facts(self, title: str, chart: Chart, width: int) -> list[Line]:
        """The title of a chart with its measures, in as many lines as they need."""
        lines: list[Line] = [[ink(title, palette.STRONG, bold=True)]]
        used = len(title)
        for words in facts(chart.measures) if chart.measures else ("the step goes on",):
            if used + len(words) + 2 > width:
                lines.append([ink(" " * (LABEL - 2))])
                used = LABEL - 2
            lines[-1] += [ink("  "), muted(words)]
            used += len(words) + 2
        return lines

    def _lanes(self, chart: Chart, start: float, end: float, width: int, offset: int) -> list[Line]:
        lines: list[Line] = []
        for rank, lane in enumerate(chart.lanes):
            if self.rank not in (None, rank):
                continue
            cursor = self._chosen(lane) if self.lane == offset + rank else None
            chunks = len({action.stage for action in lane}) > 1
            runs = cells(lane, start, end, width - LABEL)
            segments = [self._cell(run.action, run.width, chunks, run.action is cursor) for run in runs]
            lines.append([rank_tag(rank, LABEL), *segments])
        return lines

    def _chosen(self, lane: tuple[GanttAction, ...]) -> GanttAction | None:
        """The cursor's action, if this lane is the cursor's and reaches so far."""
        return lane[self.place] if self.place is not None and self.place < len(lane) else None

    def _cell(self, action: GanttAction | None, width: int, chunks: bool, chosen: bool) -> Segment:
        if action is None:
            return faint(self.glyphs.unknown * width)
        text = label(action, width, chunks=chunks)
        # Without colours the fill still shows how far an action reaches.
        text += ("-" if self.ascii_only else " ") * (width - len(text))
        return Segment(text, style(palette.ON_COLOUR, on=self._colour(action, chosen), bold=chosen))

    def _colour(self, action: GanttAction, chosen: bool) -> str:
        """Neighbouring micro-batches differ in shade, so that their border is seen where no text fits."""
        if chosen:
            return palette.STRONG
        return palette.ACTIONS[action.kind][action.micro_batch % 2]

    def _axis(self, start: float, end: float, width: int) -> Line:
        left, right = duration(start / 1e3) if start else "0", duration(end / 1e3)
        room = max(0, width - LABEL - len(left) - len(right) - 2)
        rule = faint(f" {self.glyphs.rest * room} ")
        return [ink(" " * LABEL), muted(left), rule, muted(right)]

    def _detail(self, snapshot: GanttSnapshot, measured: Chart | None, width: int) -> Line:
        """The action under the cursor; without one, what the letters mean."""
        chart, rank = self._under(snapshot, measured)
        action = self._chosen(chart.lanes[rank]) if chart is not None else None
        if action is not None:
            word = f"{KIND_WORDS[action.kind]} of micro-batch {action.micro_batch} on stage {action.stage}"
            took = f"{action.start:.1f} to {action.end:.1f} ms ({action.end - action.start:.1f} ms)"
            text = f" {action.text}  {word}, rank {rank}, {took}"
            return [ink(fit(text, width, self.glyphs.ellipsis), palette.STRONG)]
        line: Line = [ink(" " * LABEL)]
        for kind, words in KIND_WORDS.items():
            if self._has(snapshot, kind):
                line += [
                    ink(f" {kind} ", palette.ON_COLOUR, on=palette.ACTIONS[kind][0]),
                    muted(f" {words}  "),
                ]
        return [*line, faint(self.glyphs.unknown * 2), muted(" waiting")]

    def _has(self, snapshot: GanttSnapshot, kind: str) -> bool:
        charts = [chart for chart in (snapshot.planned, *snapshot.steps[-1:]) if chart]
        return any(action.kind == kind for chart in charts for lane in chart.lanes for action in lane)

    def _under(self, snapshot: GanttSnapshot, measured: Chart | None) -> tuple[Chart | None, int]:
        """The chart and the rank of the cursor's lane."""
        lane = self.lane
        for chart in (snapshot.planned, measured):
            if chart is not None:
                if lane < len(chart.lanes):
                    return chart, lane
                lane -= len(chart.lanes)
        return None, 0

    def action_cursor(self, across: int, down: int) -> None:
        """Move the cursor to the next action of its lane, or to the same moment on another lane."""
        if self.shown is None:
            return
        measured = self._measured(self.shown)
        total = sum(len(chart.lanes) for chart in (self.shown.planned, measured) if chart)
        chart, rank = self._under(self.shown, measured)
        if chart is None or not total:
            return
        lane = chart.lanes[rank]
        before = self._chosen(lane)
        moment = before.start if before is not None else self.left
        self.lane = (self.lane + down) % total
        chart, rank = self._under(self.shown, measured)
        assert chart is not None
        lane = chart.lanes[rank]
        if not lane:
            self.place = None
        elif self.place is None or down:
            self.place = min(range(len(lane)), key=lambda index: abs(lane[index].start - moment))
        else:
            self.place = min(max(0, self.place + across), len(lane) - 1)
        if self.place is not None:
            self._follow(lane[self.place])
        self._again()

    def _follow(self, action: GanttAction) -> None:
        """Bring the cursor's action into view."""
        span = self._until() / self.zoom
        if not self.left <= action.start < self.left + span:
            self.left = action.start - span / 4

    def _until(self) -> float:
        if self.shown is None:
            return 0.0
        charts = (self.shown.planned, self._measured(self.shown))
        return max((chart.end for chart in charts if chart), default=0.0)

    def action_zoom(self, by: int) -> None:
        """Twice as near or half as near, around the middle of the view."""
        until = self._until()
        middle = self.left + until / self.zoom / 2
        self.zoom = min(MAX_ZOOM, self.zoom * 2) if by > 0 else max(1, self.zoom // 2)
        self.left = middle - until / self.zoom / 2
        self._again()

    def action_pan(self, by: int) -> None:
        """A quarter of the view earlier or later."""
        self.left += by * self._until() / self.zoom / 4
        self._again()

    def action_turn_step(self, by: int) -> None:
        """Keep another step in view; past the newest one the pane follows the run again."""
        if self.shown is None or not self.shown.steps:
            return
        steps = [chart.step for chart in self.shown.steps]
        at = steps.index(self.step) if self.step in steps else len(steps) - 1
        following = at + by
        self.step = None if following >= len(steps) - 1 else steps[max(0, following)]
        self._again()

    def _again(self) -> None:
        self._drawn = None
        self.redraw()


def facts(measures: Measures) -> tuple[str, ...]:
    """Return the measures of a step in words, the most telling first."""
    peaks = " ".join(f"{peak:g}" for peak in measures.peaks)
    return (
        duration(measures.makespan / 1e3),
        f"idle {measures.idle_over_ideal:.1%} of ideal, {measures.idle_over_total:.1%} of total",
        f"zero-bubble measure {measures.zero_bubble:.1%}",
        f"keeps {peaks}" if len(set(measures.peaks)) > 1 else f"keeps {measures.peaks[0]:g} on each rank",
    )
