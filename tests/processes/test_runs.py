"""Runs that end by themselves or by a request: nothing stays, and the result says what happened."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from launcher import lifeline
from launcher.agent import Elastic
from launcher.control import RunControl
from launcher.protocol import Finished, Refused, RunRequest, Started, decode_reply, encode
from launcher.service import Service
from tests.processes.harness import Runner, session_members, wait_for_children


def test_many_runs_one_after_another_with_fresh_processes(runner: Runner) -> None:
    before = set(session_members(runner.session))
    pids: set[int] = set()
    for _ in range(3):
        run = runner.start(world_size=2)
        assert run.finished().exit_code == 0
        assert run.result().status == "passed"
        pids |= {int((run.folder / f"pid.{rank}").read_text()) for rank in range(2)}
        run.gone(0.0)
        assert set(session_members(runner.session)) == before
    assert len(pids) == 6


def test_what_a_rank_prints_is_in_its_own_file(runner: Runner) -> None:
    run = runner.start(world_size=2)
    run.finished()
    for rank in range(2):
        assert (run.folder / f"rank{rank}.log").read_text() == f"rank {rank} is ready\n"


def test_a_rank_raises(runner: Runner) -> None:
    run = runner.start(world_size=3, do="raise", who=1, loops=3)
    assert run.finished(10).exit_code == 3
    run.gone()
    result = run.result()
    assert result.status == "error"
    assert result.failure is not None
    assert (result.failure.rank, result.failure.kind) == (1, "exception")
    assert "this rank was asked to fail" in result.failure.message
    assert result.failure.traceback.count("ValueError: this rank") == 1
    assert 1 not in result.failure.victims


def test_a_rank_exits_early_with_zero(runner: Runner) -> None:
    run = runner.start(world_size=2, do="exit", who=1)
    assert run.finished(10).exit_code == 3
    run.gone()
    failure = run.result().failure
    assert failure is not None
    assert (failure.rank, failure.kind) == (1, "early_exit")


def test_a_rank_vanishes_with_exit_code_zero(runner: Runner) -> None:
    run = runner.start(world_size=2, do="vanish", who=1)
    assert run.finished(15).exit_code == 3
    run.gone()
    failure = run.result().failure
    assert failure is not None
    assert failure.rank == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_rank_is_ended_by_a_signal(runner: Runner, number: signal.Signals) -> None:
    run = runner.start(world_size=3, do="hang", who=1)
    run.all_ready()
    lifeline.send(run.rank(2), number)
    run.gone()
    assert run.finished(3).exit_code == 3
    failure = run.result().failure
    assert failure is not None
    assert (failure.rank, failure.kind) == (2, "signal")
    assert number.name in failure.message


def test_a_stop_request_ends_the_run_as_interrupted(runner: Runner) -> None:
    run = runner.start(world_size=2, do="hang", who=0)
    run.all_ready()
    runner.client.stop(run.request.run_id, "stopped by the person", 130)
    run.gone()
    assert run.finished(3).exit_code == 130
    result = run.result()
    assert (result.status, result.exit_code, result.failure) == ("interrupted", 130, None)
    assert result.reason == "stopped by the person"


def test_a_stop_while_the_ranks_are_being_started(runner: Runner) -> None:
    run = runner.prepare(world_size=4, do="hang", who=0)
    runner.client.request(run.request)
    runner.client.stop(run.request.run_id, "at once", 143)
    runner.next(Started)
    assert run.finished(5).exit_code == 143
    run.gone()


def test_a_second_stop_kills_at_once_and_one_alone_gives_time(runner: Runner) -> None:
    run = runner.start(world_size=2, do="ignore", all=True)
    run.all_ready()
    began = time.monotonic()
    runner.client.stop(run.request.run_id, "first", 130)
    runner.client.stop(run.request.run_id, "second", 130)
    run.gone(1.5)
    assert run.finished(3).exit_code == 130
    assert time.monotonic() - began < 1.9
    assert run.result().reason == "first"


def test_ranks_that_ignore_sigterm_are_killed_after_the_grace_time(runner: Runner) -> None:
    run = runner.start(world_size=2, do="ignore", all=True)
    run.all_ready()
    began = time.monotonic()
    runner.client.stop(run.request.run_id, "stop", 130)
    run.gone(10)
    assert time.monotonic() - began > 1.5
    assert run.finished(3).exit_code == 130


def test_a_rank_raises_while_another_ignores_sigterm(runner: Runner) -> None:
    run = runner.start(world_size=3, do="ignore", who=0)
    run.all_ready()
    lifeline.send(run.rank(1), signal.SIGKILL)
    run.gone(10)
    assert run.finished(3).exit_code == 3
    failure = run.result().failure
    assert failure is not None
    assert failure.rank == 1


def test_a_rank_hangs_and_the_others_run_into_their_timeout(runner: Runner) -> None:
    run = runner.start(world_size=3, do="hang", who=1, pg_timeout_s=1.5)
    assert run.finished(15).exit_code == 3
    run.gone()
    failure = run.result().failure
    assert failure is not None
    assert (failure.rank, failure.kind) == (1, "hang")
    assert "_hang" in failure.traceback


def test_all_ranks_hang_and_the_time_limit_ends_them(runner: Runner) -> None:
    began = time.monotonic()
    run = runner.start(world_size=2, do="hang", all=True, timeout_s=3.0)
    assert run.finished(15).exit_code == 3
    assert time.monotonic() - began > 2.9
    run.gone(0.0)
    result = run.result()
    assert result.status == "error"
    assert result.failure is not None
    assert result.failure.kind == "timeout"
    assert any("_hang" in line for line in (run.folder / "events.jsonl").read_text().splitlines())


def test_the_time_limit_counts_from_the_request(runner: Runner) -> None:
    run = runner.start(world_size=2, do="hang", all=True, timeout_s=0.01)
    assert run.finished(15).exit_code == 3
    run.gone()


def test_stopped_ranks_are_ended_too(runner: Runner) -> None:
    run = runner.start(world_size=2, do="hang", who=0)
    run.all_ready()
    os.kill(run.rank(1).pid, signal.SIGSTOP)
    runner.client.stop(run.request.run_id, "stop", 130)
    run.gone()
    assert run.finished(3).exit_code == 130


def test_what_a_rank_has_started_goes_with_it(runner: Runner) -> None:
    run = runner.start(world_size=2, do="children", who=1)
    run.all_ready()
    wait_for_children(run, 3)
    runner.client.stop(run.request.run_id, "stop", 130)
    run.gone()
    run.finished(3)


def test_what_a_killed_rank_has_started_goes_too(runner: Runner) -> None:
    run = runner.start(world_size=2, do="children", who=1)
    run.all_ready()
    wait_for_children(run, 3)
    lifeline.send(run.rank(1), signal.SIGKILL)
    run.gone()
    assert run.finished(3).exit_code == 3


def test_requests_that_cannot_be_served_are_refused(runner: Runner) -> None:
    run = runner.start(world_size=2, do="hang", who=0)
    second = runner.prepare(world_size=2)
    runner.client.request(second.request)
    refused = runner.next(Refused)
    assert refused.run_id == second.request.run_id
    assert run.request.run_id in refused.message
    runner.client.stop("another", "stop", 130)
    assert runner.next(Refused).run_id == "another"
    runner.client.stop(run.request.run_id, "stop", 130)
    assert isinstance(runner.next(Finished), Finished)


def request_in(folder: Path) -> RunRequest:
    """A request that nobody carries out."""
    return RunRequest(run_id="test", folder=str(folder), entrypoint="none:main", argument={}, world_size=2)


class TestExitCodesThatAreSeenLate:
    """Under load a rank's exit code may be known only when the launcher is ending the others already."""

    def test_a_rank_that_was_gone_before_counts_as_gone_by_itself(self, tmp_path: Path) -> None:
        control = RunControl(request_in(tmp_path), lambda: None, lambda: None, lambda: None)
        control.begin()
        with subprocess.Popen(["sleep", "60"]) as first, subprocess.Popen(["sleep", "60"]) as second:
            control.launched([first.pid, second.pid])
            first.kill()
            first.wait()
            control.stop("a test", 130)
            assert second.wait(10) == -signal.SIGTERM
        control.finish()
        assert control.own_end(first.pid)
        assert not control.own_end(second.pid)

    def test_the_code_is_kept_and_the_others_may_still_speak(self) -> None:
        told: list[str] = []
        ranks = [SimpleNamespace(pid=10, exitcode=None), SimpleNamespace(pid=11, exitcode=None)]
        control = SimpleNamespace(own_end=lambda pid: pid == 11, rank_ended=lambda: told.append("ended"))
        elastic = object.__new__(Elastic)  # its constructor loads torch
        elastic._codes, elastic._server = {}, None

        def join(*_: object) -> bool:
            told.append("torch")
            return False

        def look() -> None:
            context = cast("Any", SimpleNamespace(processes=ranks))
            elastic._join(cast("Any", control), context, join, -1)

        look()
        assert told == []
        ranks[1].exitcode = -9
        look()
        assert told == ["ended"], "torch would end the others at once"
        ranks[0].exitcode = -15
        look()
        assert told == ["ended", "torch"]
        assert elastic._codes == {1: -9}, "rank 0 was ended by the launcher"


def test_a_request_right_behind_the_last_reply_is_taken(tmp_path: Path) -> None:
    """The workbench may ask for the next run as soon as it has read that the one before is over."""

    class Replies(io.BytesIO):
        finished = 0

        def flush(self) -> None:
            last = decode_reply(self.getvalue().splitlines()[-1])
            assert not isinstance(last, Refused), last
            if isinstance(last, Finished):
                self.finished += 1
                service._read(io.BytesIO(asked if self.finished < 2 else b""))

    asked = encode(request_in(tmp_path)) + b"\n"
    collector = Mock()
    collector.open.return_value, collector.seal.return_value = {}, 0
    replies = Replies()
    service = Service(replies, collector, detached=True)
    service._read(io.BytesIO(asked))
    service.serve(lambda _control, _environment: {})
    assert replies.finished == 2
