"""The verdict of a run as text: the checks as a table, the metrics, the failure once, one last line."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence

from launcher.events import Measured
from launcher.rundir import CheckResult, FailureResult, Result

MAX_CELL = 40
INDENT = "    "


def render(result: Result) -> str:
    """Return the whole report; its last line is the verdict."""
    parts = [_heading(result)]
    if result.checks:
        parts.append(_table(result.checks))
    if result.metrics:
        parts.append(_metrics(result.metrics))
    if result.failure is not None:
        parts.append(_failure(result.failure))
    parts.append(_ending(result))
    return "\n\n".join(parts)


def _heading(result: Result) -> str:
    ranks = "1 rank" if result.world_size == 1 else f"{result.world_size} ranks"
    ready = f", ready after {result.ready_s:.2f} s" if result.ready_s is not None else ""
    paced = f", paced {result.paced_ms:g} ms" if result.paced_ms else ""
    return f"{result.lab}: {ranks}, {result.backend} on {result.device}{paced}, {result.wall_s:.2f} s{ready}"


def _table(checks: Sequence[CheckResult]) -> str:
    rows = [("", "check", "measured", "expected", "tolerance")]
    rows += [
        (
            "passed" if check.passed else "FAILED",
            check.name,
            _value(check.measured, check.unit),
            _value(check.expected, check.unit),
            "" if check.tolerance is None else f"{check.tolerance:.3g}",
        )
        for check in checks
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]
    shown: list[str] = []
    for line, check in zip(lines[1:], checks, strict=True):
        shown.append(line.rstrip())
        if not check.passed and check.shows:
            shown.append(f"{INDENT}{check.shows}")
    return "\n".join([lines[0].rstrip(), *shown])


def _value(value: Measured, unit: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = f"{text} {unit}" if unit else text
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 3] + "..."


def _metrics(metrics: dict[str, float]) -> str:
    width = max(len(name) for name in metrics)
    return "\n".join(["metrics", *(f"  {name:<{width}}  {value:.6g}" for name, value in metrics.items())])


def _failure(failure: FailureResult) -> str:
    who = f"rank {failure.rank} failed first" if failure.rank >= 0 else "the run could not go on"
    where = f" in {failure.collective}" if failure.collective else ""
    lines = [f"{who} ({failure.kind}{where}): {failure.message}"]
    if failure.traceback:
        lines += [INDENT + line for line in failure.traceback.rstrip().splitlines()]
    if failure.advice:
        width = max(60, shutil.get_terminal_size().columns)
        lines += textwrap.wrap(f"What to try: {failure.advice}", width)
    if failure.victims:
        lines.append("Ended with it: ranks " + ", ".join(map(str, failure.victims)))
    return "\n".join(lines)


def _ending(result: Result) -> str:
    passed = sum(check.passed for check in result.checks)
    counted = f"{passed} of {len(result.checks)} checks passed"
    reason = f" ({result.reason})" if result.reason else ""
    lost = f"; {result.dropped} events dropped" if result.dropped else ""
    return f"{result.status}: {counted}{reason}{lost}; record {result.record}"
