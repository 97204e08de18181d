"""Runs that another process serves: starting one that outlives this terminal, watching it, ending it.

The agent of a run is named in its manifest by pid and start time, so that `--stop` never hits another
process, not even one that was given the same number. Loads neither torch nor textual.
"""

from __future__ import annotations

import queue
from pathlib import Path

import msgspec

from labs.params import LabSpec, ParameterError
from launcher.client import AgentClient
from launcher.lifeline import alive, send
from launcher.protocol import STOP_SIGNAL
from launcher.rundir import RESULT, Manifest, Result, read_manifest, read_result
from workbench import session
from workbench.console import complain, say
from workbench.headless import Headless, Inbox, show_result, signals_into, wait_for_result, with_agent
from workbench.machine import Machine
from workbench.runs import state_of
from workbench.views.units import duration

OK, WORKER_FAILED = 0, 3
STOP_S = 10.0
"""How long a run may take to end in order before it is ended at once."""


def start(
    spec: LabSpec, params: msgspec.Struct, options: session.RunOptions, machine: Machine, *, as_json: bool
) -> int:
    """Start a run that survives this process; print its id once its ranks are being started.

    Until then a signal ends the run as it does without `--detach`. Returns the command's exit code.

    Raises:
        ParameterError: the run cannot work here; nothing was started and no folder is left.
    """
    inbox: Inbox = queue.SimpleQueue()
    client = AgentClient(inbox.put, detached=True)
    with signals_into(inbox):
        prepared = with_agent(session.prepare(spec, params, options, machine), client)
        code = Headless(prepared, client, inbox, quiet=True, until_started=True).follow()
        client.close()
    if read_result(prepared.folder) is None:
        _tell(prepared, as_json)
    else:  # it ended before it began: a signal, or an agent that could not go on
        show_result(prepared, as_json)
    return code


def _tell(prepared: session.Prepared, as_json: bool) -> None:
    run_id, owner = prepared.manifest.run_id, prepared.manifest.owner
    if as_json:
        told = {"run_id": run_id, "folder": str(prepared.folder), "pid": owner.pid if owner else None}
        say(msgspec.json.encode(told).decode())
        return
    say(run_id)
    complain(f"it goes on without this terminal; watch: --attach {run_id}; end: --stop {run_id}")


def stop(folder: Path) -> int:
    """End the run in `folder` and say how it ended; a run that had ended already is no error.

    Raises:
        ParameterError: the run cannot be ended from here.
    """
    manifest = read_manifest(folder)
    try:
        before = read_result(folder)
    except (OSError, msgspec.DecodeError) as error:
        raise ParameterError("--stop", f"{folder}: its {RESULT} cannot be read: {error}") from None
    match state_of(manifest, before):
        case "ended":
            assert before is not None
            say(f"{manifest.run_id} had ended already: {_how(before)}")
            return OK
        case "elsewhere":
            raise ParameterError("--stop", _elsewhere(manifest))
        case "lost":
            raise ParameterError("--stop", f"{manifest.run_id} was lost: {_owner(manifest)} is gone")
    result = _end(folder, manifest)
    if result is None:
        complain(f"{manifest.run_id} does not end: {_owner(manifest)} still runs; end it: kill -9")
        return WORKER_FAILED
    say(f"{manifest.run_id} stopped: {_how(result)}")
    return OK


def _end(folder: Path, manifest: Manifest) -> Result | None:
    """Ask the agent to end the run; asked twice, it kills the ranks at once."""
    assert manifest.owner is not None
    for _ in range(2):
        if not send(manifest.owner, STOP_SIGNAL) and alive(manifest.owner):
            raise ParameterError("--stop", f"{manifest.run_id} belongs to another user; ask them, or be them")
        if (result := wait_for_result(folder, STOP_S)) is not None:
            return result
    return None


def _how(result: Result) -> str:
    return f"{result.status} after {duration(result.wall_s)} (exit code {result.exit_code})"


def _owner(manifest: Manifest) -> str:
    return f"its agent, process {manifest.owner.pid}," if manifest.owner is not None else "its agent"


def _elsewhere(manifest: Manifest) -> str:
    if manifest.owner is None:
        return f"{manifest.run_id} names no process that serves it; it cannot be ended from here"
    host = manifest.machine.get("hostname", "another machine")
    return f"{manifest.run_id} runs on {host}; end it there: workbench --stop {manifest.run_id}"
