"""The telemetry events: a closed set, one JSON object a line on the wire and in the record.

Ranks build them (`launcher.emitter`), the collector validates and records them, and the view models fold
them into snapshots. Times are `time.monotonic_ns()` of the node that emitted the event; `n` is the arrival
number that the collector stamps, and 0 on the wire.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

PhaseName = Literal["starting", "ready", "running", "waiting", "done", "failed"]
Lane = Literal["compute", "comm", "optimizer", "idle"]
Moment = Literal["before", "after"]
ShardKind = Literal["parameter", "gradient", "optimizer", "activation", "data"]
FailureKind = Literal["exception", "signal", "hang", "mismatch", "early_exit", "timeout", "environment"]
Status = Literal["passed", "failed", "error", "interrupted"]
Number = float | int
Measured = float | int | str | bool | None

LAUNCHER = -1
"""The rank of an event that comes from no rank: the launcher, the collector or the node."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag=str.lower, omit_defaults=True):
    """What every event carries: who, when (nanoseconds, monotonic clock of the node), arrival number."""

    t: int
    rank: int = LAUNCHER
    n: int = 0


class Hello(Event, frozen=True, kw_only=True):
    """A rank introduces itself, once, before its first phase."""

    world_size: int
    local_rank: int
    node: str
    pid: int
    device: str
    backend: str
    coordinates: dict[str, int] = {}
    gpu: str | None = None
    """UUID of the GPU, by which NVML's samples are matched; containers hide pids, not UUIDs."""


class Phase(Event, frozen=True, kw_only=True):
    """A rank's state; steps count from 1. `waiting` names a collective that has been pending for a while."""

    phase: PhaseName
    step: int = -1
    total_steps: int = -1
    name: str = ""
    group: str = ""
    seq: int = -1


class Span(Event, frozen=True, kw_only=True):
    """Something that took from `t` to `t1` (ns) on one lane of one rank, in a step (from 1) or in none (-1).

    `seq` counts the collectives of this rank in `group`, from 0; `ranks` names the peers of a send or recv.
    """

    t1: int
    lane: Lane
    name: str
    step: int = -1
    stage: int = -1
    micro_batch: int = -1
    action: str = ""
    bytes: int = -1
    group: str = ""
    seq: int = -1
    peer: int = -1
    source: str = ""
    """`file:line` of the algorithm's code, relative to the repository, where the lab gives it."""


class Scalar(Event, frozen=True, kw_only=True):
    """A number at a step. With `step` -1 it is a metric of the whole run and lands in `result.json`."""

    name: str
    value: float
    step: int = -1
    unit: str = ""


class Tensor(Event, frozen=True, kw_only=True):
    """A tensor before or after something: its values when small, else its statistics."""

    name: str
    moment: Moment
    shape: tuple[int, ...]
    dtype: str
    device: str = "cpu"
    step: int = -1
    values: list[float] | None = None
    origin: list[int] | None = None
    """For each value the rank it came from, -1 where several ranks were combined, -2 where never written."""
    mean: float | None = None
    std: float | None = None
    min: float | None = None
    max: float | None = None
    hash: str = ""


class Shard(Event, frozen=True, kw_only=True):
    """Which slice of a global tensor this rank holds: per dimension (start, stop)."""

    tensor: str
    kind: ShardKind
    global_shape: tuple[int, ...]
    slices: tuple[tuple[int, int], ...]
    dtype: str = ""
    bytes: int = -1
    state: Literal["held", "gathered", "freed"] = "held"
    step: int = -1
    note: str = ""
    """What the slice does not say: which examples a rank reads."""


class PlannedAction(msgspec.Struct, frozen=True, omit_defaults=True):
    """One action of a schedule: its text form (`2F0`), start and duration in milliseconds."""

    action: str
    start_ms: float
    duration_ms: float


class Plan(Event, frozen=True, kw_only=True):
    """The schedule: one row of planned actions a rank, so that views need not import labs."""

    name: str
    actions: list[list[PlannedAction]]
    measures: dict[str, float] = {}


class Check(Event, frozen=True, kw_only=True):
    """One proof: what was measured beside what was expected, and what it shows in one sentence."""

    name: str
    passed: bool
    measured: Measured = None
    expected: Measured = None
    tolerance: float | None = None
    unit: str = ""
    shows: str = ""


class GpuSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU at one moment; a field that the driver does not give is None."""

    index: int
    uuid: str = ""
    name: str = ""
    utilisation: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    nvlink_rx_bytes_s: float | None = None
    nvlink_tx_bytes_s: float | None = None
    pcie_rx_bytes_s: float | None = None
    pcie_tx_bytes_s: float | None = None
    note: str = ""


class RankSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rank's process at one moment: CPU in percent of one core, resident memory in bytes."""

    rank: int
    cpu_percent: float
    rss: int
    gpu: int | None = None
    gpu_memory: int | None = None


class Sample(Event, frozen=True, kw_only=True):
    """Utilisation of one node: its CPUs, its GPUs (empty where it has none) and its ranks."""

    node: str
    cpu_percent: float = 0.0
    cores: int = 0
    memory_used: int = 0
    memory_total: int = 0
    gpus: list[GpuSample] = []
    ranks: list[RankSample] = []
    note: str = ""


class Log(Event, frozen=True, kw_only=True):
    """One line that a rank printed."""

    stream: Literal["stdout", "stderr"]
    line: str


class Failure(Event, frozen=True, kw_only=True):
    """Why a rank ended before its lab did, with its own traceback and what to try."""

    kind: FailureKind
    message: str
    collective: str = ""
    group: str = ""
    seq: int = -1
    traceback: str = ""
    advice: str = ""
    victim: bool = False
    """True where this rank only noticed that another one had failed or never arrived."""


class Dropped(Event, frozen=True, kw_only=True):
    """The emitter's buffer was full: so many spans, scalars and samples of this rank were not sent."""

    count: int


class End(Event, frozen=True, kw_only=True):
    """A rank (or, with rank -1, the run) ended."""

    status: Status
    exit_code: int


AnyEvent = (
    Hello | Phase | Span | Scalar | Tensor | Shard | Plan | Check | Sample | Log | Failure | Dropped | End
)

_encoder = msgspec.json.Encoder()
# Lax, since JSON has no number for them: a NaN or an infinity travels as the string "nan" or "inf".
_decoder = msgspec.json.Decoder(AnyEvent, strict=False)


def encode(event: AnyEvent) -> bytes:
    """Return the event as one line of JSON, newline included."""
    line = _encoder.encode(event)
    if b"null" in line:  # no field is written as null but a number that JSON does not have
        fields = {
            name: value for name, value in msgspec.structs.asdict(event).items() if name != "n" or value
        }
        line = _encoder.encode({"event": event.__struct_config__.tag, **_named(fields)})
    return line + b"\n"


def encode_lines(events: Sequence[AnyEvent]) -> bytes:
    """Return the events as lines of JSON, each with its newline."""
    lines = _encoder.encode_lines(events)
    return b"".join(map(encode, events)) if b"null" in lines else lines


def _named(value: Any) -> Any:
    """Replace the numbers that JSON does not have by their names, at any depth."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {key: _named(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_named(inner) for inner in value]
    if isinstance(value, msgspec.Struct):
        return _named(msgspec.structs.asdict(value))
    return value


def decode(line: bytes | str) -> AnyEvent:
    """Return the event that `line` holds.

    Raises:
        msgspec.DecodeError: the line is not JSON, not one of the events, or a field has the wrong type.
    """
    return _decoder.decode(line)
