"""A run that survives its terminal: started by one process, watched by another, ended by a third."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from labs.catalog import spec_of
from labs.params import ParameterError
from launcher.lifeline import alive, identify, send
from launcher.record_index import sketch
from launcher.rundir import Manifest, ProcessId, read_manifest, write_manifest
from tests.cli.command import WORKBENCH, begun, events, family, gone, only_run, result, until, workbench
from tests.cli.test_session import CPU, OPTIONS
from tests.terminal import Terminal
from workbench import cli, elsewhere, runs, session

LONG = ("--run", "dp", "--nproc", "2", "--steps", "100000", "--dim", "16")


@pytest.fixture
def detached(runs_dir: Path) -> Iterator[Path]:
    """The folder of a run that was started with --detach; its agent is ended afterwards."""
    done = workbench(*LONG, "--detach")
    folder = only_run(runs_dir)
    owner = read_manifest(folder).owner
    assert owner is not None
    try:
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{folder.name}\n"
        assert f"--attach {folder.name}" in done.stderr
        assert f"--stop {folder.name}" in done.stderr
        yield folder
    finally:
        send(owner, signal.SIGKILL)


def test_a_detached_run_is_watched_and_stopped_by_others(
    detached: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    until(lambda: begun(detached), 60.0, "two steps, with the command that began the run gone")
    assert cli.main(["--runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["status"] == "running"
    assert cli.main(["--attach", "latest"]) == 2
    message = f"workbench: --attach: needs a terminal on stdin and stdout; {detached.name}: running\n"
    assert capsys.readouterr() == ("", message)
    with Terminal([*WORKBENCH, "--attach", detached.name[:12]], 120, 40) as terminal:
        terminal.until("attached, read-only")
        terminal.until("/100000")
        seen, had = len(terminal.written), len(events(detached))
        terminal.send(b"s")  # read-only: no key of it ends the run
        terminal.until("100000", since=seen)
        until(lambda: len(events(detached)) > had, 20.0, "the run to go on")
        terminal.send(b"q")
        assert terminal.wait() == 0
    owner = read_manifest(detached).owner
    assert owner is not None
    assert alive(owner)
    processes = family(owner.pid)
    stopped = workbench("--stop", detached.name)
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert stopped.stdout.startswith(f"{detached.name} stopped: interrupted after ")
    gone(processes)
    ended = result(detached)
    assert (ended["status"], ended["exit_code"]) == ("interrupted", 143)
    assert ended["reason"] == "stopped by workbench --stop"
    assert ended["events"] == len(events(detached))
    seen_by_index = [json.loads(line)["event"] for line in sketch(detached)]
    assert seen_by_index.count("hello") == 2
    assert seen_by_index[-1] == "end"
    assert cli.main(["--stop", detached.name]) == 0
    assert capsys.readouterr().out.startswith(f"{detached.name} had ended already: interrupted after ")


class TestStoppingWhatCannotBe:
    @pytest.fixture
    def manifest(self, runs_dir: Path) -> Manifest:
        dp = spec_of("dp")
        manifest = session.prepare(dp, dp.params(), OPTIONS, CPU).manifest
        return msgspec.structs.replace(manifest, machine={})

    def stop(self, runs_dir: Path, manifest: Manifest) -> int:
        write_manifest(runs_dir / manifest.run_id, manifest)
        return elsewhere.stop(runs_dir / manifest.run_id)

    def test_a_run_without_a_process(self, runs_dir: Path, manifest: Manifest) -> None:
        with pytest.raises(ParameterError, match="names no process"):
            self.stop(runs_dir, manifest)

    def test_a_run_on_another_machine(self, runs_dir: Path, manifest: Manifest) -> None:
        other = msgspec.structs.replace(manifest, owner=identify(os.getpid()), machine={"hostname": "node9"})
        with pytest.raises(ParameterError, match="runs on node9; end it there"):
            self.stop(runs_dir, other)

    def test_a_number_that_another_process_has_now(self, runs_dir: Path, manifest: Manifest) -> None:
        """This very process has the pid, but began at another time: it must not be hit."""
        lost = msgspec.structs.replace(manifest, owner=ProcessId(os.getpid(), 1.0))
        with pytest.raises(ParameterError, match=f"was lost: its agent, process {os.getpid()}, is gone"):
            self.stop(runs_dir, lost)
        assert [run.status for run in runs.kept_runs(runs_dir)] == ["lost"]
