"""Folders of runs to export: a pipeline with messages, a data-parallel run, one that failed, odd ones."""

from __future__ import annotations

from pathlib import Path

import msgspec

from launcher.events import AnyEvent, Check, Failure, GpuSample, Log, RankSample, Sample, Scalar, Span
from launcher.rundir import FailureResult
from tests.app.recording import MS, START, dp_events, manifest_of, result_of, write_run
from tests.views.test_gantt import events_of

NASTY = "</script><img src=https://example.org/x.png onerror=alert(1)> & <b>"


def message(kind: str, rank: int, peer: int, start: float, end: float, step: int = 0) -> Span:
    """A send or a receive, in ms from the record's begin."""
    return Span(
        t=START + int(start * MS),
        t1=START + int(end * MS),
        rank=rank,
        lane="comm",
        name=kind,
        step=step,
        peer=peer,
        bytes=64,
        group="pipeline",
    )


def pipeline_run(folder: Path, ranks: int = 4, steps: int = 3) -> Path:
    """A paced 1F1B run; only its last rank has a loss, and a log line that no page may take for its own."""
    manifest = msgspec.structs.replace(
        manifest_of("pp", ranks), params={"schedule": "1f1b", "micro_batches": 2 * ranks}, paced_ms=20.0
    )
    events = events_of("1f1b", ranks, 2 * ranks, steps=steps)
    events += [
        Scalar(t=START + step * MS, rank=ranks - 1, name="loss", value=1 / (step + 1), step=step)
        for step in range(steps)
    ]
    events += [message("send", 0, 1, 1, 9), message("send", 0, 1, 2, 9), message("recv", 1, 0, 1, 4)]
    events += [message("recv", 1, 0, 2, 8), message("send", 2, 3, 1, 2)]
    events.append(
        Sample(
            t=START,
            node="node0",
            cpu_percent=50.0,
            cores=2,
            memory_used=3_000_000_000,
            gpus=[GpuSample(index=0, utilisation=97.0, memory_used=1_000_000)],
            ranks=[RankSample(rank, 20.0, (300 + rank) * 1_000_000) for rank in range(ranks)],
        )
    )
    events += [
        Log(t=START, rank=0, stream="stdout", line=NASTY),
        Check(t=START, rank=0, name=NASTY, passed=False, measured=2.0, expected=1.0, shows=NASTY),
    ]
    return write_run(folder, manifest, events, result_of(manifest, events))


def data_parallel_run(folder: Path) -> Path:
    """A run without a schedule, with shards and memory."""
    manifest = manifest_of("dp", 4)
    events = dp_events(manifest, steps=20, total=20)
    return write_run(folder, manifest, events, result_of(manifest, events))


def failed_run(folder: Path) -> Path:
    """Rank 2 has died of an exception, and printed its last words."""
    manifest = manifest_of("dp", 4)
    events: list[AnyEvent] = dp_events(manifest, steps=3, end=False)
    events += [
        Log(t=START + 900 * MS, rank=rank, stream="stderr", line=f"last words of rank {rank}")
        for rank in range(4)
    ]
    message = "RuntimeError: the matrix <A> does not fit"
    events.append(Failure(t=START + 901 * MS, rank=2, kind="exception", message=message))
    failure = FailureResult(
        rank=2,
        kind="exception",
        message=message,
        collective="all_reduce",
        traceback='File "lab.py", line 3\nRuntimeError',
        advice="Give both the same shape.",
        victims=[0, 1, 3],
    )
    return write_run(folder, manifest, events, result_of(manifest, events, failure))
