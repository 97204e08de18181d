"""The rank's end of the telemetry: events go into a buffer, a thread sends them, a step never waits.

The thread flushes every 50 ms, and at once for a failure, a check and the end. When the reader is too slow
and the buffer full, the oldest spans, scalars and samples are dropped and counted; nothing else ever is.
The same thread notices when the collector is gone (the rank leaves with it) and answers its requests.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Mapping

from launcher import channel
from launcher.events import (
    AnyEvent,
    Check,
    Dropped,
    End,
    Failure,
    Hello,
    Lane,
    Log,
    Phase,
    Sample,
    Scalar,
    Span,
    encode,
    encode_lines,
)
from launcher.rank import run as run_rank

FLUSH_S = 0.05
WAITING_AFTER_NS = 250_000_000
CAPACITY = 100_000
"""Events that may wait in memory: about 20 MB, a second of the fastest emission measured."""
CHUNK = 500
"""Events encoded in one go: the interpreter is taken from the step for less than half a millisecond."""
CLOSE_S = 10.0
"""How long a rank at its end waits for a reader that takes nothing: its checks and `end` may be unsent."""
PATIENCE = 10
"""A flush waits for a slow reader so many times as long as for one that takes nothing."""
COLLECTOR_GONE = 77
"""Exit code of a rank whose collector went away."""
_DROPPABLE = (Span, Scalar, Sample)
_URGENT = (Failure, Check, End, Hello)


class Emitter:
    """Sends one rank's events. Without a socket every method is a no-op, so labs need no second path."""

    def __init__(self, rank: int, connection: socket.socket | None = None, capacity: int = CAPACITY) -> None:
        self.rank = rank
        self.dropped = 0
        self._connection = connection
        self._capacity = capacity
        self._buffer: deque[AnyEvent] = deque()
        self._kept: deque[AnyEvent] = deque()
        self._pending: tuple[int, str, str, int] | None = None
        self._announced = False
        self._wake = threading.Event()
        self._sent = threading.Condition()
        self._in_flight = False
        self._moved = 0.0
        self._closing = False
        self._reported = 0
        self._main = threading.main_thread().ident or 0
        self._append = self._buffer.append
        if connection is not None:
            connection.setblocking(False)
            self._thread = threading.Thread(target=self._work, name="telemetry", daemon=True)
            self._thread.start()
            forget = weakref.WeakMethod(self._forget)
            os.register_at_fork(after_in_child=lambda: (method := forget()) and method())

    @property
    def connected(self) -> bool:
        """Whether events go anywhere."""
        return self._connection is not None

    def emit(self, event: AnyEvent) -> None:
        """Queue one event; urgent kinds are sent at once by the thread."""
        if self._connection is None:
            return
        self._append(event)
        if isinstance(event, _URGENT):
            self._wake.set()
        if len(self._buffer) > self._capacity:
            self._drop()

    def span(
        self,
        lane: Lane,
        name: str,
        t0: int,
        t1: int,
        *,
        step: int = -1,
        stage: int = -1,
        micro_batch: int = -1,
        action: str = "",
        bytes: int = -1,
        group: str = "",
        seq: int = -1,
        peer: int = -1,
        source: str = "",
    ) -> None:
        """Queue a span from `t0` to `t1` (ns); the rest are the fields of `Span`.

        They are spelt out because passing them on as `**fields` doubles what a span costs the step.
        """
        if self._connection is None:
            return
        self._append(
            Span(
                t=t0,
                rank=self.rank,
                t1=t1,
                lane=lane,
                name=name,
                step=step,
                stage=stage,
                micro_batch=micro_batch,
                action=action,
                bytes=bytes,
                group=group,
                seq=seq,
                peer=peer,
                source=source,
            )
        )
        if len(self._buffer) > self._capacity:
            self._drop()

    def waiting(self, name: str, group: str, seq: int) -> None:
        """Note that a collective begins; if it is still pending after 250 ms, the thread says so."""
        self._pending = (time.monotonic_ns(), name, group, seq)

    def arrived(self) -> None:
        """Note that the collective is over."""
        self._pending = None
        if self._announced:
            self._announced = False
            self.emit(Phase(t=time.monotonic_ns(), rank=self.rank, phase="running"))

    def flush(self, timeout_s: float = 2.0) -> bool:
        """Wait until all that was emitted is in the kernel; whether it is.

        Gives up when the reader has taken nothing for `timeout_s`: a slow one may take longer to take all.
        """
        if self._connection is None:
            return True
        began = time.monotonic()
        with self._sent:
            while self._buffer or self._kept or self._in_flight or self.dropped != self._reported:
                self._wake.set()
                if time.monotonic() >= min(max(began, self._moved), began + PATIENCE * timeout_s) + timeout_s:
                    return False
                self._sent.wait(0.02)
        return True

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Flush, end the thread and the connection."""
        if self._connection is None:
            return
        self.flush(timeout_s)
        self._closing = True
        self._wake.set()
        self._thread.join(timeout_s)
        self._connection.close()

    def _forget(self) -> None:
        """In a child that the rank has forked: it speaks for nobody, and must not keep the socket open."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _drop(self) -> None:
        """Make room: the oldest droppable events go, the others move to where nothing is dropped."""
        room = max(1, self._capacity // 100)
        while room and self._buffer:
            try:
                event = self._buffer.popleft()
            except IndexError:  # the thread took the rest meanwhile
                return
            if isinstance(event, _DROPPABLE):
                self.dropped += 1
                room -= 1
            else:
                self._kept.append(event)

    def _work(self) -> None:
        assert self._connection is not None
        watched = select.poll()
        watched.register(self._connection, select.POLLIN)
        unsent = b""
        while True:
            if not unsent:
                # At the same moments on all ranks of a node: the step that they share is disturbed once.
                self._wake.wait(FLUSH_S - time.monotonic() % FLUSH_S)
            self._wake.clear()
            self._announce()
            if watched.poll(0):
                self._hear()
            unsent = unsent or self._take()
            unsent = self._send(unsent)
            with self._sent:
                self._in_flight = bool(unsent)
                self._sent.notify_all()
            if self._closing and not unsent:
                return

    def _take(self) -> bytes:
        """Encode what waits, up to a chunk; kept events first, so that order within a kind holds."""
        self._in_flight = True
        events: list[AnyEvent] = []
        for waiting in (self._kept, self._buffer):
            while waiting and len(events) < CHUNK:
                try:
                    events.append(waiting.popleft())
                except IndexError:  # the step dropped it meanwhile
                    break
        count = self.dropped - self._reported
        if count:
            self._reported += count
            events.append(Dropped(t=time.monotonic_ns(), rank=self.rank, count=count))
        if len(events) >= CHUNK:
            self._wake.set()
        try:
            return encode_lines(events) if events else b""
        except Exception:  # one of them holds what JSON cannot: the others are sent all the same
            return b"".join(map(self._encode, events))

    def _encode(self, event: AnyEvent) -> bytes:
        try:
            return encode(event)
        except Exception as error:
            kind = type(event).__name__.lower()
            line = f"an event ({kind}) could not be sent: {error}"
            return encode(Log(t=time.monotonic_ns(), rank=self.rank, stream="stderr", line=line))

    def _send(self, data: bytes) -> bytes:
        """Send what the kernel takes, waiting at most a flush interval; return the rest."""
        assert self._connection is not None
        while data:
            try:
                data = data[self._connection.send(data) :]
                self._moved = time.monotonic()
            except BlockingIOError:
                writable = select.poll()
                writable.register(self._connection, select.POLLOUT)
                if not writable.poll(FLUSH_S * 1000):
                    return data
            except OSError:
                os._exit(COLLECTOR_GONE)
        return b""

    def _announce(self) -> None:
        pending = self._pending
        if pending is None or self._announced or time.monotonic_ns() - pending[0] < WAITING_AFTER_NS:
            return
        self._announced = True
        since, name, group, seq = pending
        self._append(Phase(t=since, rank=self.rank, phase="waiting", name=name, group=group, seq=seq))

    def _hear(self) -> None:
        assert self._connection is not None
        try:
            heard = self._connection.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:
            # Nobody records this run any more: a rank must not go on without its collector.
            os._exit(COLLECTOR_GONE)
        if b"stacks" in heard:
            self._send_stack()

    def _send_stack(self) -> None:
        """Say where the main thread is: how a hang in Python is told."""
        frame = sys._current_frames().get(self._main)
        if frame is None:
            return
        # From the rank's own first frame on: below it lie multiprocessing's and the agent's, of no interest.
        frames = list(traceback.walk_stack(frame))
        own = next((place for place, (one, _) in enumerate(frames) if one.f_code is run_rank.__code__), None)
        stack = "".join(traceback.StackSummary.extract(reversed(frames[:own])).format())
        now = time.monotonic_ns()
        for line in ("stack of the main thread:", *stack.rstrip().splitlines()):
            self._append(Log(t=now, rank=self.rank, stream="stderr", line=line))
        self._wake.set()


def connect(rank: int, environment: Mapping[str, str] = os.environ) -> Emitter:
    """Connect to the collector that the environment names; without one, an emitter that does nothing.

    Raises:
        ConnectionError: the address is there, but nobody answers or the secret is refused.
    """
    address = environment.get("WORLDSIZE_TELEMETRY", "")
    if not address:
        return Emitter(rank)
    connection = channel.connect(address, environment.get("WORLDSIZE_SECRET", ""))
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return Emitter(rank, connection)
