"""Four ways to start a process group, taken apart into the stages whose time is told.

`torch.distributed.init_process_group(init_method=...)` does the first two stages in one call: it meets the
others in a store (`dist.rendezvous`), then each rank reads the others' addresses there and connects to them.
"""

from __future__ import annotations

import datetime
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, Store, TCPStore
from torch.distributed.rendezvous import rendezvous

from labs.bootstrap.meeting import Meeting
from labs.bootstrap.theory import STAGES, Way
from labs.context import Context

T = TypeVar("T")
TIMEOUT = datetime.timedelta(seconds=30)


def start(ctx: Context, meeting: Meeting, way: Way) -> tuple[dict[str, float], float]:
    """Start a group in one way, add up a one of each rank in it, end it.

    Returns the seconds of each of `STAGES` on this rank, and the sum.

    Raises:
        RuntimeError: the group does not come together within half a minute.
    """
    served = _serve() if ctx.rank == 0 and way != "file" else None
    place = meeting.share(f"{way}/place", _place(served) if ctx.rank == 0 else None)
    seconds: dict[str, float] = {}
    with _environment(ctx, way, place):
        _join(ctx, seconds, way, place)
    del served
    one = torch.ones(1, device=ctx.device)
    _timed(ctx, seconds, STAGES[2], way, lambda: dist.all_reduce(one))
    # A rank that destroys its group closes its connections: all must be done with theirs.
    meeting.barrier(f"{way}/used")
    _timed(ctx, seconds, STAGES[3], way, dist.destroy_process_group)
    meeting.barrier(f"{way}/over")
    if way == "file" and ctx.rank == 0:
        Path(place).unlink(missing_ok=True)
    return seconds, float(one.item())


def _join(ctx: Context, seconds: dict[str, float], way: Way, place: str) -> None:
    """Find the store and connect by it, and keep no hold of the store.

    The end of a FileStore opens its file once more, and would make it anew where rank 0 has removed it.
    """
    store = _timed(ctx, seconds, STAGES[0], way, lambda: _store(ctx, way, place))
    _timed(ctx, seconds, STAGES[1], way, lambda: connect(ctx, store))


def connect(ctx: Context, store: Store) -> None:
    """Make the default group out of a store that all ranks share."""
    dist.init_process_group(
        ctx.backend, store=store, rank=ctx.rank, world_size=ctx.world_size, timeout=TIMEOUT
    )


def forget() -> None:
    """Start the group's numbering afresh: a start that failed on some ranks only has been counted there.

    torch derives the names of its keys from that count, so ranks with different counts never meet.
    """
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    dist.destroy_process_group()


def _serve() -> TCPStore:
    """Serve a store on a port that the system chooses, and so hold the port from the moment it is known.

    A port that is asked for, let go and bound again may be taken in between. A multi-tenant server is shared
    within its process: rank 0's own rendezvous finds it at that port and starts no other.
    """
    host = os.environ.get("MASTER_ADDR", "127.0.0.1")
    return TCPStore(host, 0, None, True, TIMEOUT, wait_for_workers=False, multi_tenant=True)


def _place(served: TCPStore | None) -> str:
    """Return where the ranks will meet, chosen by rank 0: HOST:PORT of the served store, else a path."""
    if served is None:
        descriptor, path = tempfile.mkstemp(prefix="worldsize-meeting-")
        os.close(descriptor)
        return path
    return f"{served.host}:{served.port}"


def _store(ctx: Context, way: Way, place: str) -> Store:
    host, _, port = place.rpartition(":")
    if way == "store":
        return TCPStore(host, int(port), ctx.world_size, ctx.rank == 0, TIMEOUT, multi_tenant=True)
    if way == "env":
        url, known = "env://", {}
    else:
        url = f"file://{place}" if way == "file" else f"tcp://{place}"
        known = {"rank": ctx.rank, "world_size": ctx.world_size}
    store: Store = next(rendezvous(url, **known, timeout=TIMEOUT))[0]
    return store


@contextmanager
def _environment(ctx: Context, way: Way, place: str) -> Iterator[None]:
    """Set the variables as a person would without torchrun; put the old ones back afterwards.

    Under torchrun the launcher serves the store, and a variable says so: with it set, rank 0 would not serve
    one at `env://` or `tcp://` either, and all ranks would wait for a server.
    """
    host, _, port = place.rpartition(":")
    mine = {"TORCHELASTIC_USE_AGENT_STORE": "False"}
    if way == "env":
        mine |= {
            "RANK": str(ctx.rank),
            "WORLD_SIZE": str(ctx.world_size),
            "MASTER_ADDR": host,
            "MASTER_PORT": port,
        }
    before = {name: os.environ.get(name) for name in mine}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _timed(ctx: Context, seconds: dict[str, float], stage: str, way: str, call: Callable[[], T]) -> T:
    begin = time.monotonic_ns()
    result = call()
    end = time.monotonic_ns()
    ctx.emit.span("comm", f"{way}: {stage}", begin, end)
    seconds[stage] = (end - begin) / 1e9
    return result
