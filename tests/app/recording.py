"""Makes the small records that a `dp`, a `collectives` and a failed run would leave, always the same."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec

from launcher.events import (
    AnyEvent,
    Check,
    End,
    Failure,
    Hello,
    Log,
    Phase,
    RankSample,
    Sample,
    Scalar,
    Shard,
    Span,
    Status,
    Tensor,
    encode,
)
from launcher.rundir import (
    EVENTS,
    RESULT,
    CheckResult,
    FailureResult,
    Manifest,
    Result,
    to_json,
    write_manifest,
)
from tests import manifests

MS = 1_000_000
START = 1_000_000 * MS
STEP_MS = 40


def write_run(folder: Path, manifest: Manifest, events: list[AnyEvent], result: Result | None = None) -> Path:
    """Write a run's folder as the collector leaves it; without a result it looks like one in progress."""
    folder.mkdir(parents=True)
    write_manifest(folder, manifest)
    lines = [encode(msgspec.structs.replace(event, n=n)) for n, event in enumerate(events, 1)]
    (folder / EVENTS).write_bytes(b"".join(lines))
    if result is not None:
        (folder / RESULT).write_bytes(to_json(result))
    return folder


def manifest_of(lab: str, world_size: int = 8) -> Manifest:
    """A manifest of a run on a machine without GPU."""
    return msgspec.structs.replace(
        manifests.manifest(lab, world_size, f"{lab}-20261129-163012-4f2a"),
        command=f"workbench --run {lab} --nproc {world_size}",
        torchrun_command=f"torchrun --standalone --nproc-per-node {world_size} -m labs.worker {lab} --seed 0",
        created="2026-11-29T16:30:12+00:00",
        why_backend="gloo on the CPU: no GPU",
    )


def result_of(manifest: Manifest, events: list[AnyEvent], failure: FailureResult | None = None) -> Result:
    """The result that fits the events."""
    checks = [
        CheckResult(
            name=event.name,
            passed=event.passed,
            measured=event.measured,
            expected=event.expected,
            tolerance=event.tolerance,
            unit=event.unit,
            shows=event.shows,
        )
        for event in events
        if isinstance(event, Check)
    ]
    passed = all(check.passed for check in checks)
    status: Status = "error" if failure is not None else "passed" if passed else "failed"
    return Result(
        run_id=manifest.run_id,
        lab=manifest.lab,
        params=manifest.params,
        world_size=manifest.world_size,
        backend=manifest.backend,
        device=manifest.device,
        launcher=manifest.launcher,
        status=status,
        exit_code={"passed": 0, "failed": 1, "error": 3}[status],
        wall_s=2.84,
        ready_s=0.31,
        checks=checks,
        metrics={},
        failure=failure,
        events=len(events),
        dropped=0,
        record="events.jsonl",
    )


def starting(manifest: Manifest) -> Iterator[AnyEvent]:
    """All ranks say hello and are ready."""
    size = manifest.world_size
    for rank in range(size):
        yield Hello(
            t=START + rank * MS,
            rank=rank,
            world_size=size,
            local_rank=rank,
            node="node0",
            pid=4100 + rank,
            device="cpu",
            backend="gloo",
        )
        yield Phase(t=START + 20 * MS, rank=rank, phase="ready")


def dp_events(manifest: Manifest, steps: int = 60, end: bool = True, total: int = 60) -> list[AnyEvent]:
    """A `dp` run: losses that differ by rank, parameters that do not."""
    size = manifest.world_size
    events = list(starting(manifest))
    for rank in range(size):
        events.append(
            Shard(
                t=START + 21 * MS,
                rank=rank,
                tensor="batch",
                kind="data",
                global_shape=(128, 1024),
                slices=((128 * rank // size, 128 * (rank + 1) // size), (0, 1024)),
                dtype="float32",
                bytes=128 * 1024 * 4 // size,
            )
        )
        events += [
            Shard(
                t=START + 21 * MS,
                rank=rank,
                tensor=f"layers.{layer}.weight",
                kind="parameter",
                global_shape=(1024, 1024),
                slices=((0, 1024), (0, 1024)),
                dtype="float32",
                bytes=4 << 20,
            )
            for layer in range(4)
        ]
        events.append(Log(t=START + 22 * MS, rank=rank, stream="stdout", line=f"rank {rank} holds 16 rows"))
    for step in range(1, steps + 1):
        events += _step(size, step, total)
    if end:
        events += _end(size, steps)
    return events


def _step(size: int, step: int, steps: int) -> Iterator[AnyEvent]:
    begin = START + 30 * MS + (step - 1) * STEP_MS * MS
    for rank in range(size):
        yield Phase(t=begin, rank=rank, phase="running", step=step, total_steps=steps)
    for rank in range(size):
        late = (rank * 7 + step * 3) % 5
        cuts = [0, 9 + late, 24 + late, 35, 39]
        lanes = (
            ("compute", "forward"),
            ("compute", "backward"),
            ("comm", "all_reduce"),
            ("optimizer", "step"),
        )
        for place, (lane, name) in enumerate(lanes):
            comm = lane == "comm"
            yield Span(
                t=begin + cuts[place] * MS,
                t1=begin + cuts[place + 1] * MS,
                rank=rank,
                lane=lane,  # type: ignore[arg-type]
                name=name,
                step=step,
                bytes=16 << 20 if comm else -1,
                group="world" if comm else "",
                seq=step if comm else -1,
            )
        loss = 0.0132 * math.exp(-step / 25) * (1 + 0.15 * math.sin(rank * 1.7 + step / 3))
        yield Scalar(t=begin + 39 * MS, rank=rank, name="loss", value=loss, step=step)
        yield Tensor(
            t=begin + 39 * MS,
            rank=rank,
            name="parameters",
            moment="after",
            shape=(4 << 20,),
            dtype="float32",
            hash=f"{(step * 2654435761) % (1 << 32):08x}",
            step=step,
        )
    if step % 12 == 1:
        yield Sample(
            t=begin + 39 * MS,
            node="node0",
            cpu_percent=91.0 + step % 7,
            cores=2,
            memory_used=3_100_000_000,
            memory_total=8_200_000_000,
            ranks=[
                RankSample(rank, cpu_percent=22.0 + (rank * 5 + step) % 9, rss=(310 + rank) * 1_000_000)
                for rank in range(size)
            ],
            note="no GPU",
        )


def _end(size: int, steps: int) -> Iterator[AnyEvent]:
    t = START + 30 * MS + steps * STEP_MS * MS
    yield Check(
        t=t,
        rank=0,
        name="replicas start equal",
        passed=True,
        measured=1,
        expected=1,
        unit="hashes",
        shows="after the broadcast every rank holds the same parameters, bit by bit",
    )
    yield Check(
        t=t,
        rank=0,
        name="averaged gradients equal one process",
        passed=True,
        measured=3.1e-9,
        expected=0.0,
        tolerance=1e-6,
        shows="the mean of the ranks' gradients is the gradient of the whole batch",
    )
    yield Check(
        t=t,
        rank=0,
        name="bytes all-reduced",
        passed=True,
        measured=16 << 20,
        expected=16 << 20,
        unit="B",
        shows="communication does not grow with the batch: one gradient a step",
    )
    for rank in range(size):
        yield Phase(t=t, rank=rank, phase="done", step=steps, total_steps=steps)
        yield End(t=t, rank=rank, status="passed", exit_code=0)


def collectives_events(manifest: Manifest) -> list[AnyEvent]:
    """An all-reduce and a broadcast of small buffers."""
    size = manifest.world_size
    events = list(starting(manifest))
    t = START + 40 * MS
    for rank in range(size):
        before = [float(10 * rank + place) for place in range(4)]
        total = [float(sum(10 * other + place for other in range(size))) for place in range(4)]
        mine, root = [rank] * 4, [0] * 4
        for op, moment, values, origin in (
            ("all_reduce", "before", before, mine),
            ("all_reduce", "after", total, [-1] * 4),
            ("broadcast", "before", before, mine),
            ("broadcast", "after", [0.0, 1.0, 2.0, 3.0], root),
        ):
            events.append(
                Tensor(
                    t=t,
                    rank=rank,
                    name=op,
                    moment=moment,  # type: ignore[arg-type]
                    shape=(4,),
                    dtype="float32",
                    values=values,
                    origin=origin,
                )
            )
        events += [
            Span(
                t=t, t1=t + 3 * MS, rank=rank, lane="comm", name="all_reduce", bytes=16, group="world", seq=0
            ),
            Span(
                t=t + 4 * MS,
                t1=t + 5 * MS,
                rank=rank,
                lane="comm",
                name="broadcast",
                bytes=16,
                group="world",
                seq=1,
            ),
        ]
    events.append(
        Check(
            t=t + 6 * MS,
            rank=0,
            name="all_reduce is the sum on every rank",
            passed=True,
            measured=0.0,
            expected=0.0,
            tolerance=0.0,
            shows="each element is the sum of that element over all ranks",
        )
    )
    for rank in range(size):
        events += [
            Phase(t=t + 7 * MS, rank=rank, phase="done"),
            End(t=t + 7 * MS, rank=rank, status="passed", exit_code=0),
        ]
    return events


TRACEBACK = """Traceback (most recent call last):
  File "labs/data_parallel/lab.py", line 88, in run
    loss = train_step(model, batch)
RuntimeError: mat1 and mat2 shapes cannot be multiplied (16x1024 and 512x1024)
"""


def failed_events(manifest: Manifest) -> tuple[list[AnyEvent], FailureResult]:
    """A `dp` run whose rank 3 raises in step 20; rank 5 is the first of the victims to be heard."""
    events = dp_events(manifest, steps=20, end=False)
    t = events[-1].t + 5 * MS
    message = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (16x1024 and 512x1024)"
    advice = "Compare the shape of the batch with the first layer's; the flag is --dim."
    events.append(
        Phase(t=t, rank=0, phase="waiting", step=20, total_steps=60, name="all_reduce", group="world", seq=20)
    )
    events.append(
        Failure(
            t=t + MS,
            rank=5,
            kind="exception",
            message="DistBackendError: connection closed by peer",
            collective="all_reduce",
            victim=True,
        )
    )
    events.append(Failure(t=t, rank=3, kind="exception", message=message, traceback=TRACEBACK, advice=advice))
    victims = [rank for rank in range(manifest.world_size) if rank != 3]
    return events, FailureResult(
        rank=3, kind="exception", message=message, traceback=TRACEBACK, advice=advice, victims=victims
    )
