"""The emitter against readers that are slow, stopped or curious: a step never waits, what matters arrives."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from launcher.emitter import Emitter, connect
from launcher.events import AnyEvent, Check, Dropped, End, Failure, Log, Scalar, Shard, Span
from tests.telemetry.harness import CollectorProcess, end, finish, hello, until

SPANS = 20_000
CAPACITY = 5_000
"""Small against the spans, and against what fits into the kernel's buffer (about 2,000 spans)."""


def emit_spans(emitter: Emitter, first: int, stop: int) -> None:
    """Emit one span a number, which is its start, with a check and a shard after each thousand."""
    for number in range(first, stop):
        emitter.span("compute", "forward", number, number + 1, step=number)
        if number % 1_000 == 0:
            emitter.emit(Check(t=number, rank=0, name=f"check {number}", passed=True))
            emitter.emit(
                Shard(t=number, rank=0, tensor="w", kind="parameter", global_shape=(4,), slices=((0, 2),))
            )


def times(events: list[AnyEvent], kind: type[Any]) -> list[int]:
    """The times of the events of one kind, in the order of the record."""
    return [event.t for event in events if isinstance(event, kind)]


def test_a_stopped_collector_holds_nobody_up_and_gets_what_matters(collector: CollectorProcess) -> None:
    """Emitting returns while nobody reads: were it to wait, it would wait for ever."""
    collector.open()
    emitter = Emitter(0, collector.connect(), capacity=CAPACITY)
    emitter.emit(hello(0))
    assert emitter.flush()
    os.kill(collector.process.pid, signal.SIGSTOP)
    try:
        emit_spans(emitter, 0, SPANS)
        emitter.emit(Failure(t=SPANS, rank=0, kind="exception", message="late", traceback="tb"))
        emitter.emit(end(0))
        assert not emitter.flush(0.2), "the reader is stopped"
        assert emitter.dropped > 0
    finally:
        os.kill(collector.process.pid, signal.SIGCONT)
    emitter.close()
    finish(collector, range(1, 2))
    result = collector.seal()
    events = collector.events()
    mine = [event for event in events if event.rank == 0]
    spans = times(mine, Span)
    dropped = sum(event.count for event in mine if isinstance(event, Dropped))
    assert dropped == emitter.dropped == result.dropped
    assert len(spans) + dropped == SPANS
    assert spans == sorted(spans)
    newest = CAPACITY * 9 // 10
    assert spans[-newest:] == list(range(SPANS - newest, SPANS)), "the oldest are dropped, not the newest"
    assert times(mine, Check) == times(mine, Shard) == list(range(0, SPANS, 1_000))
    assert [event.message for event in mine if isinstance(event, Failure)] == ["late"]
    assert len([event for event in mine if isinstance(event, End)]) == 1
    assert result.failure is not None
    assert (result.failure.rank, result.failure.message) == (0, "late")


@pytest.fixture
def pair() -> Iterator[tuple[Emitter, socket.socket]]:
    """An emitter of rank 3, and the other end of its socket."""
    mine, other = socket.socketpair()
    other.settimeout(20)
    emitter = Emitter(3, mine)
    yield emitter, other
    emitter.close(0.1)
    other.close()


def lines(reader: socket.socket, count: int) -> list[dict[str, Any]]:
    """The next so many lines from an emitter."""
    with reader.makefile("rb") as file:
        return [json.loads(file.readline()) for _ in range(count)]


def test_without_a_collector_everything_is_a_no_op() -> None:
    emitter = connect(0, {})
    emitter.span("comm", "all_reduce", 1, 2)
    emitter.emit(end(0))
    emitter.waiting("all_reduce", "world", 0)
    emitter.arrived()
    assert emitter.flush()
    emitter.close()
    assert not emitter.connected


def test_nobody_at_the_address_is_told() -> None:
    with pytest.raises(ConnectionError, match=r"no collector at unix:/nowhere"):
        connect(0, {"WORLDSIZE_TELEMETRY": "unix:/nowhere"})


def test_an_event_that_is_no_json_is_told_and_the_others_are_sent(
    pair: tuple[Emitter, socket.socket],
) -> None:
    emitter, reader = pair
    emitter.emit(Scalar(t=1, rank=3, name="bad", value=object()))  # type: ignore[arg-type]
    emitter.emit(Scalar(t=2, rank=3, name="good", value=2.0))
    found = lines(reader, 2)
    assert [line["event"] for line in found] == ["log", "scalar"]
    assert "an event (scalar) could not be sent" in found[0]["line"]


def test_a_collective_that_is_pending_is_told_and_its_end_too(pair: tuple[Emitter, socket.socket]) -> None:
    emitter, reader = pair
    emitter.waiting("all_reduce", "world", 4)
    (waiting,) = lines(reader, 1)
    assert (waiting["phase"], waiting["name"], waiting["seq"]) == ("waiting", "all_reduce", 4)
    emitter.arrived()
    (running,) = lines(reader, 1)
    assert running["phase"] == "running"
    emitter.waiting("all_reduce", "world", 5)
    emitter.arrived()
    emitter.emit(end(3))
    (last,) = lines(reader, 1)
    assert last["event"] == "end", "a collective that was short is not told"


def test_asked_for_its_stack_it_says_where_the_main_thread_is(pair: tuple[Emitter, socket.socket]) -> None:
    _, reader = pair
    reader.sendall(b'{"request":"stacks"}\n')
    with reader.makefile("rb") as file:
        told = [json.loads(file.readline())["line"]]
        while "test_asked_for_its_stack" not in told[-1]:
            told.append(json.loads(file.readline())["line"])
    assert told[0] == "stack of the main thread:"


def test_a_forked_child_speaks_for_nobody(pair: tuple[Emitter, socket.socket]) -> None:
    emitter, reader = pair
    child = os.fork()
    if child == 0:
        emitter.emit(end(3))
        os._exit(0 if emitter.flush() and not emitter.connected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    emitter.emit(Log(t=1, rank=3, stream="stdout", line="mine"))
    (first,) = lines(reader, 1)
    assert first["event"] == "log"


def test_closing_waits_for_a_reader_that_is_slow(pair: tuple[Emitter, socket.socket]) -> None:
    """It takes a little at a time, with the buffer full behind it: the end is not lost."""
    emitter, reader = pair
    for number in range(8_000):
        emitter.span("compute", "forward", number, number + 1)
    emitter.emit(end(3))
    assert not emitter.flush(0.05)
    tail = b""

    def ended() -> bool:
        nonlocal tail
        tail = (tail + reader.recv(1 << 16))[-1_000:]
        return b'"event":"end"' in tail

    until(ended, "the end")
    assert emitter.flush()
    assert emitter.dropped == 0
