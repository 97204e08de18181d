"""The store in which the ranks of a run meet: a new one a run, served by the agent.

torch keeps the servers of a process by their ports and never forgets one that has ended. On a port that had
one before, it would not find the new server but start another beside it, which fails: address already in
use. The system gives ports out again, after some hundred runs of an agent likely one that it had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch._C._distributed_c10d import TCPStore


class Stores:
    """Makes stores for one process, no two of them on the same port."""

    def __init__(self) -> None:
        self._ports: set[int] = set()

    def new(self, address: str) -> TCPStore:
        """Return a store at `address` on a port of the system's choice; it is served while it is held."""
        from torch._C._distributed_c10d import TCPStore

        refused = []  # held until one is found: the system gives no port twice at once
        while True:
            store = TCPStore(address, 0, is_master=True, wait_for_workers=False, multi_tenant=True)
            if store.port not in self._ports:
                self._ports.add(store.port)
                return store
            refused.append(store)
