"""Two or more runs side by side: what differs in what was asked, and what came of it, with ratios. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from launcher.rundir import Manifest, Result
from workbench.views.gantt import GanttSnapshot
from workbench.views.gantt_chart import Chart
from workbench.views.loss import LossSnapshot
from workbench.views.series import Points
from workbench.views.units import number

RUNS_AT_MOST = 6
LETTERS = "ABCDEF"
MISSING = "-"


class Compared(msgspec.Struct, frozen=True):
    """One of the runs: what was asked, what came of it (None while it runs), its curves and its schedule."""

    manifest: Manifest
    result: Result | None = None
    loss: LossSnapshot | None = None
    gantt: GanttSnapshot | None = None


class Row(msgspec.Struct, frozen=True):
    """One fact of each run, in their order; `ratios` are to the first run, empty where there is none."""

    name: str
    values: tuple[str, ...]
    ratios: tuple[str, ...] = ()


class TableSnapshot(msgspec.Struct, frozen=True):
    """The runs' ids and verdicts, what differs in what was asked, the checks that differ, the figures."""

    run_ids: tuple[str, ...] = ()
    verdicts: tuple[str, ...] = ()
    params: tuple[Row, ...] = ()
    checks: tuple[Row, ...] = ()
    figures: tuple[Row, ...] = ()


class OverlaySnapshot(msgspec.Struct, frozen=True):
    """The mean loss of each run that has one, by its place among the runs."""

    curves: tuple[tuple[int, Points], ...] = ()
    over: bool = False


class StackSnapshot(msgspec.Struct, frozen=True):
    """One chart a run that has a schedule, with its title, and when the longest of them ends (ms)."""

    charts: tuple[tuple[str, Chart], ...] = ()
    end: float = 0.0
    over: bool = False


def table(found: Sequence[Compared]) -> TableSnapshot:
    """Return the facts of the runs."""
    return TableSnapshot(
        run_ids=tuple(one.manifest.run_id for one in found),
        verdicts=tuple(_verdict(one.result) for one in found),
        params=differing([asked(one.manifest) for one in found]),
        checks=differing([_checks(one.result) for one in found]),
        figures=figures([measured(one.result) for one in found]),
    )


def asked(manifest: Manifest) -> dict[str, Any]:
    """Return what shaped a run, by name: what every run has, then the lab's own parameters."""
    return {
        "lab": manifest.lab,
        "nproc": manifest.world_size,
        "backend": manifest.backend,
        "device": manifest.device,
        "launcher": manifest.launcher,
        "seed": manifest.seed,
        "paced_ms": manifest.paced_ms,
        "torch": manifest.versions.get("torch", ""),
        "worldsize": manifest.versions.get("worldsize", ""),
        "machine": manifest.machine.get("hostname", ""),
        "cores": manifest.machine.get("cores", ""),
        "gpu": manifest.machine.get("gpu", ""),
        **manifest.params,
    }


def measured(result: Result | None) -> dict[str, float]:
    """Return the numbers of a run: its times, its events, its metrics."""
    if result is None:
        return {}
    ready = {} if result.ready_s is None else {"seconds to ready": result.ready_s}
    return {"seconds": result.wall_s, **ready, "events": float(result.events), **result.metrics}


def differing(facts: Sequence[dict[str, Any]]) -> tuple[Row, ...]:
    """Return a row for each name whose values are not the same in all runs."""
    rows = []
    for name in dict.fromkeys(name for one in facts for name in one):
        values = [one.get(name) for one in facts]
        if any(value != values[0] for value in values):
            rows.append(Row(name, tuple(number(value) for value in values)))
    return tuple(rows)


def figures(facts: Sequence[dict[str, float]]) -> tuple[Row, ...]:
    """Return a row for each number that any run has, with its ratio to the first run's."""
    rows = []
    for name in dict.fromkeys(name for one in facts for name in one):
        values = [one.get(name) for one in facts]
        rows.append(
            Row(
                name,
                tuple(MISSING if value is None else number(value) for value in values),
                ("", *(ratio(value, values[0]) for value in values[1:])),
            )
        )
    return tuple(rows)


def ratio(value: float | None, first: float | None) -> str:
    """Return how many times the first value this one is; empty where that says nothing."""
    if value is None or first is None or not first or not math.isfinite(value / first):
        return ""
    times = value / first
    return f"{times:.2f}x" if 0.01 <= abs(times) < 1000 else f"{times:.1e}x"


def overlay(found: Sequence[Compared]) -> OverlaySnapshot:
    """Return the loss curves, one a run."""
    curves = [(place, one.loss.mean) for place, one in enumerate(found) if one.loss and one.loss.mean]
    return OverlaySnapshot(tuple(curves), _over(found))


def stack(found: Sequence[Compared]) -> StackSnapshot:
    """Return the newest whole step of each run, else its plan, to be drawn on one scale of time."""
    charts: list[tuple[str, Chart]] = []
    for letter, one in zip(LETTERS, found, strict=False):
        if one.gantt is None:
            continue
        whole = [chart for chart in one.gantt.steps if chart.measures is not None]
        name = one.gantt.name
        if whole:
            charts.append((f"{letter} {name}, step {whole[-1].step}", whole[-1]))
        elif one.gantt.planned is not None:
            charts.append((f"{letter} {name}, planned", one.gantt.planned))
    end = max((chart.end for _, chart in charts), default=0.0)
    return StackSnapshot(tuple(charts), end, _over(found))


def _over(found: Sequence[Compared]) -> bool:
    return all(one.result is not None for one in found)


def _verdict(result: Result | None) -> str:
    if result is None:
        return "no result yet"
    passed = sum(check.passed for check in result.checks)
    return f"{result.status} {passed}/{len(result.checks)}"


def _checks(result: Result | None) -> dict[str, str]:
    if result is None:
        return {}
    return {check.name: "passed" if check.passed else "FAILED" for check in result.checks}
