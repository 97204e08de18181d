"""A long record and many ranks in the app: how soon the first frame stands, memory, keys while it is read.

    python -m tests.bench.scale [--events 1000000]

The record is made as the collector leaves it, its index beside it. The app opens it on a pseudo-terminal of
120x40. Budgets for 1,000,000 events: the first frame, with the verdict, 2 s after the app itself is there;
less than 300 MB; a key within 0.25 s while the record is read. Then the same for 64 ranks with a tenth of it.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from launcher.events import AnyEvent, encode
from launcher.record_index import IndexWriter
from launcher.rundir import EVENTS, RESULT, to_json, write_manifest
from tests.app.recording import _end, _step, dp_events, manifest_of, result_of
from tests.bench.terminal import WORKBENCH, verdict
from tests.terminal import Terminal

FRAME_S = 2.0
MEMORY_MB = 300
KEY_S = 0.25
EVENTS_A_RANK_AND_STEP = 7
WHOLE_S = 300.0


def make(folder: Path, ranks: int, count: int) -> int:
    """Write a finished run of about `count` events; returns how many there are."""
    folder.mkdir(parents=True)
    manifest = manifest_of("dp", ranks)
    write_manifest(folder, manifest)
    index = IndexWriter(folder)
    steps = max(2, count // (EVENTS_A_RANK_AND_STEP * ranks))
    number = 0
    with (folder / EVENTS).open("wb") as file:

        def put(events: list[AnyEvent]) -> None:
            nonlocal number
            for event in events:
                number += 1
                line = b'{"n":%d,%b' % (number, encode(event)[1:])
                file.write(line)
                index.add(len(line), event)

        put(dp_events(manifest, steps=1, end=False, total=steps))
        for step in range(1, steps):
            put(list(_step(ranks, step, steps)))
        end = list(_end(ranks, steps))
        put(end)
    index.write()
    (folder / RESULT).write_bytes(to_json(result_of(manifest, end)))
    return number


def start_s() -> float:
    """Return how long this machine needs now until the app's modules are loaded."""
    begin = time.monotonic()
    subprocess.run([sys.executable, "-c", "import workbench.app"], check=True)
    return time.monotonic() - begin


def opened(folder: Path, keys: int) -> tuple[float, list[float], float, float]:
    """Return seconds to the first frame, times of keys while it is read, seconds to the whole, MB at most."""
    begin = time.monotonic()
    most = 0.0
    with Terminal([*WORKBENCH, "--replay", str(folder), "--no-mouse"], 120, 40) as terminal:
        first = terminal.until("passed", WHOLE_S) - begin
        process = psutil.Process(terminal.process.pid)
        used = process.cpu_times()
        print(f"      the app had used {used.user + used.system:.2f} s of a core when its first frame stood")
        took = []
        for _ in range(keys):
            since, pressed = len(terminal.written), time.monotonic()
            terminal.send(b"7")  # the checks alone, and back
            took.append(terminal.until("replicas start equal", WHOLE_S, since) - pressed)
            terminal.send(b"7")
            terminal.drain(0.3)
            most = max(most, process.memory_info().rss / 1e6)
        while process.cpu_percent(1.0) > 20:
            terminal.drain(0.5)
            most = max(most, process.memory_info().rss / 1e6)
        whole = time.monotonic() - begin
        terminal.send(b"q")
        terminal.wait()
    return first, took, whole, most


def main() -> int:
    """Measure both; returns 1 where a budget does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=6)
    options = parser.parse_args()
    held = []
    loading = start_s()
    for ranks, count in ((8, options.events), (64, options.events // 10)):
        with tempfile.TemporaryDirectory() as temp:
            folder = Path(temp) / "dp-1"
            events = make(folder, ranks, count)
            size = (folder / EVENTS).stat().st_size / 1e6
            first, keys, whole, most = opened(folder, options.keys)
        print(f"{events} events of {ranks} ranks, {size:.0f} MB; loading the app alone takes {loading:.1f} s")
        held += [
            verdict("first frame after loading, s", first - loading, FRAME_S, "{:.2f}"),
            verdict("memory, MB", most, MEMORY_MB, "{:.0f}"),
            verdict("key while it is read, s", statistics.median(keys), KEY_S, "{:.3f}"),
        ]
        print(f"      everything read after {whole:.1f} s, worst key {max(keys):.3f} s")
    return 0 if all(held) else 1


if __name__ == "__main__":
    raise SystemExit(main())
