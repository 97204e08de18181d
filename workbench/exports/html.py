"""A run as one HTML page that needs no network: verdict, checks, schedule, curves, shards, memory, log.

The page is `report.html` with its sections filled in; the pictures are those of the SVG export. Its own
policy forbids it to load anything. Everything that a run told is escaped.
"""

from __future__ import annotations

from html import escape
from importlib import resources
from pathlib import Path
from string import Template

from launcher.rundir import FailureResult, Manifest, Result
from workbench.exports import gantt_svg, page, plot
from workbench.exports.gather import Gathered
from workbench.exports.page import section, table
from workbench.exports.stream import Source
from workbench.exports.svg import PLOT_HEIGHT, WIDTH, charts_of
from workbench.views.gantt import GanttSnapshot
from workbench.views.gantt_chart import Chart
from workbench.views.units import allowance, number

ACTIONS_AT_MOST = 20_000
"""Actions of measured steps in one page; older steps are left out beyond."""
TOOLS = (
    '<button type="button" data-zoom="2" aria-label="zoom in">+</button>'
    '<button type="button" data-zoom="0.5" aria-label="zoom out">&minus;</button>'
    '<button type="button" data-zoom="0">all</button>'
    '<span class="quiet">wheel zooms, drag moves; with the picture focused: + &minus; 0 and arrows</span>'
)


def write(source: Source, path: Path) -> None:
    """Write the page of a run to `path`.

    Raises:
        ParameterError: the run cannot be read.
        OSError: the file cannot be written.
    """
    path.write_text(render(Gathered(source)), encoding="utf-8")


def render(gathered: Gathered) -> str:
    """Return the page of a run."""
    source = gathered.source
    manifest, result = source.manifest, source.result
    template = Template(resources.files("workbench.exports").joinpath("report.html").read_text("utf-8"))
    unreadable = f"; {source.unreadable} lines of the record were no events" if source.unreadable else ""
    return template.substitute(
        title=escape(f"{manifest.run_id} - Worldsize"),
        heading=escape(manifest.run_id),
        subtitle=escape(_subtitle(manifest)),
        status=result.status if result is not None else "none",
        verdict=escape(gathered.run.verdict or "no result: the run goes on, or was lost with its machine"),
        sections="\n".join(part for part in _sections(gathered) if part),
        footer=escape(f"made by Worldsize from {manifest.run_id}{unreadable}"),
    )


def _subtitle(manifest: Manifest) -> str:
    paced = f", paced {manifest.paced_ms:g} ms" if manifest.paced_ms else ""
    return (
        f"{manifest.lab} on {manifest.world_size} ranks, {manifest.backend} on {manifest.device}{paced}, "
        f"{manifest.created}"
    )


def _sections(gathered: Gathered) -> list[str]:
    result = gathered.source.result
    return [
        _failure(result.failure) if result is not None and result.failure is not None else "",
        _checks(result) if result is not None else "",
        _schedule(gathered),
        _plot("Loss", plot.loss_plot(gathered.loss)),
        _plot("Bandwidth", plot.bandwidth_plot(gathered.bandwidth)),
        page.shards(gathered.shards),
        page.memory(gathered.memory, gathered.shards, _plot("", plot.memory_plot(gathered.memory))),
        page.communication(gathered.communication),
        _log(gathered),
        page.about(gathered.source.manifest, result),
    ]


def _failure(failure: FailureResult) -> str:
    who = f"rank {failure.rank}" if failure.rank >= 0 else "the launcher"
    words = [f'<p class="failed">{escape(who)} failed first ({escape(failure.kind)})</p>']
    words.append(f"<pre>{escape(failure.message)}</pre>")
    if failure.collective:
        words.append(f"<p>in {escape(failure.collective)}</p>")
    if failure.victims:
        words.append(f"<p>Ranks that only noticed: {escape(', '.join(map(str, failure.victims)))}</p>")
    if failure.advice:
        words.append(f"<p>{escape(failure.advice)}</p>")
    if failure.traceback:
        words.append(f"<pre>{escape(failure.traceback)}</pre>")
    return section("Failure", "\n".join(words), "failure")


def _checks(result: Result) -> str:
    rows = [
        (
            f'<span class="{"passed" if check.passed else "failed"}">'
            f"{'&#10003; passed' if check.passed else '&#10007; failed'}</span>",
            escape(check.name),
            escape(number(check.measured, check.unit)),
            escape(number(check.expected, check.unit)),
            escape("-" if check.tolerance is None else allowance(check.tolerance, check.unit)),
            escape(check.shows),
        )
        for check in result.checks
    ]
    header = ("", "check", "measured", "expected", "tolerance", "shows")
    return section("Checks", table(header, rows) if rows else "<p>The run made no check.</p>", "checks")


def _schedule(gathered: Gathered) -> str:
    """The charts of each step that the page has room for; without a schedule, the timeline."""
    gantt, timeline = gathered.gantt, gathered.timeline
    if not charts_of(gantt):
        if timeline.t1 <= timeline.t0:
            return ""
        picture = gantt_svg.timeline(timeline, WIDTH)
        tools = f'<div class="tools">{TOOLS}</div>'
        return section("Timeline", f'<div class="zoomable">{tools}{picture}</div>', "timeline")
    steps = _steps(gantt)
    options, parts = [], []
    for place, chart in enumerate(steps):
        newest = place == len(steps) - 1
        options.append(
            f'<option value="{chart.step}"{" selected" if newest else ""}>step {chart.step}</option>'
        )
        charts = [*charts_of(gantt)[:1]] if gantt.planned is not None else []
        charts.append((f"measured {gantt.name}, step {chart.step}", chart))
        hidden = "" if newest else " hidden"
        parts.append(f'<div data-step="{chart.step}"{hidden}>{gantt_svg.draw(charts, WIDTH)}</div>')
    if not steps:
        parts.append(f"<div>{gantt_svg.draw(charts_of(gantt), WIDTH)}</div>")
    select = f'<select aria-label="step">{"".join(options)}</select>' if len(steps) > 1 else ""
    tools = f'<div class="tools">{select}{TOOLS}</div>'
    legend = (
        "F forward, B backward, I input gradient, W weight gradient, then the number of the micro-batch; "
        "empty: waiting; a thin bar: a message on its way, or a collective such as all-reduce."
    )
    body = f'<div class="zoomable">{tools}{"".join(parts)}</div><p class="quiet">{legend}</p>'
    return section("Schedule", body, "schedule")


def _steps(gantt: GanttSnapshot) -> list[Chart]:
    """The newest steps, as many as the page has room for, at least one."""
    kept: list[Chart] = []
    room = ACTIONS_AT_MOST
    for chart in reversed(gantt.steps):
        room -= sum(len(lane) for lane in chart.lanes)
        if kept and room < 0:
            break
        kept.append(chart)
    return kept[::-1]


def _plot(title: str, curves: plot.Plot | None) -> str:
    picture = plot.draw(curves, WIDTH, PLOT_HEIGHT) if curves is not None else ""
    if not picture or not title:
        return picture
    return section(title, picture, title.lower())


def _log(gathered: Gathered) -> str:
    """What the rank that failed first printed; where none failed, what all ranks did."""
    lines = [
        escape(line.text if gathered.failing is not None else f"{_who(line.rank)} {line.text}")
        for line in gathered.log.lines
    ]
    if not lines:
        return ""
    title = f"Log of rank {gathered.failing}" if gathered.failing is not None else "Log"
    older = f'<p class="quiet">{gathered.log.older} older lines are in the record.</p>'
    body = "\n".join(lines)
    return section(title, f"{older if gathered.log.older else ''}<pre>{body}</pre>", "log")


def _who(rank: int) -> str:
    return f"r{rank}" if rank >= 0 else "--"
