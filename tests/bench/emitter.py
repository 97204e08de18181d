"""What a span costs the step that emits it, beside writing a line of JSON to the socket oneself.

    python -m tests.bench.emitter [--bursts 200] [--spans 2000]

Both send to a process that reads and forgets; their bursts take turns in one run. `call` is the time of the
caller alone, the median over the bursts; `CPU` is what the whole process spends, the emitter's thread
included. Budget: 1.5 microseconds a call.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from launcher.emitter import Emitter
from tests.bench.launch import idle_share

BUDGET_US = 1.5
READER = "import os\nwhile os.read(0, 1 << 20): pass"


class Sink:
    """A socket whose other end is read by a process of its own."""

    def __init__(self) -> None:
        self.socket, other = socket.socketpair()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self._reader = subprocess.Popen([sys.executable, "-c", READER], stdin=other.fileno())
        other.close()

    def close(self) -> None:
        """Let the reader end."""
        self.socket.close()
        self._reader.wait()


def by_emitter(emitter: Emitter, spans: int) -> None:
    """Emit spans as `labs.comms` does for a collective."""
    now = time.monotonic_ns
    span = emitter.span
    for number in range(spans):
        span("comm", "all_reduce", now(), now(), step=3, bytes=65536, group="world", seq=number)


def by_hand(sink: socket.socket, spans: int) -> None:
    """Write the same facts as JSON, a line a span, to the socket itself."""
    now = time.monotonic_ns
    for number in range(spans):
        event = {
            "event": "span",
            "t": now(),
            "rank": 0,
            "t1": now(),
            "lane": "comm",
            "name": "all_reduce",
            "step": 3,
            "bytes": 65536,
            "group": "world",
            "seq": number,
        }
        sink.sendall(json.dumps(event).encode() + b"\n")


def clocked(work: Callable[[], None], after: Callable[[], object], spans: int) -> tuple[float, float]:
    """Microseconds a span: of the caller, and of this process's CPU until all of it is sent."""
    cpu, began = time.process_time(), time.perf_counter()
    work()
    took = time.perf_counter() - began
    after()
    return took / spans * 1e6, (time.process_time() - cpu) / spans * 1e6


def main() -> None:
    """Print the table; exit code 1 where the budget is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bursts", type=int, default=200)
    parser.add_argument("--spans", type=int, default=2000, help="in a burst")
    options = parser.parse_args()
    idle = idle_share()
    ours, theirs = Sink(), Sink()
    emitter = Emitter(0, ours.socket)
    found: dict[str, list[tuple[float, float]]] = {"emitter": [], "json.dumps, sendall": []}
    for _ in range(options.bursts):
        found["emitter"].append(
            clocked(lambda: by_emitter(emitter, options.spans), emitter.flush, options.spans)
        )
        found["json.dumps, sendall"].append(
            clocked(lambda: by_hand(theirs.socket, options.spans), lambda: None, options.spans)
        )
    emitter.close()
    ours.close()
    theirs.close()
    sys.stdout.write(f"microseconds a span, {options.bursts} bursts of {options.spans} ({idle:.0%} idle)\n")
    sys.stdout.write(f"{'':<22}{'call':>8}{'CPU':>8}\n")
    medians = {}
    for name, bursts in found.items():
        call, cpu = (statistics.median(column) for column in zip(*bursts, strict=True))
        medians[name] = call
        sys.stdout.write(f"{name:<22}{call:>8.2f}{cpu:>8.2f}\n")
    sys.stdout.write(f"dropped: {emitter.dropped}\n")
    sys.exit(1 if medians["emitter"] > BUDGET_US or emitter.dropped else 0)


if __name__ == "__main__":
    main()
