"""Broken pieces of the bootstrap lab, one a function; each is called in every rank before the lab runs."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from labs.bootstrap import byhand, faults, sleeps


def threads_in_turn() -> None:
    """Threads that are joined one by one."""
    sleeps._threads = sleeps._sequential


class _Store:
    """A TCPStore of which a part is broken."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        from torch._C._distributed_c10d import TCPStore

        self._store = TCPStore(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def counter_that_forgets() -> None:
    """Everyone is told the number 1."""

    class Forgetful(_Store):
        def add(self, key: str, by: int) -> int:
            return 1

    byhand.TCPStore = Forgetful  # type: ignore[attr-defined, assignment]


def wait_that_does_not() -> None:
    """`wait` returns at once."""

    class Impatient(_Store):
        def wait(self, *_: Any) -> None:
            return

    byhand.TCPStore = Impatient  # type: ignore[attr-defined, assignment]


def deaf_neighbour() -> None:
    """`get` gives everyone the word of rank 0."""

    class Deaf(_Store):
        def get(self, key: str) -> bytes:
            found: bytes = self._store.get("hello/0")
            return found

    byhand.TCPStore = Deaf  # type: ignore[attr-defined, assignment]


def group_that_adds_nothing() -> None:
    """The all-reduce of the new groups leaves each rank its own one."""
    dist.all_reduce = lambda *_, **__: None


def nobody_stays_away() -> None:
    """The rank that should be missing comes after all."""

    def complete(ctx: Any, meeting: Any, limit_s: float) -> faults.Fault:
        meeting.tell(f"arrived/{ctx.rank}", True)
        world_size = ctx.world_size
        seen = faults._try(lambda: faults._init(ctx, meeting, "missing", ctx.rank, world_size, limit_s))
        told = faults._collect(meeting, "missing", seen)
        return faults.Fault("a rank is missing", told, [0], f"rank {world_size - 1}", "nobody", "", "")

    faults.FAULTS = (complete,)
