"""The schedule as SVG: the same charts as the pane's, with a lane a rank and the measures above.

Every action is a group with its times, so that the page's script can draw another part of time larger.
"""

from __future__ import annotations

from html import escape

from launcher.events import Lane as SpanLane
from workbench import palette
from workbench.views.gantt_chart import Chart, GanttAction, Mark
from workbench.views.gantt_picture import KIND_WORDS, facts
from workbench.views.timeline import Bar, TimelineSnapshot
from workbench.views.units import duration

LABEL = 40
LANE = 20
HEADING = 38
AXIS = 24
CHARACTER = 6.6
"""Width of a character at the lanes' font size, in pixels."""
Titled = tuple[str, Chart]
INSETS: dict[SpanLane, int] = {"compute": 1, "comm": 3, "optimizer": 5, "idle": 8}
"""How much thinner than its lane a span is drawn: shape tells the kinds apart as well as colour."""


def height_of(charts: list[Titled]) -> int:
    """Return the height that these charts take, in pixels."""
    return sum(HEADING + LANE * len(chart.lanes) for _, chart in charts) + AXIS


def draw(charts: list[Titled], width: int) -> str:
    """Return the charts, one above the other on one time scale, as one `<svg>` element."""
    until = max((chart.end for _, chart in charts), default=0.0) or 1.0
    height = height_of(charts)
    parts = [_open("gantt", width, height, f'data-until="{until:.4f}" data-width="{width - LABEL}"')]
    top = 0
    for title, chart in charts:
        parts += _heading(title, chart, top)
        parts += _labels(len(chart.lanes), top + HEADING)
        tall = LANE * len(chart.lanes)
        parts.append(f'<svg x="{LABEL}" y="{top + HEADING}" width="{width - LABEL}" height="{tall}">')
        for rank, lane in enumerate(chart.lanes):
            chunks = len({one.stage for one in lane}) > 1
            scale = (width - LABEL) / until
            parts += [_mark(mark, rank, scale) for mark in chart.marks_of(rank)]
            parts += [_action(one, rank, chunks, scale) for one in lane]
        parts.append("</svg>")
        top += HEADING + tall
    return "\n".join([*parts, *_axis(until, top, width), "</svg>"])


def timeline(snapshot: TimelineSnapshot, width: int) -> str:
    """Return the newest steps of a run without a schedule: each rank's spans, computing over the rest."""
    height = HEADING + LANE * len(snapshot.rows) + AXIS
    until = (snapshot.t1 - snapshot.t0) / 1e6
    scale = (width - LABEL) / (until or 1.0)
    first, last = snapshot.first_step, snapshot.last_step
    of = f", steps {first} to {last}" if first >= 0 else ""
    parts = [_open("timeline", width, height, f'data-until="{until:.4f}" data-width="{width - LABEL}"')]
    parts.append(f'<text x="0" y="16" font-weight="bold" fill="currentColor">timeline{of}</text>')
    parts += _legend(snapshot)
    parts += _labels(len(snapshot.rows), HEADING)
    parts.append(
        f'<svg x="{LABEL}" y="{HEADING}" width="{width - LABEL}" height="{LANE * len(snapshot.rows)}">'
    )
    paint: tuple[SpanLane, ...] = ("idle", "comm", "optimizer", "compute")
    for index, row in enumerate(snapshot.rows):
        for lane in paint:
            for bar in (bar for bar in row.bars if bar.lane == lane):
                start, end = (bar.t0 - snapshot.t0) / 1e6, (bar.t1 - snapshot.t0) / 1e6
                title = f"{bar.label}, {lane}, rank {row.rank}, {duration((end - start) / 1e3)}"
                colour = _kind(bar)[1]
                parts.append(
                    _bar(start, end, index, scale, colour, bar.label, title, "#ffffff", INSETS[lane])
                )
    return "\n".join([*parts, "</svg>", *_axis(until, HEADING + LANE * len(snapshot.rows), width), "</svg>"])


def _kind(bar: Bar) -> tuple[str, str]:
    """What a span of the timeline is called in the legend, and its colour."""
    if bar.lane != "compute":
        return ("communication" if bar.lane == "comm" else bar.lane), palette.LANES[bar.lane]
    if bar.label[:1] in ("b", "B"):
        return "backward", palette.BACKWARD
    return ("forward" if bar.label[:1] in ("f", "F") else "compute"), palette.LANES["compute"]


def _legend(snapshot: TimelineSnapshot) -> list[str]:
    """Each kind of span that there is, with its colour and how thick it is drawn."""
    kinds = {_kind(bar): INSETS[bar.lane] for row in snapshot.rows for bar in row.bars}
    parts, x = [], float(LABEL)
    for (name, colour), inset in sorted(kinds.items(), key=lambda kind: kind[1]):
        parts.append(
            f'<rect x="{x:.1f}" y="{18 + inset}" width="14" height="{LANE - 2 * inset}" fill="{colour}"/>'
            f'<text x="{x + 20:.1f}" y="31" fill="currentColor" opacity="0.75">{name}</text>'
        )
        x += 44 + len(name) * CHARACTER
    return parts


def _open(name: str, width: int, height: int, data: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{name}" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{name}" {data} '
        'font-family="ui-monospace, monospace" font-size="11">'
    )


def _heading(title: str, chart: Chart, top: int) -> list[str]:
    words = ", ".join(facts(chart.measures)) if chart.measures is not None else "the step goes on"
    return [
        f'<text x="0" y="{top + 16}" font-weight="bold" fill="currentColor">{escape(title)}</text>',
        f'<text x="0" y="{top + 31}" fill="currentColor" opacity="0.75">{escape(words)}</text>',
    ]


def _labels(count: int, top: int) -> list[str]:
    return [
        f'<text x="0" y="{top + LANE * rank + 14}" fill="{palette.rank_colour(rank)}">r{rank}</text>'
        for rank in range(count)
    ]


def _action(one: GanttAction, rank: int, chunks: bool, scale: float) -> str:
    text = one.text if chunks else f"{one.kind}{one.micro_batch}"
    title = (
        f"{one.text}: {KIND_WORDS[one.kind]} of micro-batch {one.micro_batch} on stage {one.stage}, "
        f"rank {rank}, {one.start:.2f} to {one.end:.2f} ms"
    )
    colour = palette.ACTIONS[one.kind][one.micro_batch % 2]
    return _bar(one.start, one.end, rank, scale, colour, text, title, palette.ON_COLOUR)


def _mark(mark: Mark, rank: int, scale: float) -> str:
    """A thin bar, so that shape tells it from computing as well as colour."""
    title = f"{mark.kind} {mark.name} {mark.group}".strip()
    title = f"{title}, rank {rank}, {mark.end - mark.start:.3f} ms"
    return _bar(mark.start, mark.end, rank, scale, palette.LANES["comm"], "", title, "", inset=7)


def _bar(
    start: float,
    end: float,
    lane: int,
    scale: float,
    colour: str,
    text: str,
    title: str,
    ink: str,
    inset: int = 1,
) -> str:
    x, wide = round(start * scale, 2), round((end - start) * scale, 2)
    shown = "" if text and len(text) * CHARACTER < wide else ' display="none"'
    label = (
        f'<text x="{x + 3}" y="{lane * LANE + 14}" fill="{ink}"{shown}>{escape(text)}</text>' if text else ""
    )
    return (
        f'<g data-s="{start:.4f}" data-e="{end:.4f}"><title>{escape(title)}</title>'
        f'<rect x="{x}" y="{lane * LANE + inset}" width="{max(wide, 0.3)}" '
        f'height="{LANE - 2 * inset}" fill="{colour}"/>{label}</g>'
    )


def _axis(until: float, top: int, width: int) -> list[str]:
    return [
        f'<text class="from" x="{LABEL}" y="{top + 16}" fill="currentColor" opacity="0.75">0 ms</text>',
        f'<text class="to" x="{width}" y="{top + 16}" text-anchor="end" fill="currentColor" opacity="0.75">'
        f"{until:.2f} ms</text>",
    ]
