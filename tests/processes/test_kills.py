"""A process that others depend on is killed: the workbench, the agent, the forkserver, the collector."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from launcher import lifeline
from launcher.client import Lost
from launcher.events import decode
from launcher.protocol import RunRequest
from launcher.rundir import EVENTS, Result, read_result
from tests.processes.harness import ROOT, START_S, Run, Runner, session_members, until, wait_for_children


def read_whole_record(run_folder: Path) -> int:
    """Decode every line of the record; returns how many."""
    text = (run_folder / EVENTS).read_text()
    assert text.endswith("\n")
    return len([decode(line) for line in text.splitlines()])


def helper_of(runner: Runner, part: str) -> int:
    """Pid of the child of the agent with `part` in its command line."""
    for process in lifeline.family([runner.client.pid]):
        if part in Path(f"/proc/{process.pid}/cmdline").read_text():
            return process.pid
    raise AssertionError(f"the agent has no {part}")


@pytest.mark.parametrize("act", ["hang", "children", "ignore"])
def test_the_agent_is_killed(fresh_runner: Runner, act: str) -> None:
    run = fresh_runner.start(world_size=3, do=act, who=1)
    run.all_ready()
    if act == "children":
        wait_for_children(run, 3)
    os.kill(fresh_runner.client.pid, signal.SIGKILL)
    run.gone()
    until(lambda: not session_members(fresh_runner.session), 3.0, "the agent's session empty")
    assert isinstance(fresh_runner.next(Lost, 3), Lost)
    result = run.result()
    assert (result.status, result.exit_code) == ("error", 3)
    assert result.failure is not None
    assert "agent" in result.failure.message
    assert read_whole_record(run.folder) > 3


def test_the_signal_that_breaks_a_launch_comes_when_there_is_none(fresh_runner: Runner) -> None:
    """As under `torchrun`, which the agent only waits for: it must outlive it, before any launch too."""
    os.kill(fresh_runner.client.pid, signal.SIGQUIT)
    assert fresh_runner.start(world_size=2).finished().exit_code == 0


def test_the_forkserver_is_killed_and_the_next_run_works(fresh_runner: Runner) -> None:
    run = fresh_runner.start(world_size=2, do="hang", who=1)
    run.all_ready()
    os.kill(psutil.Process(run.rank(0).pid).ppid(), signal.SIGKILL)
    run.gone()
    assert run.finished(5).exit_code == 3
    failure = run.result().failure
    assert failure is not None
    assert (failure.rank, failure.kind) == (-1, "signal"), failure
    again = fresh_runner.start(world_size=2)
    assert again.finished().exit_code == 0


def test_the_collector_is_killed_and_the_next_run_works(fresh_runner: Runner) -> None:
    run = fresh_runner.start(world_size=2, do="hang", who=1)
    run.all_ready()
    os.kill(helper_of(fresh_runner, "launcher.collector"), signal.SIGKILL)
    run.gone()
    assert run.finished(5).exit_code == 2
    result = run.result()
    assert result.status == "error"
    assert "recorder" in result.reason
    again = fresh_runner.start(world_size=2)
    assert again.finished().exit_code == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_the_agent_is_asked_to_end_by_a_signal(fresh_runner: Runner, number: int, code: int) -> None:
    run = fresh_runner.start(world_size=2, do="hang", who=1)
    run.all_ready()
    os.kill(fresh_runner.client.pid, number)
    run.gone()
    assert run.finished(3).exit_code == code
    assert run.result().status == "interrupted"
    fresh_runner.next(Lost, 3)


class App(NamedTuple):
    """A workbench process with its agent and the folder of its run."""

    process: subprocess.Popen[str]
    session: int
    folder: Path


@pytest.fixture
def app(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[App]:
    """A workbench process with a run in progress; `request.param` are its arguments."""
    command = [sys.executable, "-m", "tests.processes.app", str(tmp_path), *request.param]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        session, folder = process.stdout.readline().split()
        yield App(process, int(session), Path(folder))
        process.kill()


def ended(app: App) -> Result:
    """The result, once the agent and everything below it is gone."""
    until(lambda: not session_members(app.session), 3.0, "the agent's session empty")
    result = read_result(app.folder)
    assert result is not None
    return result


@pytest.mark.parametrize("app", [["hang"]], indirect=True)
def test_the_workbench_is_killed(app: App) -> None:
    app.process.kill()
    result = ended(app)
    assert (result.status, result.exit_code) == ("interrupted", 129)
    assert "workbench" in result.reason


@pytest.mark.parametrize("app", [["hang"]], indirect=True)
def test_the_workbench_and_the_agent_are_killed(app: App) -> None:
    os.kill(app.session, signal.SIGSTOP)  # or it might notice the workbench's end before its own
    app.process.kill()
    os.kill(app.session, signal.SIGKILL)
    assert ended(app).exit_code == 3


@pytest.mark.parametrize("app", [["nothing", "detach"]], indirect=True)
def test_a_detached_agent_finishes_its_run_and_leaves(app: App) -> None:
    app.process.kill()
    app.process.wait()
    until(lambda: read_result(app.folder), 10.0, "the run finished")
    assert ended(app).status == "passed"


class TestUnderTorchrun:
    """The same, with the plain `torchrun` command as the launcher."""

    def start(self, runner: Runner, act: str, who: int, timeout_s: float = 0.0) -> Run:
        """Start two ranks of the entrypoint under torchrun."""
        run = runner.prepare(2)
        command = ["torchrun", "--standalone", "--nproc-per-node", "2", "-m", "tests.processes.entry"]
        runner.request(
            RunRequest(
                run_id=run.request.run_id,
                folder=str(run.folder),
                entrypoint="",
                argument={},
                world_size=2,
                launcher="torchrun",
                command=[*command, str(run.folder), act, str(who)],
                timeout_s=timeout_s,
            )
        )
        return run

    def test_a_run_passes_and_leaves_its_logs(self, runner: Runner) -> None:
        run = self.start(runner, "nothing", 0)
        assert run.finished().exit_code == 0
        run.gone(0.0)
        assert run.result().status == "passed"
        for rank in range(2):
            assert (run.folder / f"rank{rank}.log").read_text() == f"rank {rank} is ready\n"
        assert not (run.folder / "torchrun").exists()

    def test_a_rank_raises(self, runner: Runner) -> None:
        run = self.start(runner, "raise", 1)
        assert run.finished().exit_code == 3
        run.gone()
        failure = run.result().failure
        assert failure is not None
        assert (failure.rank, failure.kind) == (1, "exception")

    def test_a_rank_is_killed(self, runner: Runner) -> None:
        run = self.start(runner, "hang", 0)
        run.all_ready()
        lifeline.send(run.rank(1), signal.SIGKILL)
        assert run.finished().exit_code == 3
        run.gone()
        failure = run.result().failure
        assert failure is not None
        assert (failure.rank, failure.kind) == (1, "signal")
        assert failure.message == "rank 1 was killed by SIGKILL"

    @pytest.mark.parametrize("act", ["hang", "children", "ignore"])
    def test_a_stop_request(self, runner: Runner, act: str) -> None:
        run = self.start(runner, act, 1)
        run.all_ready()
        if act == "children":
            wait_for_children(run, 3)
        runner.client.stop(run.request.run_id, "stop", 130)
        run.gone(10.0 if act == "ignore" else 3.0)
        assert run.finished(3).exit_code == 130

    def test_the_time_limit(self, runner: Runner) -> None:
        run = self.start(runner, "hang", 0, timeout_s=1.0)
        assert run.finished().exit_code == 3
        run.gone()

    def test_the_agent_is_killed(self, fresh_runner: Runner) -> None:
        run = self.start(fresh_runner, "children", 1)
        run.all_ready()
        wait_for_children(run, 3)
        os.kill(fresh_runner.client.pid, signal.SIGKILL)
        run.gone()
        assert run.result().exit_code == 3


def test_the_workbench_goes_while_torch_loads(tmp_path: Path) -> None:
    """Its run is recorded as interrupted, and no rank is started for nobody."""
    runner = Runner(tmp_path)
    run = runner.prepare(world_size=2, do="hang", who=1)
    runner.client.request(run.request)
    runner.client.close(START_S)  # or an agent whose torch is slow to load would be killed instead
    result = run.result()
    assert result.status == "interrupted"
    assert not list(run.folder.glob("rank*.log"))
    until(lambda: not session_members(runner.session), 3.0, "the agent's session empty")
