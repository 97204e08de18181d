"""Three starts that go wrong, on the real ranks but contained: what torch says, how it reads, what to do.

Each is tried while no process group exists; the exception is caught and told, and the run goes on.
"""

from __future__ import annotations

import datetime
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from labs.bootstrap.groups import forget
from labs.bootstrap.meeting import Meeting
from labs.bootstrap.theory import missing
from labs.context import Context

WAIT_WARNING = b"waitForInput"


class Told(msgspec.Struct, frozen=True):
    """What one rank saw: torch's words (empty: nothing went wrong) and the seconds until they came."""

    words: str
    seconds: float


class Fault(msgspec.Struct, frozen=True):
    """One failed start: what each rank saw, who or what was to blame, and the sentence for the reader."""

    name: str
    told: list[Told]
    failing: list[int]
    """The ranks whose start cannot succeed, known from how the fault was made."""
    expected: str
    """How the blame begins where it was found rightly."""
    blamed: str
    reads: str
    advice: str


def missing_rank(ctx: Context, meeting: Meeting, limit_s: float) -> Fault:
    """The last rank does not come; the others wait for its address until their time limit."""
    last = ctx.world_size - 1
    seen = Told("", 0.0)
    if ctx.rank != last:
        meeting.tell(f"arrived/{ctx.rank}", True)
        seen = _try(lambda: _init(ctx, meeting, "missing", ctx.rank, ctx.world_size, limit_s))
    told = _collect(meeting, "missing", seen)
    arrived = [rank for rank in range(ctx.world_size) if meeting.store.check([f"arrived/{rank}"])]
    absent = missing(arrived, ctx.world_size)
    return Fault(
        "a rank is missing",
        told,
        list(range(last)),
        f"rank {last}",
        "rank " + ", ".join(map(str, absent)),
        "torch names the key that never came; its last number is the rank (of gloo), and not why it is away",
        "look at the log of that rank first, not at those of the ranks that waited",
    )


def port_in_use(ctx: Context, meeting: Meeting, limit_s: float) -> Fault:
    """Rank 0 serves the store on a port on which somebody listens already."""
    seen = Told("", 0.0)
    taken = ""
    if ctx.rank == 0:
        with socket.socket() as somebody:
            somebody.bind(("127.0.0.1", 0))
            somebody.listen()
            port = int(somebody.getsockname()[1])
            limit = datetime.timedelta(seconds=limit_s)
            seen = _try(lambda: TCPStore("127.0.0.1", port, ctx.world_size, True, limit))
            taken = f"port {port}" if "EADDRINUSE" in seen.words or "in use" in seen.words else "not known"
    told = _collect(meeting, "port", seen)
    return Fault(
        "the port is in use",
        told,
        [0],
        "port ",
        meeting.share("port/taken", taken),
        "EADDRINUSE at rank 0, at once; on the other ranks it looks like a rank 0 that never comes",
        "use port 0 and let the system choose (torchrun --standalone does), or find who listens there",
    )


def world_size_too_large(ctx: Context, meeting: Meeting, limit_s: float) -> Fault:
    """All ranks are told of one rank more than were started."""
    size = ctx.world_size + 1
    seen = _try(lambda: _init(ctx, meeting, "large", ctx.rank, size, limit_s))
    told = _collect(meeting, "large", seen)
    return Fault(
        "the world size is too large",
        told,
        list(range(ctx.world_size)),
        f"rank {ctx.world_size}",
        f"rank {ctx.world_size}" if all(one.words for one in told) else "nobody",
        f"every rank waits in vain for rank {ctx.world_size}, which does not exist: as if one were missing",
        "compare WORLD_SIZE with the number of processes that were started on all nodes together",
    )


def world_size_too_small(ctx: Context, meeting: Meeting, limit_s: float) -> Fault:
    """The last rank is told a world size in which it has no place."""
    last = ctx.world_size - 1
    seen = Told("", 0.0)
    if ctx.rank == last:
        seen = _try(lambda: _init(ctx, meeting, "small", ctx.rank, last, limit_s))
    told = _collect(meeting, "small", seen)
    return Fault(
        "the world size is too small",
        told,
        [last],
        f"rank {last}",
        f"rank {last}" if told[last].words else "nobody",
        f"at once, on rank {last} alone: ranks count from 0, so in a world of {last} the last is {last - 1}",
        "give every process the same WORLD_SIZE, and ranks from 0 to WORLD_SIZE - 1",
    )


FAULTS: tuple[Callable[[Context, Meeting, float], Fault], ...] = (
    missing_rank,
    port_in_use,
    world_size_too_large,
    world_size_too_small,
)


def _init(ctx: Context, meeting: Meeting, name: str, rank: int, world_size: int, limit_s: float) -> None:
    dist.init_process_group(
        "gloo",
        store=PrefixStore(name, meeting.store),
        rank=rank,
        world_size=world_size,
        timeout=datetime.timedelta(seconds=limit_s),
    )


def _try(start: Callable[[], object]) -> Told:
    """Call `start`, which should fail; a group that came up after all is taken down."""
    begin = time.monotonic()
    words = ""
    try:
        with without_wait_warnings():
            start()
    except Exception as error:  # torch raises its own types, by version; the words are what is taught
        words = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    seconds = time.monotonic() - begin
    if dist.is_initialized():
        dist.destroy_process_group()
    return Told(words, seconds)


@contextmanager
def without_wait_warnings() -> Iterator[None]:
    """Hold this process's stderr back meanwhile; afterwards pass it on without torch's warnings of a timeout.

    There are two of them a wait and rank, and they say less than the exception that follows and is told.
    """
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            held.seek(0)
            os.write(2, b"".join(line for line in held if WAIT_WARNING not in line))


def _collect(meeting: Meeting, name: str, seen: Told) -> list[Told]:
    """Return what all ranks saw, and make them even again for the next start."""
    told = [msgspec.convert(one, Told) for one in meeting.collect(name, msgspec.to_builtins(seen))]
    forget()
    return told
