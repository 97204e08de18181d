"""How many events a second a collector takes from 8 ranks into the record, beside a loop that only appends.

    python -m tests.bench.collector [--ranks 8] [--events 100000] [--rounds 3]

The ranks are processes that send ready-made lines as fast as the socket takes them. The collector checks,
numbers, folds and records each; the plain loop reads the same sockets with the same selector and appends
what it got. Both take turns in one run; the best round of each is printed, since other work on the machine
only ever slows one down. Budget: 100,000 events a second, none lost.
"""

from __future__ import annotations

import argparse
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from launcher.channel import Listener
from launcher.events import Scalar, Span, encode
from tests.bench.launch import idle_share
from tests.telemetry.harness import ROOT, CollectorProcess, end, hello

BUDGET = 100_000
READ_SIZE = 1 << 18


class Round(NamedTuple):
    """One round: events sent, events that arrived, seconds from the first byte to the last."""

    sent: int
    arrived: int
    seconds: float

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.arrived / self.seconds


def story(rank: int, ranks: int, count: int) -> bytes:
    """All that a rank sends: hello, spans with a scalar now and then, its end."""
    parts = [encode(hello(rank, ranks))]
    for number in range(count - 2):
        if number % 10 == 9:
            parts.append(encode(Scalar(t=number, rank=rank, name="loss", value=0.25, step=number)))
            continue
        span = Span(
            t=number, rank=rank, t1=number + 1, lane="comm", name="all_reduce", step=number // 20,
            bytes=65536, group="world", seq=number,
        )  # fmt: skip
        parts.append(encode(span))
    return b"".join([*parts, encode(end(rank))])


def send() -> None:
    """Be a rank: connect to `unix:PATH`, wait for the word on stdin, send a file, leave."""
    _, _, address, file = sys.argv
    data = Path(file).read_bytes()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(address.removeprefix("unix:"))
        sys.stdout.write("connected\n")
        sys.stdout.flush()
        sys.stdin.readline()
        connection.sendall(data)


class Senders:
    """One process a rank, all connected and waiting for the word."""

    def __init__(self, address: str, files: list[Path]) -> None:
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.bench.collector", "send", address, str(file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
            )
            for file in files
        ]

    def wait_until_connected(self) -> None:
        """Wait for each to say so."""
        for process in self.processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"connected\n"

    def go(self) -> None:
        """Give the word."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.close()

    def ended(self) -> None:
        """Wait until all have sent everything."""
        for process in self.processes:
            assert process.wait() == 0


def through_collector(folder: Path, files: list[Path], sent: int) -> Round:
    """Into a record, by a collector process; timed until the record holds the last line."""
    collector = CollectorProcess(folder)
    collector.open(len(files))
    senders = Senders(collector.address, files)
    senders.wait_until_connected()
    began = time.perf_counter()
    senders.go()
    senders.ended()
    result = collector.seal()
    seconds = time.perf_counter() - began
    own = [event for event in collector.events() if event.rank < 0]
    collector.close()
    assert (result.status, result.rejected, result.dropped) == ("passed", 0, 0), result
    return Round(sent, result.events - len(own), seconds)


def through_plain_loop(folder: Path, files: list[Path], sent: int) -> Round:
    """Into a file, by a process that only reads and appends."""
    folder.mkdir()
    listener = Listener()
    record = folder / "lines"
    reader = os.fork()
    if reader == 0:
        append(listener, record, len(files))
        os._exit(0)
    senders = Senders(listener.address, files)
    senders.wait_until_connected()
    began = time.perf_counter()
    senders.go()
    senders.ended()
    os.waitpid(reader, 0)
    seconds = time.perf_counter() - began
    listener.close()
    return Round(sent, record.read_bytes().count(b"\n"), seconds)


def append(listener: Listener, record: Path, ranks: int) -> None:
    """Read the sockets of so many ranks until all have ended, and append what they send to a file."""
    ended = 0
    with selectors.DefaultSelector() as selector, record.open("wb", buffering=0) as file:
        selector.register(listener.socket, selectors.EVENT_READ)
        while ended < ranks:
            for key, _ in selector.select():
                if key.fileobj is listener.socket:
                    if (connection := listener.accept()) is not None:
                        selector.register(connection, selectors.EVENT_READ)
                    continue
                assert isinstance(key.fileobj, socket.socket)
                if data := key.fileobj.recv(READ_SIZE):
                    file.write(data)
                else:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                    ended += 1


def main() -> None:
    """Print the table; exit code 1 where the budget is missed or an event is lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--events", type=int, default=100_000, help="of each rank")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    idle = idle_share()
    ways = {"collector": through_collector, "plain loop": through_plain_loop}
    rounds: dict[str, list[Round]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as temp:
        files = [Path(temp) / f"rank{rank}" for rank in range(options.ranks)]
        for rank, file in enumerate(files):
            file.write_bytes(story(rank, options.ranks, options.events))
        for number in range(options.rounds):
            for name, way in ways.items():
                folder = Path(temp) / f"{name}{number}"
                rounds[name].append(way(folder, files, options.ranks * options.events))
    sys.stdout.write(
        f"{options.ranks} ranks, {options.events:,} events each ({idle:.0%} of the cores idle)\n"
    )
    sys.stdout.write(f"{'':<12}{'events/s':>12}{'lost':>8}\n")
    for name, found in rounds.items():
        lost = sum(each.sent - each.arrived for each in found)
        sys.stdout.write(f"{name:<12}{max(each.rate for each in found):>12,.0f}{lost:>8}\n")
    ours = rounds["collector"]
    missed = max(each.rate for each in ours) < BUDGET or any(each.sent != each.arrived for each in ours)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    send() if sys.argv[1:2] == ["send"] else main()
