"""The Gantt of a pipeline: a lane a rank, time across, planned above measured, live as actions finish."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.events import Key

from labs.parallel.schedule_actions import KIND_NAMES
from workbench import palette
from workbench.panes.base import Pane
from workbench.panes.gantt_ink import coloured
from workbench.panes.ink import Line, fit, ink
from workbench.views import gantt_picture as picture
from workbench.views.gantt import GanttSnapshot
from workbench.views.gantt_chart import Chart, GanttAction, Place, critical_path
from workbench.views.gantt_compare import others, plan_of
from workbench.views.gantt_picture import Frame

MAX_ZOOM = 64
NO_SCHEDULE = "the run told no schedule"


class GanttPane(Pane[GanttSnapshot]):
    """Planned above measured: h j k l move a cursor, + - zoom, x shows the critical path, c compares."""

    NAME = "gantt"
    TITLE = "schedule"
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
        Binding("g", "ask_step", "go to a step: its number, enter", show=False),
        Binding("c", "compare", "compare"),
        Binding("x", "path", "critical path"),
        Binding("m", "traffic", "lanes of communication", show=False),
    ]

    def __init__(self, *, ascii_only: bool = False, key: str = "") -> None:
        super().__init__(ascii_only=ascii_only, key=key)
        self.zoom = 1
        self.left = 0.0
        """The first visible moment, in ms."""
        self.step: int | None = None
        """The step that is kept in view; None follows the newest."""
        self.other = ""
        """The schedule that is shown below the plan instead of the measured step."""
        self.shows_path = False
        self.shows_traffic = False
        self.typed: str | None = None
        """The digits of a step's number while it is typed."""
        self.lane = 0
        """The cursor's lane, counted over both charts."""
        self.place: int | None = None
        """The cursor's action in its lane; None: no cursor."""
        self._rows: list[int] = []
        """The line of each lane."""
        self._plans: dict[str, tuple[Chart, Chart]] = {}
        self._lines: dict[int, tuple[Chart, tuple[object, ...], list[Line]]] = {}

    def lines(self, snapshot: GanttSnapshot, width: int, height: int) -> list[Line]:
        """Return both charts with their measures, the time axis, and the action under the cursor."""
        charts = self._charts(snapshot)
        if not charts:
            self.say("")
            return self.waiting(NO_SCHEDULE if snapshot.over else "waiting for the schedule")
        self._say_step(snapshot)
        frame = self._frame(max(chart.end for _, chart in charts), width)
        lines: list[Line] = []
        self._rows = []
        offset = 0
        for title, chart in charts:
            lines += map(coloured, picture.heading(title, chart, width))
            each = 1 + len(chart.groups()) if self.shows_traffic else 1
            self._rows += (len(lines) + rank * each for rank in range(len(chart.lanes)))
            lines += self._drawn_lanes(chart, frame, offset)
            offset += len(chart.lanes)
        return [*lines, coloured(picture.axis(frame)), self._detail([chart for _, chart in charts], frame)]

    def _drawn_lanes(self, chart: Chart, frame: Frame, offset: int) -> list[Line]:
        """A chart's lanes; the plan's stay as they are while the measured step goes on."""
        cursor = self._cursor(chart, offset)
        how = (frame, cursor, self.shows_path, self.shows_traffic)
        known = self._lines.get(offset)
        if known is None or known[0] is not chart or known[1] != how:
            path = {*critical_path(chart)} if self.shows_path else None
            groups = chart.groups() if self.shows_traffic else ()
            drawn = [coloured(line) for line in picture.lanes(chart, frame, cursor, path, groups)]
            known = self._lines[offset] = (chart, how, drawn)
        return known[2]

    def _charts(self, snapshot: GanttSnapshot) -> list[tuple[str, Chart]]:
        """The two charts, one above the other, each with its title."""
        planned, measured = snapshot.planned, snapshot.chart(self.step)
        charts = [(f"planned {snapshot.name}", planned)] if planned is not None else []
        if planned is not None and self.other:
            other = self._other_plan(planned)
            ratio = other.end / planned.end if planned.end else 0.0
            return [*charts, (f"planned {self.other}, {ratio:.2f}{self.glyphs.times} as long", other)]
        if measured is not None:
            charts.append((f"measured {snapshot.name}", measured))
        return charts

    def _other_plan(self, planned: Chart) -> Chart:
        known = self._plans.get(self.other)
        if known is None or known[0] is not planned:
            known = self._plans[self.other] = (planned, plan_of(self.other, planned))
        return known[1]

    def _say_step(self, snapshot: GanttSnapshot) -> None:
        words = [f"paced {snapshot.paced_ms:g} ms"] if snapshot.paced_ms else []
        measured = snapshot.chart(self.step)
        if self.typed is not None:
            words.append(f"step {self.typed}_ enter")
        elif measured is not None and not self.other:
            of = f" of {snapshot.total_steps}" if snapshot.total_steps > 0 else ""
            words.append(f"step {measured.step}{of}")
        if self.shows_path:
            words.append("critical path")
        if self.zoom > 1:
            words.append(f"zoom {self.zoom}")
        self.say(f" {self.glyphs.dot} ".join(words))

    def _frame(self, until: float, width: int) -> Frame:
        """The visible part of time, within the whole of it."""
        span = until / self.zoom
        self.left = min(max(0.0, self.left), until - span)
        glyphs = self.glyphs
        return Frame(
            width, self.left, self.left + span, glyphs.unknown, glyphs.rest, self.ascii_only, self.rank
        )

    def _cursor(self, chart: Chart, offset: int) -> Place | None:
        """The cursor's place in this chart, if it is there and the lane reaches so far."""
        rank = self.lane - offset
        if self.place is None or not 0 <= rank < len(chart.lanes):
            return None
        return Place(rank, self.place) if self.place < len(chart.lanes[rank]) else None

    def _detail(self, charts: list[Chart], frame: Frame) -> Line:
        """The action under the cursor; without one, what the letters mean."""
        offset = 0
        for chart in charts:
            cursor = self._cursor(chart, offset)
            if cursor is not None:
                text = picture.details(chart, cursor)
                return [ink(fit(text, frame.width, self.glyphs.ellipsis), palette.STRONG)]
            offset += len(chart.lanes)
        return coloured(picture.legend(charts, frame))

    def chosen_span(self) -> str:
        """Return what the action under the cursor is called in the record: `forward`, `input gradient`."""
        lanes = self._lanes()
        lane = lanes[self.lane] if self.lane < len(lanes) else ()
        if self.place is None or self.place >= len(lane):
            return ""
        return KIND_NAMES[lane[self.place].kind]

    def _lanes(self) -> list[tuple[GanttAction, ...]]:
        """All lanes in view, in the order of the cursor."""
        charts = self._charts(self.shown) if self.shown is not None else []
        return [lane for _, chart in charts for lane in chart.lanes]

    def action_cursor(self, across: int, down: int) -> None:
        """Move the cursor to the next action of its lane, or to the same moment on another lane."""
        lanes = self._lanes()
        if not lanes:
            return
        lane = lanes[self.lane % len(lanes)]
        known = self.place is not None and self.place < len(lane)
        moment = lane[self.place].start if known and self.place is not None else self.left
        self.lane = self._next_lane(lanes, down)
        lane = lanes[self.lane]
        if not lane:
            self.place = None
        elif self.place is None or down:
            self.place = min(range(len(lane)), key=lambda index: abs(lane[index].start - moment))
        else:
            self.place = min(max(0, self.place + across), len(lane) - 1)
        if self.place is not None:
            self._follow(lane[self.place])
        self._again()

    def _next_lane(self, lanes: list[tuple[GanttAction, ...]], down: int) -> int:
        """The lane below or above; with one rank chosen, that rank's lane in the other chart."""
        if self.rank is None or self.shown is None:
            return (self.lane + down) % len(lanes)
        ranks = [rank for _, chart in self._charts(self.shown) for rank in range(len(chart.lanes))]
        mine = [index for index, rank in enumerate(ranks) if rank == self.rank] or [0]
        return mine[(mine.index(self.lane) + down) % len(mine)] if self.lane in mine else mine[0]

    def _follow(self, action: GanttAction) -> None:
        """Bring the cursor's action into view: in time, and its lane where there are more than fit."""
        span = self._until() / self.zoom
        if not self.left <= action.start < self.left + span:
            self.left = action.start - span / 4
        height = self.scrollable_content_region.height
        row = self._rows[self.lane] if self.rank is None and self.lane < len(self._rows) else 0
        if not self.scroll_offset.y <= row < self.scroll_offset.y + height:
            self.scroll_to(y=max(0, row - height // 2), animate=False)

    def _until(self) -> float:
        charts = self._charts(self.shown) if self.shown is not None else []
        return max((chart.end for _, chart in charts), default=0.0)

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
        steps = self.shown.known_steps() if self.shown is not None else []
        if steps:
            at = steps.index(self.step) if self.step in steps else len(steps) - 1
            self._go(lambda: at + by)

    def _go(self, choose: Callable[[], int]) -> None:
        """Show the step at a place among those known; from the last on, follow the run."""
        steps = self.shown.known_steps() if self.shown is not None else []
        place = choose()
        self.step = None if place >= len(steps) - 1 else steps[max(0, place)]
        self._again()

    def action_ask_step(self) -> None:
        """Wait for the number of a step."""
        if self.shown is not None and self.shown.steps:
            self.typed = ""
            self._again()

    def on_key(self, event: Key) -> None:
        """Take the digits of a step's number; enter goes there, anything else forgets it."""
        if self.typed is None:
            return
        event.stop()
        event.prevent_default()
        if event.character is not None and event.character.isdigit():
            self.typed += event.character
        elif event.key == "backspace":
            self.typed = self.typed[:-1]
        else:
            wanted, self.typed = self.typed, None
            if event.key == "enter" and wanted and self.shown is not None:
                steps = self.shown.known_steps()
                # Steps are numbered from 1 for people; the nearest one that is kept is meant.
                self._go(lambda: min(range(len(steps)), key=lambda i: abs(steps[i] - int(wanted))))
        self._again()

    def action_compare(self) -> None:
        """Show the next schedule that fits below the plan; after the last, the measured step again."""
        if self.shown is None or self.shown.planned is None:
            return
        choices = ["", *others(self.shown.planned, self.shown.name)]
        at = choices.index(self.other) if self.other in choices else 0
        self.other = choices[(at + 1) % len(choices)]
        self._again()

    def action_path(self) -> None:
        """Show or hide the chain of actions that fixes each chart's length."""
        self.shows_path = not self.shows_path
        self._again()

    def action_traffic(self) -> None:
        """Show or hide, below each rank's lane, a lane for each group that it has collectives in."""
        self.shows_traffic = not self.shows_traffic
        self._again()

    def _again(self) -> None:
        self._drawn = None
        self.redraw()
