"""What a lab's `run(ctx, params)` gets: who this rank is, its communicator, and how it tells what it sees."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from labs.comms import Comms
from labs.recorder import Recorder
from launcher import events
from launcher.emitter import Emitter
from launcher.events import Lane, Measured, Moment, ShardKind

SMALL = 64
"""Tensors of at most so many elements travel with their values."""


@dataclass
class Context:
    """One rank's view of a run. `checks` keeps what this rank has proved, also without telemetry."""

    rank: int
    world_size: int
    local_rank: int
    node: str
    device: torch.device
    backend: str
    seed: int
    pace_ms: float
    emit: Emitter
    recorder: Recorder
    comms: Comms
    checks: list[events.Check] = field(default_factory=list)

    def step(self, step: int, total: int) -> None:
        """Begin step `step` (from 0, as loops count) of `total`: what follows carries it, counted from 1."""
        self.recorder.settle()
        self.recorder.step = step + 1
        begun = events.Phase(
            t=_now(), rank=self.rank, phase="running", step=self.recorder.step, total_steps=total
        )
        self.emit.emit(begun)

    def span(self, lane: Lane, name: str, **fields: Any) -> AbstractContextManager[None]:
        """Emit the time of a `with` block as a span; `fields` are those of `Span`."""
        return self.recorder.spanning(lane, name, **fields)

    def scalar(self, name: str, value: float, unit: str = "") -> None:
        """Tell a number of the current step."""
        self.emit.emit(
            events.Scalar(
                t=_now(), rank=self.rank, name=name, value=float(value), step=self.recorder.step, unit=unit
            )
        )

    def metric(self, name: str, value: float, unit: str = "") -> None:
        """Tell a number of the whole run; it lands in `metrics` of the result."""
        self.emit.emit(events.Scalar(t=_now(), rank=self.rank, name=name, value=float(value), unit=unit))

    def say(self, line: str) -> None:
        """Tell a sentence; it stands in the log like a line that this rank printed."""
        self.emit.emit(events.Log(t=_now(), rank=self.rank, stream="stdout", line=line))

    def check(
        self,
        name: str,
        passed: bool,
        measured: Measured = None,
        expected: Measured = None,
        tolerance: float | None = None,
        unit: str = "",
        shows: str = "",
    ) -> None:
        """Tell a proof; the rank that knows calls this, rank 0 where all do."""
        check = events.Check(
            t=_now(),
            rank=self.rank,
            name=name,
            passed=bool(passed),
            measured=measured,
            expected=expected,
            tolerance=tolerance,
            unit=unit,
            shows=shows,
        )
        self.checks.append(check)
        self.emit.emit(check)

    def tensor(
        self,
        name: str,
        moment: Moment,
        tensor: Tensor,
        *,
        origin: Sequence[int] | None = None,
    ) -> None:
        """Tell a tensor: its values when it has at most 64 elements, else statistics and a hash.

        `origin` gives for each element the rank it came from (-1: several combined, -2: never written).
        """
        if not self.emit.connected:  # statistics and hash of a tensor cost what a step may not
            return
        flat = tensor.detach().reshape(-1)
        small = flat.numel() <= SMALL
        numbers = flat.to(torch.float64)
        known = flat.numel() > 0
        self.emit.emit(
            events.Tensor(
                t=_now(),
                rank=self.rank,
                name=name,
                moment=moment,
                shape=tuple(tensor.shape),
                dtype=str(tensor.dtype).removeprefix("torch."),
                device=str(tensor.device),
                step=self.recorder.step,
                values=numbers.tolist() if small else None,
                origin=list(origin) if origin is not None else None,
                mean=float(numbers.mean()) if known and not small else None,
                std=float(numbers.std(correction=0)) if known and not small else None,
                min=float(numbers.min()) if known and not small else None,
                max=float(numbers.max()) if known and not small else None,
                hash=hash_of([tensor]),
            )
        )

    def digest(self, name: str, moment: Moment, tensors: Sequence[Tensor], digest: str) -> None:
        """Tell tensors, laid end to end, by their hash alone: what every step can afford.

        `digest` is what `hash_of(tensors)` returned, which a lab that compares its ranks knows already.
        """
        self.emit.emit(
            events.Tensor(
                t=_now(),
                rank=self.rank,
                name=name,
                moment=moment,
                shape=(sum(tensor.numel() for tensor in tensors),),
                dtype=str(tensors[0].dtype).removeprefix("torch."),
                device=str(tensors[0].device),
                step=self.recorder.step,
                hash=digest,
            )
        )

    def shard(
        self,
        tensor: str,
        kind: ShardKind,
        global_shape: Sequence[int],
        slices: Sequence[tuple[int, int]],
        *,
        dtype: str = "",
        nbytes: int = -1,
        state: Literal["held", "gathered", "freed"] = "held",
        note: str = "",
    ) -> None:
        """Tell which slice of a global tensor this rank holds: (start, stop) a dimension; see `Shard`."""
        self.emit.emit(
            events.Shard(
                t=_now(),
                rank=self.rank,
                tensor=tensor,
                kind=kind,
                global_shape=tuple(global_shape),
                slices=tuple(slices),
                dtype=dtype,
                bytes=nbytes,
                state=state,
                step=self.recorder.step,
                note=note,
            )
        )

    def place(self, coordinates: dict[str, int]) -> None:
        """Tell this rank's place on a mesh, axis by axis: its hello, said again with coordinates."""
        self.emit.emit(hello(self, coordinates))


def hello(ctx: Context, coordinates: dict[str, int]) -> events.Hello:
    """Return the event by which a rank introduces itself."""
    gpu = None
    if ctx.device.type == "cuda":
        gpu = f"GPU-{torch.cuda.get_device_properties(ctx.device).uuid}"
    return events.Hello(
        t=_now(),
        rank=ctx.rank,
        world_size=ctx.world_size,
        local_rank=ctx.local_rank,
        node=ctx.node,
        pid=os.getpid(),
        device=str(ctx.device),
        backend=ctx.backend,
        coordinates=coordinates,
        gpu=gpu,
    )


def hash_of(tensors: Sequence[Tensor]) -> str:
    """Return 12 hex digits of the tensors' bytes: equal exactly when they are bitwise equal (SHA-256)."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]


def _now() -> int:
    return time.monotonic_ns()
