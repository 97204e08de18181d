"""One run while it is recorded: its listening socket, its ranks' connections, its files and its verdict."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import time
from pathlib import Path

import msgspec

from launcher import collector_protocol as protocol
from launcher import rundir, verdict
from launcher.channel import Listener
from launcher.events import AnyEvent, End, Failure, FailureKind, Hello, Status, decode, encode
from launcher.intake import MAX_LINE, Lines
from launcher.lifeline import Heir
from launcher.logtail import LogTail
from launcher.record import RecordWriter
from launcher.record_index import IndexWriter
from launcher.rundir import Result
from launcher.sampler import Sampler

READ_SIZE = 1 << 18
LOGS_EVERY_S = 0.05
REJECTED_LINE = 2_000
REJECTED_TOTAL = 1 << 20
RESERVE_BYTES = 1 << 17


_N = b'"n":'
_BRACE = ord("{")


class Wire:
    """One connection of a rank; whose it is shows with the first event."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.lines = Lines()
        self.rank: int | None = None


class Recording:
    """The files and facts of one run.

    Raises:
        OSError: the folder cannot be written or the address cannot be bound.
        ValueError: the address to listen on is malformed.
        msgspec.MsgspecError: the folder's manifest is damaged.
    """

    def __init__(self, command: protocol.Open) -> None:
        self.run_id = command.run_id
        self.folder = Path(command.folder)
        self.requested_ns = command.requested_ns or time.monotonic_ns()
        self.manifest = rundir.read_manifest(self.folder)
        self.verdict = verdict.Verdict(command.world_size)
        self.wires: list[Wire] = []
        self.ending = protocol.Seal(reason="the launcher agent was killed")
        """How to seal the run, should the agent be lost."""
        self._world_size = command.world_size
        self._n = 0
        self._rejected_bytes = 0
        self._next_logs = 0.0
        # Real bytes, not zeros that a file system may keep as a hole: room for the result on a full disk.
        (self.folder / rundir.RESERVE).write_bytes(os.urandom(RESERVE_BYTES))
        self._writer = RecordWriter(self.folder / rundir.EVENTS)
        self._index = IndexWriter(self.folder)
        self.listener = Listener(command.listen)
        self._heir = Heir()
        self._logs = LogTail(self.folder, command.world_size)
        self._samples: queue.SimpleQueue[AnyEvent] = queue.SimpleQueue()
        self._sampler = Sampler(self._samples.put)
        self._sampler.start()

    def admit(self, connection: socket.socket) -> Wire:
        """Take a rank's connection in."""
        self._heir.watch(connection)
        connection.setblocking(False)
        wire = Wire(connection)
        self.wires.append(wire)
        return wire

    def read(self, wire: Wire) -> bool:
        """Read what a rank has sent; False when its connection has ended."""
        try:
            data = wire.connection.recv(READ_SIZE)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        for line in wire.lines.feed(data):
            self._take(wire, line)
        for beginning in wire.lines.take_overlong():
            self._reject(beginning, f"longer than {MAX_LINE} bytes")
        return True

    def lose(self, wire: Wire) -> None:
        """A connection ended: half a line is rejected, a rank that had not said goodbye has vanished."""
        if rest := wire.lines.rest():
            self._reject(rest, "broken off")
        self.wires.remove(wire)
        wire.connection.close()
        if any(other.rank == wire.rank for other in self.wires):
            return
        evidence = self.verdict.evidence
        spoke = wire.rank in evidence.ended or wire.rank in {f.rank for f in evidence.failures}
        if wire.rank is not None and not spoke:
            evidence.vanished.setdefault(wire.rank, time.monotonic_ns())

    def tick(self) -> None:
        """Take in samples and log lines, and bring the record on disk up to date."""
        while not self._samples.empty():
            self.record(self._samples.get())
        if time.monotonic() >= self._next_logs:
            self._next_logs = time.monotonic() + LOGS_EVERY_S
            for event in self._logs.read():
                self.record(event)
        if self._writer.write():
            self._index.write()
        else:
            self.verdict.evidence.disk = str(self._writer.error)

    def record(self, event: AnyEvent) -> None:
        """Add an event that comes from no rank's socket: a sample, a log line, the end."""
        self._add(encode(event)[:-1], event)

    def failed(self) -> set[int]:
        """Ranks that failed or vanished so far; -1 where the disk refused."""
        evidence = self.verdict.evidence
        disk = {-1} if evidence.disk else set()
        return {failure.rank for failure in evidence.failures} | set(evidence.vanished) | disk

    def exited(self, codes: dict[int, int]) -> None:
        """Note how ranks ended, as the launcher saw it."""
        self.verdict.evidence.exit_codes.update(codes)

    def agent_lost(self) -> None:
        """Note that the launcher is gone, and end what the system does not end with it.

        One that was ending the run already was killed for being slow: that is no failure of the run.
        """
        self.verdict.evidence.agent_lost = self.ending.status is None
        self._heir.end()

    def ask_for_stacks(self) -> None:
        """Have every connected rank send the stack of its main thread."""
        for wire in self.wires:
            with contextlib.suppress(OSError):  # a rank that takes nothing any more cannot answer either
                wire.connection.send(b'{"request":"stacks"}\n')

    def seal(self, command: protocol.Seal) -> Result:
        """Write the end of the record and `result.json`; every socket is closed by then."""
        self._sampler.stop()
        self.listener.close()
        self.verdict.evidence.timed_out = command.timed_out
        for event in self._logs.finish():
            self.record(event)
        self.tick()
        self._tell_failure(command.status)
        result = self._result(command)
        self.record(End(t=time.monotonic_ns(), rank=-1, status=result.status, exit_code=result.exit_code))
        self._writer.close()
        self._index.write()
        if self._writer.error is not None:
            self.verdict.evidence.disk = str(self._writer.error)
        result = self._result(command)
        with contextlib.suppress(OSError):  # not even the reserve was enough: the record is what is left
            verdict.write_result(self.folder, result)
        return result

    def _result(self, command: protocol.Seal) -> Result:
        return self.verdict.result(
            self.manifest,
            self.folder,
            self.requested_ns,
            time.monotonic_ns(),
            command.status,
            command.exit_code,
            command.reason,
        )

    def _tell_failure(self, status: Status | None) -> None:
        """Put into the record the failure that no rank could report itself, for whoever replays it."""
        found = self.verdict.failure(status)
        reported = {failure.rank for failure in self.verdict.evidence.failures if not failure.victim}
        if found is None or found.rank in reported:
            return
        self.record(
            Failure(
                t=time.monotonic_ns(),
                rank=found.rank,
                kind=msgspec.convert(found.kind, FailureKind),
                message=found.message,
                collective=found.collective,
                traceback=found.traceback,
                advice=found.advice,
            )
        )

    def _take(self, wire: Wire, line: bytes) -> None:
        """Take one line of a connection: an event of the one rank that it speaks for, or rejected."""
        try:
            event = decode(line)
            if not line.isascii():
                line.decode()  # fields that msgspec does not know, it does not look into
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._reject(line, str(error))
            return
        if event.rank != wire.rank:
            if wire.rank is not None or not 0 <= event.rank < self._world_size:
                self._reject(line, f"an event of rank {event.rank} does not belong here")
                return
            wire.rank = event.rank
        if isinstance(event, Hello):
            self._sampler.watch(event)
        if line.find(_N) >= 0 or line[0] != _BRACE:  # its own number would override the one in front
            line = encode(msgspec.structs.replace(event, n=0))[:-1]
        self._add(line, event)

    def _add(self, line: bytes, event: AnyEvent) -> None:
        """Append the bytes as they came, the arrival number in front: decoding is for checking only."""
        self._n += 1
        text = b'{"n":%d,%b\n' % (self._n, line[1:])
        self._writer.add(text)
        self._index.add(len(text), event)
        self.verdict.add(event)

    def _reject(self, line: bytes, reason: str) -> None:
        """Count a line that is no event and keep its beginning, as long as there is room for it."""
        self.verdict.rejected += 1
        kept = line[:REJECTED_LINE].decode("utf-8", "backslashreplace")
        entry = msgspec.json.encode({"reason": reason, "bytes": len(line), "line": kept}) + b"\n"
        if self._rejected_bytes + len(entry) > REJECTED_TOTAL:
            return
        self._rejected_bytes += len(entry)
        with contextlib.suppress(OSError), (self.folder / rundir.REJECTED).open("ab") as file:
            file.write(entry)
