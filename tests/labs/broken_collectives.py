"""Ways for a collective to do the wrong thing; a rank calls one of these before it runs the lab."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import Tensor

from labs.collectives import stepwise
from labs.comms import Comms, Handle

Call = Callable[..., Handle | None]


def _last() -> bool:
    return os.environ["RANK"] == str(int(os.environ["WORLD_SIZE"]) - 1)


def _replace(name: str, call: Callable[..., object]) -> None:
    setattr(Comms, name, call)


def _after(op: str, damage: Callable[[Tensor], object]) -> None:
    """Damage what `op` leaves in its first tensor on the last rank; proofs are left alone."""
    right: Call = getattr(Comms, op)

    def call(self: Comms, result: Tensor, *args: object, **kwargs: object) -> Handle | None:
        handle = right(self, result, *args, **kwargs)
        if self.name != "proof" and _last():
            damage(result)
        return handle

    _replace(op, call)


def broadcast() -> None:
    """The last rank keeps something of its own."""
    _after("broadcast", lambda tensor: tensor[0].add_(1))


def scatter() -> None:
    """Pieces are dealt out in reverse."""
    right: Call = Comms.scatter

    def call(self: Comms, piece: Tensor, pieces: list[Tensor] | None, *rest: object) -> Handle | None:
        return right(self, piece, pieces[::-1] if pieces else None, *rest)

    _replace("scatter", call)


def gather() -> None:
    """The last rank sends another's numbers."""
    right: Call = Comms.gather

    def call(self: Comms, pieces: list[Tensor] | None, piece: Tensor, *rest: object) -> Handle | None:
        return right(self, pieces, piece - 10 if _last() else piece, *rest)

    _replace("gather", call)


def reduce() -> None:
    """The maximum instead of the sum."""
    right: Call = Comms.reduce

    def call(self: Comms, tensor: Tensor, dst: int, _op: str, *rest: object) -> Handle | None:
        return right(self, tensor, dst, "max", *rest)

    _replace("reduce", call)


def all_gather() -> None:
    """One rank has the pieces in another order."""
    _after("all_gather", lambda output: output.copy_(output.roll(1)))


def reduce_scatter() -> None:
    """Every rank gets its right neighbour's piece."""
    right: Call = Comms.reduce_scatter

    def call(self: Comms, output: Tensor, total: Tensor, *rest: object) -> Handle | None:
        return right(self, output, total.roll(-output.numel()), *rest)

    _replace("reduce_scatter", call)


def all_reduce() -> None:
    """One rank counts itself twice."""
    right: Call = Comms.all_reduce

    def call(self: Comms, tensor: Tensor, *rest: object) -> Handle | None:
        return right(self, tensor.mul_(2) if _last() else tensor, *rest)

    _replace("all_reduce", call)


def all_to_all() -> None:
    """Nothing is exchanged."""
    right: Call = Comms.all_to_all

    def call(self: Comms, output: Tensor, total: Tensor, *rest: object) -> Handle | None:
        handle = right(self, output, total, *rest)
        output.copy_(total)
        return handle

    _replace("all_to_all", call)


def barrier() -> None:
    """Nobody waits."""
    _replace("barrier", lambda self, async_op=False: None)


def send_recv() -> None:
    """What arrives is not what was sent."""
    right = Comms.exchange

    def call(
        self: Comms, sends: list[tuple[Tensor, int]], receives: list[tuple[Tensor, int]]
    ) -> list[Handle]:
        return right(self, [(torch.zeros_like(tensor), peer) for tensor, peer in sends], receives)

    _replace("exchange", call)


def fewer_bytes() -> None:
    """The communicator counts only half of an all-reduce."""
    right = Comms._count

    def count(self: Comms, name: str, size: int) -> object:
        return right(self, name, size // 2 if name == "all_reduce" else size)

    _replace("_count", count)


def ring_one_step_short() -> None:
    """The ring stops before the last piece has come round."""
    right = stepwise._gather_round

    def short(comms: Comms, whole: Tensor, pieces: list[Tensor], told: object, first_step: int) -> None:
        kept = pieces[(comms.rank + 1) % comms.world_size].clone()
        right(comms, whole, pieces, told, first_step)  # type: ignore[arg-type]
        pieces[(comms.rank + 1) % comms.world_size].copy_(kept)

    stepwise._gather_round = short  # type: ignore[assignment]


def ring_once_too_often() -> None:
    """Right in the end, but the last piece goes round one step more than it need."""
    right = stepwise._gather_round

    def long(comms: Comms, whole: Tensor, pieces: list[Tensor], told: stepwise.Told, first_step: int) -> None:
        right(comms, whole, pieces, told, first_step)
        rank, world_size = comms.rank, comms.world_size
        stepwise._swap(comms, pieces[rank], pieces[(rank - 1) % world_size])
        told(first_step + world_size - 1, whole)

    stepwise._gather_round = long  # type: ignore[assignment]
