"""What the text says of starting a job: sleeps one after another or at once, who is who, how ranks meet.

Pure data and functions; loads no torch. Times in seconds. Sources: Deep Learning with PyTorch, 2nd ed.,
chapter 16, for the ten sleeps and the three steps; the `torchrun` documentation for the variables.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Way = Literal["env", "tcp", "file", "store"]
Worker = Literal["sequential", "threads", "processes"]

WAYS: tuple[Way, ...] = ("env", "tcp", "file", "store")
STAGES = ("rendezvous", "connect", "first all-reduce", "destroy")
"""The stages of a group's life that are timed, in their order."""

HOW: dict[Way, str] = {
    "env": "env:// reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; rank 0 serves the store",
    "tcp": "tcp://HOST:PORT names the store's place in the call; rank 0 serves it",
    "file": "file://PATH: the store is a file that all ranks can lock and write",
    "store": "a store made by hand is passed in; nothing else needs to be known",
}

VARIABLES: dict[str, str] = {
    "RANK": "this process among all of the job",
    "LOCAL_RANK": "this process among those of its node; chooses its GPU",
    "GROUP_RANK": "this node among all nodes",
    "WORLD_SIZE": "processes in the job",
    "LOCAL_WORLD_SIZE": "processes on this node",
    "MASTER_ADDR": "where the store is served",
    "MASTER_PORT": "and on which port",
    "TORCHELASTIC_RUN_ID": "the job's name at the rendezvous",
    "TORCHELASTIC_RESTART_COUNT": "how often the job was restarted so far",
    "TORCHELASTIC_USE_AGENT_STORE": "True: the launcher already serves the store",
}
"""The variables that torchrun sets for each rank, and what each is for."""


class Place(msgspec.Struct, frozen=True):
    """Who a rank is, by its environment."""

    rank: int
    local_rank: int
    group_rank: int
    world_size: int
    local_world_size: int

    @property
    def consistent(self) -> bool:
        """Whether the numbers fit together: ranks are dealt node by node, equally many to each."""
        return (
            self.rank == self.group_rank * self.local_world_size + self.local_rank
            and 0 <= self.local_rank < self.local_world_size <= self.world_size
            and 0 <= self.rank < self.world_size
        )


def predicted_seconds(how: Worker, jobs: int, sleep: float) -> float:
    """Return how long `jobs` sleeps of `sleep` seconds take; sleepers need no core, so at once like one."""
    return jobs * sleep if how == "sequential" else (sleep if jobs else 0.0)


def mesh_connections(world_size: int) -> int:
    """Return the connections of a full mesh, which gloo makes: one for each pair of ranks."""
    return world_size * (world_size - 1) // 2


def missing(arrived: list[int], world_size: int) -> list[int]:
    """Return the ranks that have not arrived."""
    return [rank for rank in range(world_size) if rank not in arrived]
