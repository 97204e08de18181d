"""How the ranks agree while they have no process group: through the store that the launcher serves."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
from torch._C._distributed_c10d import PrefixStore, Store

PATIENCE = datetime.timedelta(seconds=60)


class Meeting:
    """Words and barriers through a store that every rank already reaches; each name is used once."""

    def __init__(self, store: Store, rank: int, world_size: int) -> None:
        self.store = PrefixStore("bootstrap", store)
        self.rank, self.world_size = rank, world_size

    def tell(self, name: str, value: Any) -> None:
        """Write a value (anything JSON holds) for all."""
        self.store.set(name, msgspec.json.encode(value).decode())

    def hear(self, name: str) -> Any:
        """Wait for a value that another rank tells, and return it.

        Raises:
            DistStoreError: nobody told it within a minute.
        """
        self.store.wait([name], PATIENCE)
        return msgspec.json.decode(self.store.get(name))

    def share(self, name: str, value: Any = None) -> Any:
        """Return what rank 0 passed, on every rank."""
        if self.rank == 0:
            self.tell(name, value)
            return value
        return self.hear(name)

    def collect(self, name: str, value: Any) -> list[Any]:
        """Return every rank's value, in rank order, on every rank."""
        self.tell(f"{name}/{self.rank}", value)
        return [self.hear(f"{name}/{rank}") for rank in range(self.world_size)]

    def barrier(self, name: str) -> None:
        """Return when every rank has come here."""
        if self.store.add(f"{name}/count", 1) == self.world_size:
            self.store.set(f"{name}/all", "here")
        self.store.wait([f"{name}/all"], PATIENCE)
