"""Signals to the headless command, with real runs: exit code, result, and nothing left behind."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.cli.command import (
    TIMEOUT_S,
    begun,
    events,
    family,
    gone,
    only_run,
    result,
    started,
    until,
)
from tests.cli.test_runs import LONG

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_a_signal_ends_the_run_in_order(runs_dir: Path, number: signal.Signals) -> None:
    process = started([*LONG, "--json"])
    folder = only_run(runs_dir)
    until(lambda: begun(folder), TIMEOUT_S, "the run is under way")
    processes = family(process.pid)
    assert len(processes) >= 4, "workbench, agent, collector, forkserver, ranks"
    process.send_signal(number)
    verdict, progress = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == CODES[number]
    printed = json.loads(verdict)
    assert printed == result(folder)
    assert (printed["status"], printed["exit_code"]) == ("interrupted", CODES[number])
    assert number.name in printed["reason"]
    assert printed["failure"] is None
    assert printed["events"] == len(events(folder))
    assert number.name in progress
    assert "Traceback" not in progress
    gone(processes)


def test_a_second_interrupt_ends_it_at_once(runs_dir: Path) -> None:
    process = started(LONG)
    folder = only_run(runs_dir)
    until(lambda: begun(folder), TIMEOUT_S, "the run is under way")
    processes = family(process.pid)
    ranks = [psutil.Process(event["pid"]) for event in events(folder) if event["event"] == "hello"]
    for rank in ranks:  # a stopped rank cannot act on SIGTERM: only SIGKILL ends it
        rank.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    until(
        lambda: "SIGINT" in (process.stderr.readline() if process.stderr else ""), TIMEOUT_S, "the first seen"
    )
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=TIMEOUT_S)
    assert time.monotonic() - began < 6.0
    assert process.returncode == 130
    assert result(folder)["status"] == "interrupted"
    gone(processes)


def test_an_interrupt_before_the_ranks_exist(runs_dir: Path) -> None:
    process = started(LONG)
    folder = only_run(runs_dir)
    until(lambda: len(family(process.pid)) > 1, TIMEOUT_S, "the agent is being started")
    processes = family(process.pid)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert result(folder)["status"] == "interrupted"
    gone(processes)


def test_a_killed_workbench_leaves_no_process_and_a_result(runs_dir: Path) -> None:
    process = started(LONG)
    folder = only_run(runs_dir)
    until(lambda: begun(folder), TIMEOUT_S, "the run is under way")
    processes = family(process.pid)
    process.kill()
    process.communicate(timeout=TIMEOUT_S)
    gone(processes, 3.0)
    found = result(folder)
    assert found["status"] in ("interrupted", "error")
    assert found["exit_code"] != 0
    assert found["reason"] or found["failure"]
    assert found["events"] == len(events(folder))


def test_a_killed_agent_is_told_without_a_traceback(runs_dir: Path) -> None:
    process = started([*LONG, "--json"])
    folder = only_run(runs_dir)
    until(lambda: begun(folder), TIMEOUT_S, "the run is under way")
    processes = family(process.pid)
    agent = agent_of(folder)
    assert agent in processes
    agent.kill()
    verdict, progress = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 3
    printed = json.loads(verdict)
    assert printed == result(folder)
    assert (printed["status"], printed["exit_code"]) == ("error", 3)
    assert "The launcher agent was ended by SIGKILL" in progress
    assert "Traceback" not in progress
    gone(processes)


def test_a_second_interrupt_ends_even_an_agent_that_does_not_listen(runs_dir: Path) -> None:
    process = started([*LONG, "--json"])
    folder = only_run(runs_dir)
    until(lambda: begun(folder), TIMEOUT_S, "the run is under way")
    processes = family(process.pid)
    agent_of(folder).suspend()
    process.send_signal(signal.SIGINT)
    until(
        lambda: "SIGINT" in (process.stderr.readline() if process.stderr else ""), TIMEOUT_S, "the first seen"
    )
    process.send_signal(signal.SIGINT)
    verdict, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    printed = json.loads(verdict)
    assert printed == result(folder)
    assert (printed["status"], printed["exit_code"]) == ("interrupted", 130)
    assert printed["failure"] is None
    assert "SIGINT" in printed["reason"]
    gone(processes)


def test_agent_and_collector_are_killed_and_the_workbench_writes_the_result(runs_dir: Path) -> None:
    process = started([*LONG, "--json"])
    folder = only_run(runs_dir)
    until(lambda: begun(folder), TIMEOUT_S, "the run is under way")
    processes = family(process.pid)
    agent = agent_of(folder)
    collector = next(child for child in agent.children() if "launcher.collector" in child.cmdline())
    collector.suspend()
    agent.kill()
    collector.kill()
    verdict, progress = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 3
    printed = json.loads(verdict)
    assert printed == result(folder)
    assert (printed["status"], printed["exit_code"]) == ("error", 3)
    assert "agent was killed" in printed["failure"]["message"]
    assert printed["events"] == len(events(folder)) > 0
    assert "Traceback" not in progress
    gone(processes)


def agent_of(folder: Path) -> psutil.Process:
    """The agent that serves a run, by the run's manifest."""
    return psutil.Process(json.loads((folder / "manifest.json").read_text())["owner"]["pid"])
