"""A run as one SVG file: the schedule or, without one, the timeline; then loss and bus bandwidth."""

from __future__ import annotations

import re
from pathlib import Path

from labs.params import ParameterError
from workbench.exports import gantt_svg, plot
from workbench.exports.gather import Gathered
from workbench.exports.stream import Source
from workbench.views.gantt import GanttSnapshot

WIDTH = 1200
PLOT_HEIGHT = 320
GAP = 24
_HEIGHT = re.compile(r'height="(\d+)"')


def charts_of(gantt: GanttSnapshot) -> list[gantt_svg.Titled]:
    """Return the plan and the newest whole step, or the newest at all, with their titles."""
    charts = [(f"planned {gantt.name}", gantt.planned)] if gantt.planned is not None else []
    steps = [step for step in gantt.steps if step.measures is not None] or list(gantt.steps)
    if steps:
        charts.append((f"measured {gantt.name}, step {steps[-1].step}", steps[-1]))
    return charts


def pictures(gathered: Gathered) -> list[str]:
    """Return every picture that this run has, each an `<svg>` element."""
    found = []
    charts = charts_of(gathered.gantt)
    if charts:
        found.append(gantt_svg.draw(charts, WIDTH))
    elif gathered.timeline.t1 > gathered.timeline.t0:
        found.append(gantt_svg.timeline(gathered.timeline, WIDTH))
    curves = (plot.loss_plot(gathered.loss), plot.bandwidth_plot(gathered.bandwidth))
    found += [plot.draw(one, WIDTH, PLOT_HEIGHT) for one in curves if one is not None]
    return [picture for picture in found if picture]


def write(source: Source, path: Path) -> None:
    """Write the pictures of a run, one below the other, to `path`.

    Raises:
        ParameterError: the run cannot be read, or has nothing to draw.
        OSError: the file cannot be written.
    """
    found = pictures(Gathered(source))
    if not found:
        run = source.manifest.run_id
        raise ParameterError(
            "--format",
            f"svg: {run} told no schedule, span, loss or bandwidth to draw; html has all that it told",
        )
    top, placed = GAP, []
    for picture in found:
        match = _HEIGHT.search(picture)
        assert match is not None
        placed.append(picture.replace("<svg ", f'<svg x="{GAP}" y="{top}" ', 1))
        top += int(match[1]) + GAP
    wide = WIDTH + 2 * GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {top}" width="{wide}" height="{top}" '
        'color="#1b2130">\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
    )
    path.write_text(head + "\n".join(placed) + "\n</svg>\n", encoding="utf-8")
