"""A real collector process driven as the agent drives it, and sockets that speak as ranks do."""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launcher import channel
from launcher import collector_protocol as wire
from launcher.events import AnyEvent, End, Hello, Phase, encode
from launcher.record import read_record
from launcher.rundir import EVENTS, Result, read_result, write_manifest
from tests.manifests import manifest

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 30.0


def until(condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
    """Poll `condition` until it gives something true and return that."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"after {timeout_s} s still not: {what}"
        time.sleep(0.005)
    return value


class CollectorProcess:
    """A collector with one open run after another in `folder`."""

    def __init__(self, folder: Path, prefix: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.answers: queue.SimpleQueue[wire.Answer | None] = queue.SimpleQueue()
        self.failed: list[int] = []
        self.address = ""
        self.secret = ""
        self._temp = tempfile.TemporaryDirectory(prefix="worldsize-", dir=channel.temporary_root())
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "launcher.collector"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": self._temp.name},
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                answer = wire.decode_answer(line)
                if isinstance(answer, wire.RankFailed):
                    self.failed.append(answer.rank)
                else:
                    self.answers.put(answer)
        self.answers.put(None)

    def send(self, command: wire.Command) -> None:
        """Write one command."""
        assert self.process.stdin is not None
        self.process.stdin.write(wire.encode(command) + b"\n")
        self.process.stdin.flush()

    def open(self, world_size: int = 2, listen: str = "") -> None:
        """Open a run in the folder."""
        self.folder.mkdir(exist_ok=True)
        write_manifest(self.folder, manifest("test", world_size, "test-run"))
        now = time.monotonic_ns()
        self.send(
            wire.Open(
                run_id="test-run",
                folder=str(self.folder),
                world_size=world_size,
                listen=listen,
                requested_ns=now,
            )
        )
        opened = self.answers.get(timeout=PATIENCE_S)
        assert isinstance(opened, wire.Opened), opened
        self.address, self.secret = opened.address, opened.secret

    def connect(self) -> socket.socket:
        """Connect as a rank does."""
        return channel.connect(self.address, self.secret)

    def environment(self) -> dict[str, str]:
        """The variables by which a rank finds the collector."""
        return {"WORLDSIZE_TELEMETRY": self.address, "WORLDSIZE_SECRET": self.secret}

    def seal(self, **how: Any) -> Result:
        """Seal the run and return its result."""
        self.send(wire.Seal(**how))
        sealed = self.answers.get(timeout=PATIENCE_S)
        assert isinstance(sealed, wire.Sealed), sealed
        result = read_result(self.folder)
        assert result is not None
        assert sealed.exit_code == result.exit_code
        return result

    def events(self) -> list[AnyEvent]:
        """The record, every line of which must be an event, numbered without a gap."""
        data = (self.folder / EVENTS).read_bytes()
        found = read_record(self.folder / EVENTS)
        assert len(found) == data.count(b"\n")
        assert data == b"" or data.endswith(b"\n")
        assert [event.n for event in found] == list(range(1, len(found) + 1))
        return found

    def close(self) -> None:
        """End the process as its agent does."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self._temp.cleanup()


def hello(rank: int, world_size: int = 2) -> Hello:
    """The first event of a rank: this process."""
    return Hello(
        t=time.monotonic_ns(),
        rank=rank,
        world_size=world_size,
        local_rank=rank,
        node=os.uname().nodename,
        pid=os.getpid(),
        device="cpu",
        backend="gloo",
    )


def end(rank: int) -> End:
    """The last event of a rank that came to its lab's end."""
    return End(t=time.monotonic_ns(), rank=rank, status="passed", exit_code=0)


def life(rank: int, world_size: int = 2) -> bytes:
    """All that a rank sends whose lab has nothing to say."""
    ready = Phase(t=time.monotonic_ns(), rank=rank, phase="ready")
    return encode(hello(rank, world_size)) + encode(ready) + encode(end(rank))


def finish(collector: CollectorProcess, ranks: range) -> None:
    """Let these ranks come and end in good order."""
    for rank in ranks:
        with collector.connect() as connection:
            connection.sendall(life(rank))
