"""The collector: one process that reads every rank's telemetry and is the only writer of a run's folder.

It is a process of its own, started by the agent and used for many runs, because a record must be completed
whoever dies: when the app is killed the agent seals the run; when the agent is killed this process sees its
stdin end, drains the sockets and writes the result itself. It loads neither torch nor textual.

One thread, one selector: commands on stdin, the listening socket, one connection a rank. A second thread
samples utilisation and hands its events over by a queue.
"""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import signal
import socket
import sys
import threading
import time

import msgspec

from launcher import collector_protocol as protocol
from launcher.channel import prove
from launcher.recording import Recording, Wire

TICK_S = 0.05
DRAIN_S = 1.0


class Collector:
    """Serves one agent: opens a recording at its word, feeds it from the sockets, seals it."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.recording: Recording | None = None
        self._commands = b""
        self._told: set[int] = set()
        self._proven: queue.SimpleQueue[tuple[Recording, socket.socket]] = queue.SimpleQueue()
        os.set_blocking(0, False)
        self.selector.register(0, selectors.EVENT_READ, None)

    def serve(self) -> None:
        """Work until the agent's end of stdin closes."""
        while self._turn():
            pass
        if self.recording is not None:
            self._agent_lost(self.recording)

    def _turn(self) -> bool:
        """Wait for something to happen and deal with it; False at the end of stdin."""
        for key, _ in self.selector.select(TICK_S):
            if key.data is None:
                if not self._read_commands():
                    return False
            elif self.recording is not None:
                self._feed(self.recording, key.data)
        self._admit_proven()
        if self.recording is not None:
            self.recording.tick()
            self._tell(self.recording)
        return True

    def _feed(self, recording: Recording, source: object) -> None:
        if isinstance(source, Wire):
            if not recording.read(source):
                self._forget(recording, source)
        else:
            self._accept(recording)

    def _accept(self, recording: Recording) -> bool:
        """Take one connection that waits; False where none does.

        Over TCP the peer must know the run's secret (a unix socket lies in a private folder); a stranger
        may take his time over the handshake, so it has a thread of its own.
        """
        connection = recording.listener.accept()
        if connection is None:
            return False
        secret = recording.listener.secret
        if not secret:
            self._admit(recording, connection)
            return True

        def shake_hands() -> None:
            if prove(connection, secret, first=True):
                self._proven.put((recording, connection))
            else:
                connection.close()

        threading.Thread(target=shake_hands, name="handshake", daemon=True).start()
        return True

    def _admit(self, recording: Recording, connection: socket.socket) -> None:
        wire = recording.admit(connection)
        self.selector.register(connection, selectors.EVENT_READ, wire)

    def _admit_proven(self) -> None:
        while not self._proven.empty():
            recording, connection = self._proven.get()
            if recording is self.recording:
                self._admit(recording, connection)
            else:  # its run is over
                connection.close()

    def _forget(self, recording: Recording, wire: Wire) -> None:
        self.selector.unregister(wire.connection)
        recording.lose(wire)

    def _tell(self, recording: Recording) -> None:
        """Pass on at once, and once a rank, that a rank failed: the agent then ends the others."""
        for rank in recording.failed() - self._told:
            self._told.add(rank)
            self._answer(protocol.RankFailed(rank=rank))

    def _read_commands(self) -> bool:
        try:
            data = os.read(0, 1 << 16)
        except BlockingIOError:
            return True
        if not data:
            return False
        *lines, self._commands = (self._commands + data).split(b"\n")
        for line in lines:
            try:
                command = protocol.decode_command(line)
            except msgspec.MsgspecError as error:
                self._answer(protocol.Refused(message=f"unreadable command: {error}"))
            else:
                self._obey(command)
        return True

    def _obey(self, command: protocol.Command) -> None:
        match command:
            case protocol.Open():
                self._open(command)
            case protocol.Exits():
                if self.recording is not None:
                    self.recording.exited({int(rank): code for rank, code in command.codes.items()})
            case protocol.Stacks():
                if self.recording is not None:
                    self.recording.ask_for_stacks()
            case protocol.Ending():
                if self.recording is not None:
                    self.recording.ending = protocol.Seal(
                        status=command.status, exit_code=command.exit_code, reason=command.reason
                    )
            case protocol.Seal():
                if self.recording is None:
                    self._answer(protocol.Refused(message="no run is being recorded"))
                else:
                    self._seal(self.recording, command)

    def _open(self, command: protocol.Open) -> None:
        if self.recording is not None:
            self._answer(protocol.Refused(message=f"run {self.recording.run_id} is still being recorded"))
            return
        try:
            self.recording = Recording(command)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            self._answer(protocol.Refused(message=f"the run cannot be recorded: {error}"))
            return
        self._told = set()
        self.selector.register(self.recording.listener.socket, selectors.EVENT_READ, self.recording)
        self._answer(
            protocol.Opened(address=self.recording.listener.address, secret=self.recording.listener.secret)
        )

    def _seal(self, recording: Recording, command: protocol.Seal) -> None:
        self._drain(recording)
        result = recording.seal(command)
        self.recording = None
        self._answer(
            protocol.Sealed(exit_code=result.exit_code, events=result.events, dropped=result.dropped)
        )

    def _agent_lost(self, recording: Recording) -> None:
        """The agent is gone, and the system is killing its ranks: take what they still sent, and finish."""
        recording.agent_lost()
        self._drain(recording)
        recording.seal(recording.ending)

    def _drain(self, recording: Recording) -> None:
        """Read until every rank's connection has ended, at most `DRAIN_S`; then let go of the sockets."""
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline and self._accept(recording):
            pass  # ranks that came and went between two turns
        while recording.wires and time.monotonic() < deadline:
            for key, _ in self.selector.select(TICK_S):
                if isinstance(key.data, Wire):
                    self._feed(recording, key.data)
            recording.tick()
        for wire in list(recording.wires):
            self._forget(recording, wire)
        self.selector.unregister(recording.listener.socket)

    def _answer(self, answer: protocol.Answer) -> None:
        with contextlib.suppress(OSError):  # an agent that is gone shows at stdin
            os.write(1, protocol.encode(answer) + b"\n")


def main() -> None:
    """Serve on stdin and stdout. Signals for the terminal's group are not for this process."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.stdout = sys.stderr
    Collector().serve()


if __name__ == "__main__":
    main()
