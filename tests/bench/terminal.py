"""What the app costs on a remote terminal: bytes a second, a share of a core, how soon a key is answered.

    python -m tests.bench.terminal [--seconds 10] [--keys 20]

The app follows a run of 8 ranks that this program writes, ten steps a second, on a pseudo-terminal of 120x40
and of 80x24; idle is the same run at its end. Budgets: 20 KB/s, 10 % of a core, a key within 50 ms; idle
writes nothing. Then a reader takes 10 KB/s: no event may be missed, the run not be slowed, and a key be
answered within a second.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from launcher.events import AnyEvent, encode
from launcher.rundir import EVENTS, RESULT, Manifest, to_json, write_manifest
from tests.app.recording import STEP_MS, _step, dp_events, manifest_of, result_of
from tests.terminal import Terminal

BYTES_A_SECOND = 20_000
CORE_SHARE = 0.10
KEY_S = 0.050
SLOW_KEY_S = 1.0
SLOW_BYTES_A_SECOND = 10_000
SLOW_CHUNK = 500
STEPS_A_SECOND = 10
STEPS = 100_000
SIZES = ((120, 40), (80, 24))
WORKBENCH = (sys.executable, "-m", "workbench")


class Cost(NamedTuple):
    """What was measured in one situation."""

    bytes_a_second: float
    core_share: float
    key_s: float
    worst_key_s: float


class Run(threading.Thread):
    """Writes a run of 8 ranks as it goes on; `late_s` is how far it fell behind its own pace at most."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self.manifest: Manifest = manifest_of("dp")
        self.late_s = 0.0
        self.step = 0
        self._n = 0
        self._over = threading.Event()
        folder.mkdir(parents=True)
        write_manifest(folder, self.manifest)
        self._write(dp_events(self.manifest, steps=1, end=False, total=STEPS))

    def run(self) -> None:
        """Write a step every so often until told to end."""
        begin = time.monotonic()
        while not self._over.wait(max(0.0, begin + self.step / STEPS_A_SECOND - time.monotonic())):
            self.step += 1
            self._write(list(_step(self.manifest.world_size, self.step, STEPS)))
            self.late_s = max(self.late_s, time.monotonic() - begin - self.step / STEPS_A_SECOND)

    def end(self) -> None:
        """Let the run end."""
        self._over.set()
        self.join()
        (self.folder / RESULT).write_bytes(to_json(result_of(self.manifest, [])))

    def _write(self, events: Sequence[AnyEvent]) -> None:
        with (self.folder / EVENTS).open("ab") as file:
            for event in events:
                self._n += 1
                file.write(b'{"n":%d,%b' % (self._n, encode(event)[1:]))


def key_latency(terminal: Terminal, count: int) -> list[float]:
    """Return how long the key that holds the view took until the header said so, for each press."""
    took = []
    for _ in range(count):
        since = len(terminal.written)
        begin = time.monotonic()
        terminal.send(b" ")
        took.append(terminal.until("view held", since=since) - begin)
        terminal.send(b" ")
        terminal.drain(0.6)
    return took


def measure(terminal: Terminal, seconds: float, keys: int) -> Cost:
    """Watch the app for so long without a key, then press some."""
    process = psutil.Process(terminal.process.pid)
    before, begin = process.cpu_times(), time.monotonic()
    written = terminal.drain(seconds)
    after, took = process.cpu_times(), time.monotonic() - begin
    busy = after.user + after.system - before.user - before.system
    latencies = key_latency(terminal, keys) if keys else [0.0]
    return Cost(written / took, busy / took, statistics.median(latencies), max(latencies))


def at(size: tuple[int, int], seconds: float, keys: int) -> tuple[Cost, Cost]:
    """Return the costs of a run in progress and of the same run at its end."""
    with tempfile.TemporaryDirectory() as temp:
        run = Run(Path(temp) / "dp-1")
        run.start()
        with Terminal([*WORKBENCH, "--attach", str(run.folder), "--no-mouse"], *size) as terminal:
            terminal.until(f"/{STEPS}")
            terminal.drain(2.0)
            running = measure(terminal, seconds, keys)
            run.end()
            terminal.until("passed")
            while terminal.drain(4.0):
                pass
            idle = measure(terminal, seconds, 0)
            terminal.send(b"q")
            terminal.wait()
    return running, idle


class Slow(NamedTuple):
    """What a slow link makes of it."""

    key_s: float
    late_s: float
    behind_steps: int


def slow_link(seconds: float, keys: int) -> Slow:
    """Read 10 KB/s; at the end the app must have seen every step that was written."""
    with tempfile.TemporaryDirectory() as temp:
        run = Run(Path(temp) / "dp-1")
        run.start()
        with Terminal([*WORKBENCH, "--attach", str(run.folder), "--no-mouse"], 120, 40) as terminal:
            slowly(terminal, 3.0 + seconds)
            worst = 0.0
            for _ in range(keys):
                since, begin = len(terminal.written), time.monotonic()
                terminal.send(b" ")
                while b"view held" not in terminal.written[since:] and time.monotonic() < begin + 20:
                    slowly(terminal, SLOW_CHUNK / SLOW_BYTES_A_SECOND)
                worst = max(worst, time.monotonic() - begin)
                terminal.send(b" ")
                slowly(terminal, 1.5)
            run.end()
            step = run.step
            terminal.until("passed")
            late = run.late_s
            terminal.send(b"q")
            terminal.wait()
    return Slow(worst, late, step)


def slowly(terminal: Terminal, seconds: float) -> None:
    """Read at the pace of a slow link for so long."""
    begin, taken = time.monotonic(), 0
    while (now := time.monotonic()) < begin + seconds:
        wait = begin + taken / SLOW_BYTES_A_SECOND - now
        if wait > 0:
            time.sleep(min(wait, seconds))
        taken += max(1, len(terminal.read(0.02, SLOW_CHUNK)))


def verdict(name: str, value: float, budget: float, form: str) -> bool:
    """Print one line; returns whether the budget holds."""
    held = value <= budget
    print(f"  {'ok' if held else '!!'}  {name:<28}{form.format(value):>12}   budget {form.format(budget)}")
    return held


def main() -> int:
    """Measure everything; returns 1 where a budget does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--keys", type=int, default=20)
    options = parser.parse_args()
    held = []
    for size in SIZES:
        running, idle = at(size, options.seconds, options.keys)
        print(
            f"{size[0]}x{size[1]}, 8 ranks, a step each {1000 // STEPS_A_SECOND} ms (recorded {STEP_MS} ms)"
        )
        held += [
            verdict("running: bytes/s", running.bytes_a_second, BYTES_A_SECOND, "{:.0f}"),
            verdict("running: share of a core", running.core_share, CORE_SHARE, "{:.1%}"),
            verdict("running: key, median s", running.key_s, KEY_S, "{:.3f}"),
            verdict("idle: bytes/s", idle.bytes_a_second, 0, "{:.0f}"),
            verdict("idle: share of a core", idle.core_share, 0.02, "{:.1%}"),
        ]
        print(f"      worst key {running.worst_key_s:.3f} s")
    slow = slow_link(options.seconds, max(3, options.keys // 4))
    print(f"a reader of {SLOW_BYTES_A_SECOND} bytes/s")
    held += [
        verdict("worst key, s", slow.key_s, SLOW_KEY_S, "{:.3f}"),
        verdict("the run is late by, s", slow.late_s, 0.5, "{:.3f}"),
    ]
    return 0 if all(held) else 1


if __name__ == "__main__":
    raise SystemExit(main())
