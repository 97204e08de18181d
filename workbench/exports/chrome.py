"""A run as a Chrome trace, for Perfetto (ui.perfetto.dev) and chrome://tracing.

A process is a rank, a thread one of its lanes. Spans of one lane that overlap, as asynchronous sends do, go
to further threads of that lane, so that on a thread none overlap. Counters tell loss and memory, arrows lead
from each send to its receive. The record is read twice: first for the times of the spans alone, as plain
numbers, then to write one event after the other. Format: "Trace Event Format", Google, 2016.
"""

from __future__ import annotations

import heapq
import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec

from launcher.events import AnyEvent, Failure, Hello, Lane, Phase, Sample, Scalar, Span
from workbench.exports.stream import Source

LANES: tuple[Lane, ...] = get_args(Lane)
THREADS_A_LANE = 1000
"""Thread ids of a lane begin at so many times its place, so that its further threads stay beside it."""
NODE_PID = 1_000_000
MESSAGES = ("send", "recv")
Record = dict[str, Any]
Pair = tuple[str, int, int, int]
"""A channel within one step: group, sender, receiver, step. Messages of a channel keep their order."""


class Layout:
    """What the first pass finds out: when time begins, each span's thread, and which messages match."""

    def __init__(self, source: Source) -> None:
        self.origin = 0
        self.threads: dict[tuple[int, Lane], int] = {}
        """How many threads a rank's lane needs."""
        self._starts: dict[tuple[int, Lane], array[int]] = {}
        self._ends: dict[tuple[int, Lane], array[int]] = {}
        self._numbers: dict[tuple[int, Lane], array[int]] = {}
        self._sent: dict[Pair, array[int]] = {}
        self._received: dict[Pair, array[int]] = {}
        self._first: dict[Pair, int] = {}
        """The number of each channel's first message; Perfetto reads an id that is text as hexadecimal."""
        for event in source.events():
            self.origin = min(self.origin or event.t, event.t)
            if isinstance(event, Span):
                self._span(event)
        for key in self._starts:
            self._numbers[key], self.threads[key] = numbered(self._starts[key], self._ends.pop(key))
        self._starts.clear()
        for channels in (self._sent, self._received):
            for pair, times in channels.items():
                channels[pair] = array("q", sorted(times))
        number = 1
        for pair, times in self._sent.items():
            self._first[pair] = number
            number += len(times)

    def _span(self, span: Span) -> None:
        key = (span.rank, span.lane)
        self._starts.setdefault(key, array("q")).append(span.t)
        self._ends.setdefault(key, array("q")).append(span.t1)
        pair = pair_of(span)
        if pair is not None:
            where = self._sent if span.name == "send" else self._received
            where.setdefault(pair, array("q")).append(span.t)

    def thread_of(self, key: tuple[int, Lane], place: int) -> int:
        """Return the thread, from 0, of the span at `place` among those of its rank and lane."""
        return self._numbers[key][place]

    def flow_of(self, span: Span) -> int:
        """Return the number, from 1, that a message's send and receive share; 0 where they cannot be
        matched."""
        pair = pair_of(span)
        if pair is None:
            return 0
        sent, received = self._sent.get(pair, array("q")), self._received.get(pair, array("q"))
        if len(sent) != len(received):  # a span was dropped: which message is whose cannot be told
            return 0
        return self._first[pair] + bisect_left(sent if span.name == "send" else received, span.t)


def pair_of(span: Span) -> Pair | None:
    """Return the channel of a message's span, None for other spans."""
    if span.lane != "comm" or span.name not in MESSAGES or span.peer < 0:
        return None
    ends = (span.rank, span.peer) if span.name == "send" else (span.peer, span.rank)
    return (span.group, *ends, span.step)


def numbered(starts: array[int], ends: array[int]) -> tuple[array[int], int]:
    """Return a thread for each span, so that on a thread none overlap, and how many threads there are."""
    numbers = array("H", bytes(2 * len(starts)))
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    count = 0
    for place in sorted(range(len(starts)), key=lambda index: (starts[index], ends[index])):
        while busy and busy[0][0] <= starts[place]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            heapq.heappush(free, count)
            count += 1
        number = heapq.heappop(free)
        numbers[place] = min(number, THREADS_A_LANE - 1)
        heapq.heappush(busy, (ends[place], number))
    return numbers, min(count, THREADS_A_LANE)


def write(source: Source, path: Path) -> None:
    """Write the run as a trace to `path`.

    Raises:
        ParameterError: the run cannot be read.
        OSError: the file cannot be written.
    """
    encode = msgspec.json.Encoder().encode
    with path.open("wb") as file:
        file.write(b'{"displayTimeUnit":"ms","traceEvents":[')
        separator = b"\n"
        for record in records(source, Layout(source)):
            file.write(separator + encode(record))
            separator = b",\n"
        file.write(b'\n],"otherData":' + encode(_about(source)) + b"}\n")


def _about(source: Source) -> dict[str, str]:
    manifest, result = source.manifest, source.result
    status = result.status if result is not None else "no result"
    return {"run": manifest.run_id, "lab": manifest.lab, "command": manifest.command, "status": status}


def records(source: Source, layout: Layout) -> Iterator[Record]:
    """Yield the trace's events: names first, then what the record tells, in its order; times in us."""
    yield from _names(source, layout)
    places: dict[tuple[int, Lane], int] = {}
    nodes: dict[str, int] = {}
    for event in source.events():
        ts = (event.t - layout.origin) / 1e3
        match event:
            case Span():
                key = (event.rank, event.lane)
                place = places.get(key, 0)
                places[key] = place + 1
                yield from _span(event, layout, _tid(event.lane, layout.thread_of(key, place)), ts)
            case Scalar() if math.isfinite(event.value) and event.step >= 0:
                name = f"{event.name} ({event.unit})" if event.unit else event.name
                yield _counter(event.rank, name, ts, {"value": event.value})
            case Sample():
                if event.node not in nodes:
                    nodes[event.node] = NODE_PID + len(nodes)
                    yield _process(nodes[event.node], f"node {event.node}")
                yield from _sample(event, nodes[event.node], ts)
            case _:
                yield from _instant(event, ts)


def _names(source: Source, layout: Layout) -> Iterator[Record]:
    for rank in range(source.manifest.world_size):
        yield _process(rank, f"rank {rank}")
        order = {"sort_index": rank}
        yield {"ph": "M", "pid": rank, "name": "process_sort_index", "args": order}
    for rank, lane in sorted(layout.threads):
        for number in range(layout.threads[rank, lane]):
            name = lane if not number else f"{lane} {number + 1}"
            tid = _tid(lane, number)
            yield {"ph": "M", "pid": rank, "tid": tid, "name": "thread_name", "args": {"name": name}}
            order = {"sort_index": tid}
            yield {"ph": "M", "pid": rank, "tid": tid, "name": "thread_sort_index", "args": order}


def _process(pid: int, name: str) -> Record:
    return {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}


def _tid(lane: Lane, number: int) -> int:
    return LANES.index(lane) * THREADS_A_LANE + number


def _span(span: Span, layout: Layout, tid: int, ts: float) -> Iterator[Record]:
    details = {
        name: value
        for name, value in msgspec.structs.asdict(span).items()
        if name not in ("t", "t1", "n", "rank", "lane", "name") and value not in ("", -1)
    }
    where = {"pid": span.rank, "tid": tid}
    took = max(0, span.t1 - span.t) / 1e3
    yield {
        "ph": "X",
        **where,
        "name": span.action or span.name,
        "cat": span.lane,
        "ts": ts,
        "dur": took,
        "args": {"what": span.name, **details},
    }
    flow = layout.flow_of(span)
    if flow:
        # An arrow ends a nanosecond within its span: at the very end it would be the next one's, and
        # earlier it might lie before the send, which often begins while the receiver waits already.
        end = max(ts, ts + took - 1e-3)
        at, phase = (ts, {"ph": "s"}) if span.name == "send" else (end, {"ph": "f", "bp": "e"})
        yield {**phase, **where, "name": "message", "cat": "message", "id": flow, "ts": at}


def _counter(pid: int, name: str, ts: float, values: dict[str, float]) -> Record:
    return {"ph": "C", "pid": max(0, pid), "tid": 0, "name": name, "ts": ts, "args": values}


def _sample(sample: Sample, node: int, ts: float) -> Iterator[Record]:
    for rank in sample.ranks:
        memory = {"resident": rank.rss / 1e6}
        if rank.gpu_memory is not None:
            memory["gpu"] = rank.gpu_memory / 1e6
        yield _counter(rank.rank, "memory (MB)", ts, memory)
        yield _counter(rank.rank, "cpu (% of a core)", ts, {"cpu": rank.cpu_percent})
    yield _counter(node, "cpu (%)", ts, {"cpu": sample.cpu_percent})
    yield _counter(node, "memory used (MB)", ts, {"memory": sample.memory_used / 1e6})
    for gpu in sample.gpus:
        if gpu.utilisation is not None:
            yield _counter(node, f"gpu {gpu.index} (%)", ts, {"utilisation": gpu.utilisation})
        if gpu.memory_used is not None:
            yield _counter(node, f"gpu {gpu.index} memory (MB)", ts, {"memory": gpu.memory_used / 1e6})


def _instant(event: AnyEvent, ts: float) -> Iterator[Record]:
    """Phases and failures as marks on their rank."""
    name: str
    match event:
        case Phase(phase=phase) if phase != "running":
            name, details = phase, {"collective": event.name} if event.name else {}
        case Failure():
            name, details = f"failed: {event.kind}", {"message": event.message}
        case Hello():
            name, details = "hello", {"device": event.device, "backend": event.backend, "node": event.node}
        case _:
            return
    if event.rank >= 0:
        yield {"ph": "i", "s": "p", "pid": event.rank, "tid": 0, "name": name, "ts": ts, "args": details}
