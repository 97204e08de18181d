"""Facts in words for the screens: the machine, the agent, the verdict of a run. Pure functions."""

from __future__ import annotations

from typing import Literal

from rich.text import Text

from labs.params import ParameterError
from launcher.rundir import Result
from workbench import palette
from workbench.machine import Machine, backend_for
from workbench.views.units import count, duration, size

AgentState = Literal["warming", "warm", "lost"]


def machine_text(machine: Machine | None, num_ranks: int, glyphs: palette.Glyphs) -> Text:
    """Return cores, memory, GPUs, torch, and the backend for `num_ranks` ranks with its reason."""
    if machine is None:
        return Text("looking at this machine", palette.MUTED)
    dot = f" {glyphs.dot} "
    gpus = f"{len(machine.gpus)} x {machine.gpus[0].name}" if machine.gpus else machine.gpu_note
    facts = [count(machine.cores, "core"), size(machine.memory), gpus]
    facts += [f"torch {machine.torch}"] if machine.torch else ["torch is not installed"]
    text = Text(dot.join(facts))
    try:
        _, _, why = backend_for(machine, num_ranks)
    except ParameterError as error:
        why = str(error)
    return text.append(f"{dot}{why}", palette.MUTED)


def agent_text(state: AgentState, trouble: str, glyphs: palette.Glyphs) -> Text:
    """Return whether a run would start at once."""
    if state == "warm":
        return Text(f"{glyphs.phases['running']} warm: a run starts at once", palette.GOOD)
    if state == "warming":
        return Text(f"{glyphs.phases['starting']} warming: torch is being loaded", palette.WARN)
    return Text(
        f"{glyphs.failed} no agent: {trouble.splitlines()[0] if trouble else 'it ended'}", palette.BAD
    )


def verdict_text(result: Result | None, current: bool, glyphs: palette.Glyphs) -> Text:
    """Return how a run ended, in one line."""
    if result is None:
        if current:
            return Text(f"{glyphs.phases['running']} running", palette.GOOD)
        return Text(f"{glyphs.unknown} no result: it still runs, or was lost", palette.MUTED)
    took = duration(result.wall_s)
    passed = sum(check.passed for check in result.checks)
    match result.status:
        case "passed":
            return Text(f"{glyphs.passed} {passed}/{len(result.checks)} checks in {took}", palette.GOOD)
        case "failed":
            return Text(f"{glyphs.failed} {passed}/{len(result.checks)} checks in {took}", palette.BAD)
        case "interrupted":
            return Text(f"{glyphs.unknown} interrupted after {took}", palette.WARN)
    failure = result.failure
    who = f"rank {failure.rank}: {failure.kind}" if failure is not None else result.reason
    return Text(f"{glyphs.failed} {who} after {took}", palette.BAD)
