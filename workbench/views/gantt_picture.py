"""The picture of a schedule as lines of touches: what stands where and in which role, without any colour.

The pane gives the roles their colours; headless, the texts alone are printed. Both show the same: a lane a
rank, time across, planned above measured, the measures beside their chart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import groupby
from typing import Literal, NamedTuple

from labs.parallel.schedule_actions import KINDS, Kind
from workbench.views.gantt import GanttSnapshot
from workbench.views.gantt_chart import (
    Chart,
    GanttAction,
    GanttCell,
    Lane,
    Mark,
    Measures,
    Place,
    cells,
    covered,
    label,
)
from workbench.views.units import duration

LABEL = 4
"""Cells before a lane, for its rank."""
KIND_WORDS: dict[Kind, str] = {
    "F": "forward",
    "B": "backward",
    "I": "input gradient",
    "W": "weight gradient",
}
PEAKS_AT_MOST = 16
"""More ranks' peaks do not fit a line of 80 cells."""
MARK_GLYPHS = {"message": ">", "collective": "~"}
Role = Literal["title", "muted", "faint", "rank", "action", "message", "collective", "idle"]
State = Literal["plain", "cursor", "critical", "beside"]


class Touch(NamedTuple):
    """Text in one role: `number` is the rank or the micro-batch, `kind` and `state` those of an action."""

    text: str
    role: Role
    number: int = 0
    kind: Kind = "F"
    state: State = "plain"


Line = list[Touch]


class Frame(NamedTuple):
    """What a chart is drawn into: `width` cells, `LABEL` of them for ranks, from `start` to `end` (ms).

    `filled`: whether dashes show how far an action reaches, where no colour does.
    """

    width: int
    start: float
    end: float
    idle: str = "·"
    rule: str = "─"
    filled: bool = False
    rank: int | None = None


def facts(measures: Measures) -> tuple[str, ...]:
    """Return the measures of a step in words, the most telling first."""
    return (
        duration(measures.makespan / 1e3),
        f"idle {measures.idle_over_ideal:.1%} of ideal, {measures.idle_over_total:.1%} of total",
        f"zero-bubble measure {measures.zero_bubble:.1%}",
        _kept(measures.peaks),
    )


def _kept(peaks: tuple[float, ...]) -> str:
    """Return the peak activations rank by rank, if few or alike; else the least and the most."""
    if len(set(peaks)) == 1:
        return f"keeps {peaks[0]:g} on each rank"
    if len(peaks) > PEAKS_AT_MOST:
        return f"keeps {min(peaks):g} to {max(peaks):g} on a rank"
    return "keeps " + " ".join(f"{peak:g}" for peak in peaks)


def heading(title: str, chart: Chart, width: int) -> list[Line]:
    """Return a chart's title and its measures, in as many lines as they need."""
    lines: list[Line] = [[Touch(title, "title")]]
    used = len(title)
    for words in facts(chart.measures) if chart.measures else ("the step goes on",):
        if used + len(words) + 2 > width:
            lines.append([Touch(" " * (LABEL - 2), "muted")])
            used = LABEL - 2
        lines[-1] += [Touch("  ", "muted"), Touch(words, "muted")]
        used += len(words) + 2
    return lines


def lanes(
    chart: Chart,
    frame: Frame,
    cursor: Place | None = None,
    path: Collection[Place] | None = None,
    groups: Collection[str] = (),
) -> list[Line]:
    """Return a line a rank, and below it one a group of `groups`: when the rank took part in its collectives.

    With a `path` its actions stand out; the others step back, in small letters.
    """
    lines: list[Line] = []
    for rank, lane in enumerate(chart.lanes):
        if frame.rank not in (None, rank):
            continue
        chosen = lane[cursor.at] if cursor is not None and cursor.rank == rank else None
        critical = None if path is None else {id(lane[index]) for r, index in path if r == rank}
        chunks = len({action.stage for action in lane}) > 1
        runs = cells(lane, frame.start, frame.end, frame.width - LABEL, chart.marks_of(rank))
        line = [Touch(f"r{rank}".ljust(LABEL), "rank", rank)]
        lines.append(line + [_cell(run, frame, chunks, chosen, critical) for run in runs])
        lines += [_traffic(chart, rank, group, frame) for group in groups]
    return lines


def _traffic(chart: Chart, rank: int, group: str, frame: Frame) -> Line:
    """A lane below a rank's own: a cell is filled where a collective of the group touches it."""
    marks = [mark for mark in chart.traffic[rank] if mark.group == group] if chart.traffic else []
    line = [Touch(group[: LABEL - 1].ljust(LABEL), "muted")]
    filled = covered(marks, frame.start, frame.end, frame.width - LABEL)
    for on, same in groupby(filled):
        width = len(list(same))
        glyph = MARK_GLYPHS["collective"] if on else " "
        line.append(Touch(glyph * width, "collective" if on else "idle"))
    return line


def _cell(
    run: GanttCell, frame: Frame, chunks: bool, chosen: GanttAction | None, critical: set[int] | None
) -> Touch:
    action, width = run.action, run.width
    if action is None:
        if run.mark is not None:
            return Touch(MARK_GLYPHS[run.mark.kind] * width, run.mark.kind)
        return Touch(frame.idle * width, "idle")
    text, fill = label(action, width, chunks=chunks), "-" if frame.filled else " "
    state: State = "plain"
    if critical is not None:
        on_path = id(action) in critical
        state, fill = ("critical", "=") if on_path else ("beside", fill)
        text = text if on_path else text.lower()
    if action is chosen:
        state = "cursor"
    return Touch(text + fill * (width - len(text)), "action", action.micro_batch, action.kind, state)


def axis(frame: Frame) -> Line:
    """Return the line below the lanes: when the view begins and ends."""
    left, right = duration(frame.start / 1e3) if frame.start else "0", duration(frame.end / 1e3)
    room = max(0, frame.width - LABEL - len(left) - len(right) - 2)
    rule = Touch(f" {frame.rule * room} ", "faint")
    return [Touch(" " * LABEL, "muted"), Touch(left, "muted"), rule, Touch(right, "muted")]


def legend(charts: Iterable[Chart], frame: Frame) -> Line:
    """Return what the letters and marks mean that these charts use."""
    shown = list(charts)
    kinds = {one.kind for chart in shown for lane in chart.lanes for one in lane}
    marks = {mark.kind for chart in shown for row in chart.marks for mark in row}
    line: Line = []
    for kind in KINDS:
        if kind in kinds:
            line += [
                Touch(f" {kind} ", "action", 0, kind),
                Touch(f" {KIND_WORDS[kind].replace('gradient', 'grad')} ", "muted"),
            ]
    line += [Touch(frame.idle * 2, "idle"), Touch(" waiting", "muted")]
    if "message" in marks:
        line += [Touch(" ", "muted"), Touch(MARK_GLYPHS["message"], "message"), Touch(" message", "muted")]
    if "collective" in marks or any(any(chart.traffic) for chart in shown):
        glyph = Touch(MARK_GLYPHS["collective"], "collective")
        line += [Touch(" ", "muted"), glyph, Touch(" collective", "muted")]
    return line


def details(chart: Chart, place: Place) -> str:
    """Return all about the action at `place`: what, where, when, and what its rank did before it."""
    lane = chart.lanes[place.rank]
    action = lane[place.at]
    word = f"{KIND_WORDS[action.kind]} of micro-batch {action.micro_batch} on stage {action.stage}"
    took = f"{action.start:.1f} to {action.end:.1f} ms ({action.end - action.start:.1f} ms)"
    return f" {action.text}  {word}, rank {place.rank}, {took}{_before(chart, place, lane, action)}"


def _before(chart: Chart, place: Place, lane: Lane, action: GanttAction) -> str:
    free = lane[place.at - 1].end if place.at else 0.0
    marks = [mark for mark in chart.marks_of(place.rank) if free <= mark.start and mark.end <= action.start]
    waited = action.start - free
    words = f", waited {waited:.1f} ms" if waited >= 0.05 else ""
    return words + "".join(f", {_mark_words(mark)}" for mark in marks)


def _mark_words(mark: Mark) -> str:
    name = "message " + mark.name if mark.kind == "message" else mark.name
    return f"{name} {mark.end - mark.start:.2f} ms"


def printed(snapshot: GanttSnapshot, width: int, *, ascii_only: bool = False) -> list[str]:
    """Return the picture of a run as lines of plain text: the plan above the newest whole step.

    Returns no lines where the run has told no schedule.
    """
    whole = [chart for chart in snapshot.steps if chart.measures is not None] or list(snapshot.steps)
    charts = [(f"planned {snapshot.name}", snapshot.planned)] if snapshot.planned is not None else []
    if whole:
        charts.append((f"measured {snapshot.name}, step {whole[-1].step}", whole[-1]))
    if not charts:
        return []
    idle, rule = (".", "-") if ascii_only else ("·", "─")
    until = max(chart.end for _, chart in charts)
    frame = Frame(width, 0.0, until, idle, rule, filled=True)
    lines: list[Line] = []
    for title, chart in charts:
        lines += [*heading(title, chart, width), *lanes(chart, frame)]
    lines += [axis(frame), legend([chart for _, chart in charts], frame)]
    return ["".join(touch.text for touch in line).rstrip() for line in lines]
