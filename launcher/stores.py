"""The store in which the ranks of a run meet: a new one a run, on a port that the agent never had before.

torch keeps the servers of a process by their ports and never forgets one that has ended. On a port that had
one before, it would not find the new server but start another beside it, which fails: address already in
use. The system gives ports out again, after some hundred runs of an agent likely one that it had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar


class Served(Protocol):
    """A store that is served by this process while it is held."""

    @property
    def port(self) -> int:
        """The port that the system chose for it."""


S = TypeVar("S", bound=Served)


class Stores:
    """Makes stores for one process, no two of them on the same port."""

    def __init__(self) -> None:
        self._ports: set[int] = set()

    def new(self, make: Callable[[], S]) -> S:
        """Return what `make` made, on a port that none had before; it is called until there is one."""
        refused = []  # held until then: the system gives no port twice at once
        while True:
            store = make()
            if store.port not in self._ports:
                self._ports.add(store.port)
                return store
            refused.append(store)
