"""The store by hand: set, get, wait and a counter, with the keys as they appear."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable
from typing import Any

from torch._C._distributed_c10d import TCPStore

from labs.bootstrap.meeting import Meeting
from labs.context import Context

HEAD_START_S = 0.1
TIMEOUT = datetime.timedelta(seconds=30)


def use_a_store(ctx: Context, meeting: Meeting, say: Callable[[str], None]) -> None:
    """Serve a TCPStore on rank 0, and let every rank set, wait, get and count in it; rank 0 checks."""
    host = os.environ.get("MASTER_ADDR", "127.0.0.1") if ctx.world_size > 1 else "127.0.0.1"
    served = TCPStore(host, 0, None, True, TIMEOUT, wait_for_workers=False) if ctx.rank == 0 else None
    port = meeting.share("byhand/port", served.port if served else None)
    store = served or TCPStore(host, port, None, False, TIMEOUT)
    say(f"store at {host}:{port}, served by rank 0")
    greeting = f"{ctx.node} pid {os.getpid()}"
    _call(ctx, f"set hello/{ctx.rank}", lambda: store.set(f"hello/{ctx.rank}", greeting))
    say(f"set  hello/{ctx.rank} = {greeting!r}")
    _tell_keys(ctx, meeting, store, "set", say)
    right = (ctx.rank + 1) % ctx.world_size
    _call(ctx, f"wait hello/{right}", lambda: store.wait([f"hello/{right}"], TIMEOUT))
    heard = _call(ctx, f"get hello/{right}", lambda: store.get(f"hello/{right}")).decode()
    say(f"get  hello/{right} = {heard!r}")
    count = _call(ctx, "add counter", lambda: store.add("counter", 1))
    say(f"add  counter, 1 = {count}")
    waited = _wait_for_go(ctx, meeting, store, say)
    _tell_keys(ctx, meeting, store, "all", say)
    seen = meeting.collect("byhand/seen", [greeting, heard, count, waited])
    if ctx.rank == 0:
        _check(ctx, seen, store.add("counter", 0))
    meeting.barrier("byhand/over")


def _wait_for_go(ctx: Context, meeting: Meeting, store: Any, say: Callable[[str], None]) -> float:
    """Wait for a key that rank 0 sets a moment later; returns the seconds waited (0 on rank 0)."""
    meeting.barrier("byhand/ready")
    start = time.monotonic()
    if ctx.rank == 0:
        time.sleep(HEAD_START_S)
        store.set("go", "now")
        say("set  go, after the others have begun to wait for it")
        return 0.0
    _call(ctx, "wait go", lambda: store.wait(["go"], TIMEOUT))
    waited = time.monotonic() - start
    say(f"wait go: came after {waited * 1e3:.0f} ms")
    return waited


def _tell_keys(ctx: Context, meeting: Meeting, store: Any, when: str, say: Callable[[str], None]) -> None:
    """When all ranks are here, rank 0 lists the keys."""
    meeting.barrier(f"byhand/{when}")
    if ctx.rank != 0:
        return
    # The others go on: a count and a list that are asked for one after the other may differ.
    keys = sorted(store.list_keys()) if hasattr(store, "list_keys") else []
    count = len(keys) or store.num_keys()
    ctx.scalar("store/keys", count, "keys")
    say(f"{count} keys: {', '.join(keys)}".rstrip(": "))


def _check(ctx: Context, seen: list[list[Any]], counter: int) -> None:
    n = ctx.world_size
    greetings, heard = [s[0] for s in seen], [s[1] for s in seen]
    ctx.check(
        "store: get returns what another rank set",
        heard == greetings[1:] + greetings[:1],
        measured="; ".join(heard),
        expected="; ".join(greetings[1:] + greetings[:1]),
        shows="each rank read the words of its right-hand neighbour, which it has no connection to",
    )
    ctx.check(
        "store: the counter counts every rank once",
        counter == n and sorted(s[2] for s in seen) == list(range(1, n + 1)),
        measured=" ".join(str(s[2]) for s in seen),
        expected=f"1 to {n}, in any order",
        shows="add is atomic: no two ranks got the same number, so it can deal out ranks",
    )
    shortest = min(s[3] for s in seen[1:])
    ctx.check(
        "store: wait blocks until the key is set",
        shortest >= 0.9 * HEAD_START_S,
        measured=shortest,
        expected=HEAD_START_S,
        unit="s",
        shows="nobody passed before rank 0 had set the key: this is how ranks wait for one another",
    )


def _call(ctx: Context, name: str, call: Callable[[], Any]) -> Any:
    begin = time.monotonic_ns()
    result = call()
    ctx.emit.span("comm", f"store {name}", begin, time.monotonic_ns())
    return result
