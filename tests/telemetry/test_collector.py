"""A real collector: whatever arrives and whoever dies, the record parses and the result is written."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from launcher import collector_protocol as wire
from launcher.emitter import COLLECTOR_GONE
from launcher.events import Check, Failure, Log, Sample, Scalar, encode
from launcher.rank import log_path
from launcher.rundir import REJECTED, read_result
from tests.telemetry.harness import ROOT, CollectorProcess, end, finish, hello, life, until


def scalar(rank: int, name: str, value: float, step: int = 0) -> bytes:
    """One scalar as a line."""
    return encode(Scalar(t=1, rank=rank, name=name, value=value, step=step))


def test_a_run_passes_and_the_next_one_too(collector: CollectorProcess, tmp_path: Path) -> None:
    for number in range(2):
        collector.folder = tmp_path / f"run{number}"
        collector.open()
        finish(collector, range(2))
        result = collector.seal()
        assert (result.status, result.exit_code, result.failure) == ("passed", 0, None)
        assert result.ready_s is not None
        assert 0 < result.ready_s <= result.wall_s
        assert result.events == len(collector.events())
        assert {path.name for path in collector.folder.iterdir()} == {
            "manifest.json",
            "events.jsonl",
            "events.index",
            "result.json",
        }
    assert collector.failed == []


def test_a_failed_check_and_a_metric_reach_the_result(collector: CollectorProcess) -> None:
    collector.open()
    with collector.connect() as connection:
        connection.sendall(
            encode(hello(0))
            + encode(Check(t=1, rank=0, name="equal", passed=False, measured=float("nan"), expected=1.0))
            + scalar(0, "loss", 0.5, step=-1)
            + scalar(0, "bad", float("inf"), step=-1)
            + encode(end(0))
        )
    finish(collector, range(1, 2))
    result = collector.seal()
    assert (result.status, result.exit_code) == ("failed", 1)
    assert result.checks[0].measured == "nan"
    assert result.metrics == {"loss": 0.5}


GARBAGE = {
    "no JSON": b"\x00\xff garbage {",
    "an unknown event": b'{"event":"surprise","t":1,"rank":0}',
    "a rank outside of the world": scalar(7, "x", 1.0).rstrip(),
    "no rank": scalar(-1, "x", 1.0).rstrip(),
    "another rank's": scalar(1, "x", 1.0).rstrip(),
    "a wrong type": b'{"event":"scalar","t":"soon","rank":0,"name":"x","value":1}',
    "a list": b"[1,2,3]",
    "an empty line": b"",
    "deep nesting": b"[" * 100_000,
    "not UTF-8, in an unknown field": b'{"event":"phase","t":1,"rank":0,"z":"\xff","phase":"ready"}',
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_a_bad_line_is_kept_apart_and_harms_nothing(collector: CollectorProcess, kind: str) -> None:
    collector.open()
    with collector.connect() as connection:
        connection.sendall(encode(hello(0)) + GARBAGE[kind] + b"\n" + scalar(0, "after", 1.0))
        connection.sendall(encode(end(0)))
    finish(collector, range(1, 2))
    result = collector.seal()
    assert (result.status, result.rejected) == ("passed", 1)
    assert any(isinstance(event, Scalar) and event.name == "after" for event in collector.events())
    kept = msgspec.json.decode((collector.folder / REJECTED).read_bytes())
    assert kept["bytes"] == len(GARBAGE[kind])
    assert kept["reason"]


def test_a_number_of_its_own_does_not_override_the_stamp(collector: CollectorProcess) -> None:
    collector.open(1)
    with collector.connect() as connection:
        connection.sendall(
            encode(hello(0)) + b'  {"event":"end","t":1,"rank":0,"n":99,"status":"passed","exit_code":0}\n'
        )
    collector.seal()
    assert [event.n for event in collector.events()] == [1, 2, 3]


def test_bytes_are_appended_as_they_came(collector: CollectorProcess) -> None:
    collector.open(1)
    line = b'{"event":"scalar", "t":1,"rank":0,"name":"\xc3\xa9","value":1.50,"future":[1,2]}'
    with collector.connect() as connection:
        connection.sendall(line + b"\n" + encode(end(0)))
    collector.seal()
    assert b'{"n":1,' + line[1:] + b"\n" in (collector.folder / "events.jsonl").read_bytes()


def test_half_a_line_is_rejected_when_its_rank_goes(collector: CollectorProcess) -> None:
    collector.open(1)
    with collector.connect() as connection:
        connection.sendall(encode(hello(0)) + scalar(0, "x", 1.0)[:20])
    until(lambda: collector.failed == [0], "the rank's disappearance told")
    result = collector.seal()
    assert (result.status, result.exit_code, result.rejected) == ("error", 3, 1)
    assert result.failure is not None
    assert result.failure.rank == 0
    assert len(collector.events()) == 3


def test_a_line_in_pieces_is_whole_again(collector: CollectorProcess) -> None:
    collector.open(1)
    with collector.connect() as connection:
        for byte in life(0, 1):
            connection.send(bytes([byte]))
    assert collector.seal().status == "passed"


def test_a_line_of_100_mb_costs_bounded_memory_and_is_counted_once(collector: CollectorProcess) -> None:
    collector.open()
    process = psutil.Process(collector.process.pid)
    with collector.connect() as connection:
        connection.sendall(encode(hello(0)))
        most = 0
        for _ in range(100):
            connection.sendall(b"x" * 1_000_000)
            most = max(most, process.memory_info().rss)
        connection.sendall(b"\n" + encode(end(0)))
    finish(collector, range(1, 2))
    result = collector.seal()
    assert (result.status, result.rejected) == ("passed", 1)
    assert most < 100_000_000
    assert (collector.folder / REJECTED).stat().st_size < 10_000


def test_what_is_rejected_is_bounded_in_total(collector: CollectorProcess) -> None:
    collector.open(1)
    with collector.connect() as connection:
        connection.sendall((b"z" * 5_000 + b"\n") * 2_000 + life(0, 1))
    result = collector.seal()
    assert (result.status, result.rejected) == ("passed", 2_000)
    assert (collector.folder / REJECTED).stat().st_size <= 1 << 20


def test_a_failure_is_told_at_once_and_victims_are_numbers(collector: CollectorProcess) -> None:
    collector.open()
    first, second = collector.connect(), collector.connect()
    first.sendall(encode(hello(0)))
    second.sendall(encode(hello(1)))
    failure = Failure(t=time.monotonic_ns(), rank=1, kind="exception", message="boom", traceback="tb")
    second.sendall(encode(failure))
    until(lambda: collector.failed == [1], "the failure told")
    lost = Failure(t=time.monotonic_ns(), rank=0, kind="exception", message="lost", victim=True)
    first.sendall(encode(lost))
    first.close()
    second.close()
    result = collector.seal()
    assert result.exit_code == 3
    assert result.failure is not None
    assert (result.failure.rank, result.failure.traceback, result.failure.victims) == (1, "tb", [0])


def test_exit_codes_tell_of_the_signal(collector: CollectorProcess) -> None:
    collector.open()
    finish(collector, range(1))
    with collector.connect() as connection:
        connection.sendall(encode(hello(1)))
    collector.send(wire.Exits(codes={"1": -9}))
    result = collector.seal()
    assert result.failure is not None
    assert (result.failure.rank, result.failure.kind) == (1, "signal")
    told = [event for event in collector.events() if isinstance(event, Failure)]
    assert [(event.rank, event.kind) for event in told] == [(1, "signal")]


def test_an_interrupted_run_keeps_its_results(collector: CollectorProcess) -> None:
    collector.open()
    with collector.connect() as connection:
        connection.sendall(encode(hello(0)) + encode(Check(t=1, rank=0, name="so far", passed=True)))
    result = collector.seal(status="interrupted", exit_code=143, reason="stopped")
    assert (result.status, result.exit_code, result.reason) == ("interrupted", 143, "stopped")
    assert result.failure is None
    assert [check.name for check in result.checks] == ["so far"]


def test_the_agent_is_gone(collector: CollectorProcess) -> None:
    collector.open()
    connection = collector.connect()
    connection.sendall(encode(hello(0)) + scalar(0, "last", 1.0))
    began = time.monotonic()
    collector.close()
    assert time.monotonic() - began < 5
    result = read_result(collector.folder)
    assert result is not None
    assert (result.status, result.exit_code) == ("error", 3)
    assert result.failure is not None
    assert "agent was killed" in result.failure.message
    assert result.failure.victims == [0, 1]
    assert any(isinstance(event, Scalar) for event in collector.events())
    assert connection.recv(10) == b""


def test_the_agent_is_killed_while_it_ends_the_run(collector: CollectorProcess) -> None:
    """It was slow to do what the person had asked for: that is an interruption, and no failure."""
    collector.open()
    with collector.connect() as connection:
        connection.sendall(encode(hello(0)) + scalar(0, "last", 1.0))
    collector.send(wire.Ending(status="interrupted", exit_code=130, reason="ctrl-C"))
    collector.close()
    result = read_result(collector.folder)
    assert result is not None
    assert (result.status, result.exit_code, result.reason) == ("interrupted", 130, "ctrl-C")
    assert result.failure is None


def test_ending_signals_are_not_for_the_collector(collector: CollectorProcess) -> None:
    collector.open(1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        collector.process.send_signal(number)
    finish(collector, range(1))
    assert collector.seal().status == "passed"


def test_what_ranks_print_becomes_events(collector: CollectorProcess) -> None:
    collector.open(1)
    with log_path(collector.folder, 0, "stdout").open("wb") as file:
        file.write(b"one\nt\xffwo\n" + b"y" * 10_000 + b"\nlast without newline")
    log_path(collector.folder, 0, "stderr").write_bytes(b"bad\r\n")
    finish(collector, range(1))
    collector.seal()
    lines = [(event.stream, event.line) for event in collector.events() if isinstance(event, Log)]
    assert ("stdout", "one") in lines
    assert ("stdout", "t\ufffdwo") in lines
    assert ("stdout", "last without newline") in lines
    assert ("stderr", "bad") in lines
    assert max(len(line) for _, line in lines) < 5_000


def test_utilisation_of_a_rank_is_sampled(collector: CollectorProcess) -> None:
    collector.open(1)
    with collector.connect() as connection:
        connection.sendall(encode(hello(0)))
        until(lambda: b'"event":"sample"' in (collector.folder / "events.jsonl").read_bytes(), "a sample")
        connection.sendall(encode(end(0)))
    collector.seal()
    samples = [event for event in collector.events() if isinstance(event, Sample)]
    assert samples[0].cores > 0
    assert 0 < samples[0].memory_used < samples[0].memory_total
    assert samples[0].ranks[0].rank == 0
    assert samples[0].ranks[0].rss > 1_000_000


def test_a_disk_that_takes_nothing_more(tmp_path: Path) -> None:
    """RLIMIT_FSIZE refuses in the middle of a write, as a full disk does."""
    limit = (
        sys.executable,
        "-c",
        "import os,resource,sys; resource.setrlimit(resource.RLIMIT_FSIZE,"
        "(300000,300000)); os.execv(sys.argv[1], sys.argv[1:])",
    )
    collector = CollectorProcess(tmp_path / "run", prefix=limit)
    collector.open()
    with collector.connect() as connection:
        connection.sendall(encode(hello(0)))
        connection.sendall(b"".join(scalar(0, "x" * 50, float(number)) for number in range(5_000)))
        until(lambda: -1 in collector.failed, "the full disk told")
        connection.sendall(encode(end(0)))
    finish(collector, range(1, 2))
    result = collector.seal()
    assert (result.status, result.exit_code) == ("error", 2)
    assert result.failure is not None
    assert (result.failure.rank, result.failure.kind) == (-1, "environment")
    assert len(collector.events()) > 1_000
    collector.close()


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="mounting takes root")
def test_a_full_disk(tmp_path: Path) -> None:
    """A small file system really full: the reserve makes room for the result."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(disk)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        collector = CollectorProcess(disk)
        collector.open()
        with collector.connect() as connection:
            connection.sendall(encode(hello(0)))
            connection.sendall(b"".join(scalar(0, "x" * 50, float(number)) for number in range(5_000)))
            until(lambda: -1 in collector.failed, "the full disk told")
            connection.sendall(encode(end(0)))
        finish(collector, range(1, 2))
        result = collector.seal()
        assert (result.status, result.exit_code) == ("error", 2)
        assert result.failure is not None
        assert "No space left" in result.failure.message
        assert len(collector.events()) > 1_000
        collector.close()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_folder_that_cannot_be_written_is_refused(collector: CollectorProcess, tmp_path: Path) -> None:
    collector.send(wire.Open(run_id="x", folder=str(tmp_path / "none"), world_size=1))
    refused = collector.answers.get(timeout=20)
    assert isinstance(refused, wire.Refused)
    assert "none" in refused.message
    collector.open(1)
    finish(collector, range(1))
    assert collector.seal().status == "passed"


def test_a_second_run_at_a_time_is_refused(collector: CollectorProcess) -> None:
    collector.open(1)
    collector.send(wire.Open(run_id="y", folder=str(collector.folder), world_size=1))
    assert isinstance(collector.answers.get(timeout=20), wire.Refused)
    finish(collector, range(1))
    assert collector.seal().status == "passed"


class TestOverTcp:
    """Ranks on other nodes."""

    def test_a_rank_that_knows_the_secret(self, collector: CollectorProcess) -> None:
        collector.open(1, listen="127.0.0.1:0")
        finish(collector, range(1))
        until(lambda: (collector.folder / "events.jsonl").stat().st_size > 0, "the rank admitted")
        assert collector.seal().status == "passed"

    def test_strangers_are_shut_out_and_hold_nobody_up(self, collector: CollectorProcess) -> None:
        collector.open(1, listen="127.0.0.1:0")
        _, host, port = collector.address.split(":")
        silent = socket.create_connection((host, int(port)))
        wrong = socket.create_connection((host, int(port)))
        wrong.sendall(b"x" * 64 + life(0, 1))
        began = time.monotonic()
        rank = collector.connect()
        rank.sendall(encode(hello(0)))
        until(lambda: (collector.folder / "events.jsonl").stat().st_size > 0, "the rank admitted")
        assert time.monotonic() - began < 4
        rank.sendall(encode(end(0)))
        rank.close()
        result = collector.seal()
        silent.close()
        wrong.close()
        assert (result.status, result.rejected) == ("passed", 0)

    def test_a_rank_with_another_secret_is_told(self, collector: CollectorProcess) -> None:
        collector.open(1, listen="127.0.0.1:0")
        collector.secret = "another"
        with pytest.raises(ConnectionError, match="secret"):
            collector.connect()
        collector.seal()


def test_a_rank_leaves_when_its_collector_is_killed(collector: CollectorProcess) -> None:
    collector.open(1)
    code = "import time, launcher.emitter as e; e.connect(0); print('up', flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **collector.environment()},
    ) as rank:
        assert rank.stdout is not None
        assert rank.stdout.readline() == b"up\n"
        collector.process.kill()
        assert rank.wait(5) == COLLECTOR_GONE
