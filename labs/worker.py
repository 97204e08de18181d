"""One rank: joins the process group, runs a lab, and says why when it leaves early.

`main` is what the launcher calls in each process; `python -m labs.worker LAB --flags` is the same under the
plain `torchrun` command. A way out before the lab's end (an exception, `sys.exit`, a group that times out)
becomes a `failure` event and a non-zero exit code: torch alone would keep such a process alive, with its
sockets open, and the other ranks would wait for it without end.
"""

from __future__ import annotations

import datetime
import importlib
import os
import platform
import socket
import sys
import time
import traceback
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from labs import alignment
from labs.catalog import package_of, spec_of
from labs.comms import Comms
from labs.context import Context, hello
from labs.diagnosis import diagnose
from labs.eager import spare_the_compiler
from labs.recorder import Recorder
from launcher import emitter, events

FAILED = 1
LEFT_EARLY = 70
GROUP_TIMEOUT_S = 15.0
LATER_GROUPS = 4
"""So many times as long as the world's do groups wait that a lab makes: pipelines for others' computing."""


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank is told to do; the same for all ranks."""

    lab: str
    params: dict[str, Any] = {}
    seed: int = 0
    device: str = "cpu"
    backend: str = "gloo"
    pg_timeout_s: float = GROUP_TIMEOUT_S
    pace_ms: float = 0.0


def main(argument: dict[str, Any]) -> Context:
    """Be one rank of a lab's run, from joining the group to leaving it; `RANK` and the rest are set.

    Ends the process with a non-zero code where the lab does not come to its end; else returns its context.
    """
    asked = patient(msgspec.convert(argument, Argument), int(os.environ["WORLD_SIZE"]))
    rank = int(os.environ["RANK"])
    emit = emitter.connect(rank)
    emit.emit(events.Phase(t=time.monotonic_ns(), rank=rank, phase="starting"))
    ctx: Context | None = None
    try:
        ctx = join(asked, rank, emit, debug_detail=spec_of(asked.lab).debug_detail)
        _run(asked, ctx)
    except BaseException as error:  # SystemExit too: nothing leaves silently
        _leave(ctx, emit, rank, error)
    assert ctx is not None
    failed = [check.name for check in ctx.checks if not check.passed]
    _phase(ctx, "done")
    emit.emit(
        events.End(t=time.monotonic_ns(), rank=rank, status="failed" if failed else "passed", exit_code=0)
    )
    dist.destroy_process_group()
    emit.close()
    return ctx


def patient(asked: Argument, world_size: int) -> Argument:
    """Return the argument with a time limit that allows for what the lab's parameters make ranks wait."""
    spec = spec_of(asked.lab)
    if spec.patience_s is None:
        return asked
    more = spec.patience_s(msgspec.convert(asked.params, spec.params), world_size)
    return msgspec.structs.replace(asked, pg_timeout_s=asked.pg_timeout_s + more)


def join(asked: Argument, rank: int, emit: emitter.Emitter, *, debug_detail: bool) -> Context:
    """Join the group and pass a first barrier: from here on the rank is ready.

    `debug_detail` turns TORCH_DISTRIBUTED_DEBUG=DETAIL on.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    device = torch.device("cuda", local_rank) if asked.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]:
        # One node: no bytes on the network, and no name to look up for the host's own address.
        loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", loopback)
    if debug_detail:
        os.environ.setdefault("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
        dist.set_debug_level_from_env()  # type: ignore[attr-defined]
    limit = datetime.timedelta(seconds=asked.pg_timeout_s)
    dist.init_process_group(asked.backend, timeout=limit)
    _limit_later_groups(LATER_GROUPS * limit)
    recorder = Recorder(emit, device)
    ctx = Context(
        rank=rank,
        world_size=dist.get_world_size(),
        local_rank=local_rank,
        node=platform.node(),
        device=device,
        backend=asked.backend,
        seed=asked.seed,
        pace_ms=asked.pace_ms,
        emit=emit,
        recorder=recorder,
        comms=Comms(recorder),
    )
    emit.emit(hello(ctx, {}))
    ctx.comms.barrier()
    _phase(ctx, "ready")
    return ctx


def _limit_later_groups(limit: datetime.timedelta) -> None:
    """Bound what groups wait that are made without a time limit of their own, by a mesh or by torch itself.

    They do not take over the world's, but torch's default of half an hour.
    """
    dist.distributed_c10d.default_pg_timeout = limit
    dist.distributed_c10d.default_pg_nccl_timeout = limit  # type: ignore[attr-defined]


def _run(asked: Argument, ctx: Context) -> None:
    spec = spec_of(asked.lab)
    lab = importlib.import_module(f"{package_of(asked.lab)}.lab")
    params = msgspec.convert(asked.params, spec.params)
    spare_the_compiler()
    _phase(ctx, "running")
    lab.run(ctx, params)
    ctx.recorder.settle(wait=True)
    wrong = alignment.settle(ctx, asked.pg_timeout_s + alignment.GRACE_S)
    if wrong:
        raise alignment.MisalignedError(wrong)


def _leave(ctx: Context | None, emit: emitter.Emitter, rank: int, error: BaseException) -> None:
    """Tell why this rank ends, and end it. Does not destroy the group: that would wait for the others."""
    pending = ctx.comms.ledger.pending if ctx is not None else None
    found = diagnose(error, pending)
    if ctx is not None and (found.victim or found.kind == "mismatch"):
        alignment.report(ctx, found.message)
    elif ctx is not None:
        alignment.leave(ctx)
    name, group, seq = pending or ("", "", -1)
    emit.emit(
        events.Failure(
            t=time.monotonic_ns(),
            rank=rank,
            kind=found.kind,
            message=found.message,
            collective=name,
            group=group,
            seq=seq,
            traceback=found.traceback,
            advice=found.advice,
            victim=found.victim,
        )
    )
    emit.emit(events.Phase(t=time.monotonic_ns(), rank=rank, phase="failed"))
    traceback.print_exception(error)
    sys.stdout.flush()
    sys.stderr.flush()
    emit.flush()
    os._exit(LEFT_EARLY if found.kind == "early_exit" else FAILED)


def _phase(ctx: Context, phase: events.PhaseName) -> None:
    ctx.emit.emit(events.Phase(t=time.monotonic_ns(), rank=ctx.rank, phase=phase))


if __name__ == "__main__":
    from labs.pasted import run_pasted

    run_pasted(sys.argv[1:])
