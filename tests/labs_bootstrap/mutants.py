"""Broken pieces of the bootstrap lab, one a function; each is called in every rank before the lab runs."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from labs.bootstrap import byhand, faults, lab, sleeps, theory


def wrong_beginning() -> None:
    """Sleeps in turn do not sleep, those at once do so in turn; all are rank 0; new groups add nothing."""
    in_turn = sleeps._sequential
    sleeps._threads = sleeps._processes = in_turn
    sleeps._sequential = lambda *_: None
    lab._place = lambda ctx: theory.Place(0, 0, 0, ctx.world_size, ctx.world_size)
    dist.all_reduce = lambda *_, **__: None


def store_that_lies() -> None:
    """Its counter tells everyone 1, `wait` returns at once, `get` gives everyone the word of rank 0."""
    from torch._C._distributed_c10d import TCPStore

    class Lying:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            self._store = TCPStore(*arguments, **options)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def add(self, key: str, by: int) -> int:
            return 1

        def wait(self, *_: Any) -> None:
            return

        def get(self, key: str) -> bytes:
            found: bytes = self._store.get("hello/0")
            return found

    byhand.TCPStore = Lying  # type: ignore[attr-defined, assignment]


def nothing_goes_wrong() -> None:
    """The starts that should fail do not: nobody is missed, the port is free, any world size will do."""
    faults._init = lambda *_: None
    faults.TCPStore = lambda *_: None  # type: ignore[attr-defined, assignment]
