"""The collectives as calls on prepared buffers, out-of-place and in-place, with their exact results.

Everything that need not be timed (allocation, the list of pieces, the choice of names) happens before
`Case.call`. The calls go straight to `torch.distributed`: what is timed here must not pay for telemetry.
torch has no out-of-place all-reduce, broadcast or reduce; out of place, these copy the send buffer into the
receive buffer first, and the copy is part of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.distributed as dist

from labs.bandwidth.theory import CUT_IN_PIECES, REDUCING, Op
from labs.comms import REDUCE_OPS

Placement = Literal["out_of_place", "in_place"]

PLACEMENTS: tuple[Placement, ...] = ("out_of_place", "in_place")
UNTOUCHED = -1
"""What receive buffers hold before: no pattern contains it, so an element never written counts as wrong."""
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Job:
    """Who takes part, and with what: the rank, the world size, the root, the element type, the device."""

    def __init__(
        self,
        rank: int,
        world_size: int,
        device: torch.device,
        dtype: str = "float32",
        reduce_op: str = "sum",
        root: int = 0,
    ) -> None:
        self.rank, self.world_size, self.device, self.root = rank, world_size, device, root
        self.dtype: torch.dtype = getattr(torch, dtype)
        self.reduce_name = reduce_op
        self.reduce_op = REDUCE_OPS[reduce_op]


class Case:
    """One collective at one size: its buffers, the call to time, and what must come out.

    `elements` is the number of elements that S counts (`theory.total_bytes`): of all pieces where the op is
    cut in pieces, of one buffer elsewhere.
    """

    def __init__(self, op: Op, placement: Placement, elements: int, job: Job) -> None:
        self.op, self.placement, self.elements, self.job = op, placement, elements, job
        self.piece = elements // job.world_size if op in CUT_IN_PIECES else elements
        self.send, self.recv = self._buffers()
        self.call: Callable[[], None] = self._call()
        self.reset()

    @property
    def moved_bytes(self) -> int:
        """S as the buffers themselves tell it: the larger of what the op takes in and gives out."""
        return max(self.send.nbytes, self.recv.nbytes)

    def reset(self) -> None:
        """Fill the send buffer with this rank's pattern and everything else with `UNTOUCHED`."""
        self.recv.fill_(UNTOUCHED)
        if self._sends():
            self.send.copy_(_pattern(self.op, self.job, self.job.rank, len(self.send)))
        elif self.placement == "out_of_place":
            self.send.fill_(UNTOUCHED)

    def count_wrong(self) -> int:
        """Return how many elements of this rank's result differ from the definition (NaN counts as wrong)."""
        expected = self._expected()
        if expected is None:
            return 0
        if self.job.reduce_name == "avg" and self.op in REDUCING:
            near = torch.isclose(self.recv, expected, rtol=4 * torch.finfo(self.job.dtype).eps, atol=0)
            return int((~near).sum().item())
        return int((self.recv != expected).sum().item())

    def _sends(self) -> bool:
        return self.op not in ("broadcast", "scatter") or self.job.rank == self.job.root

    def _buffers(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (send, recv). In place the smaller is this rank's slice of the larger, or both are one."""
        n, rank, root = self.job.world_size, self.job.rank, self.job.root
        whole_send = self.op in ("reduce_scatter", "all_to_all") or (self.op == "scatter" and rank == root)
        whole_recv = self.op in ("all_gather", "all_to_all") or (self.op == "gather" and rank == root)
        send = self._empty(self.elements if whole_send else self.piece)
        recv = self._empty(self.elements if whole_recv else self.piece)
        if self.placement == "out_of_place":
            return send, recv
        if whole_send and not whole_recv:
            return send, send.chunk(n)[rank]
        if whole_recv and not whole_send:
            return recv.chunk(n)[rank], recv
        return recv, recv

    def _empty(self, elements: int) -> torch.Tensor:
        return torch.empty(elements, dtype=self.job.dtype, device=self.job.device)

    def _call(self) -> Callable[[], None]:
        match self.op:
            case "all_reduce" | "broadcast" | "reduce":
                return self._one_buffer()
            case "gather" | "scatter":
                return self._rooted_pieces()
            case "send_recv":
                return self._ring()
        send, recv, how = self.send, self.recv, self.job.reduce_op

        def all_gather() -> None:
            _all_gather(recv, send)

        def reduce_scatter() -> None:
            _reduce_scatter(recv, send, op=how)

        def all_to_all() -> None:
            dist.all_to_all_single(recv, send)

        calls = {"all_gather": all_gather, "reduce_scatter": reduce_scatter, "all_to_all": all_to_all}
        return calls[self.op]

    def _one_buffer(self) -> Callable[[], None]:
        send, recv, root, how = self.send, self.recv, self.job.root, self.job.reduce_op
        copies = self.placement == "out_of_place" and self._sends()

        def call() -> None:
            if copies:
                recv.copy_(send)
            if self.op == "all_reduce":
                dist.all_reduce(recv, op=how)
            elif self.op == "reduce":
                dist.reduce(recv, dst=root, op=how)
            else:
                dist.broadcast(recv, src=root)

        return call

    def _rooted_pieces(self) -> Callable[[], None]:
        send, recv, root, n = self.send, self.recv, self.job.root, self.job.world_size
        is_root = self.job.rank == root
        received = list(recv.chunk(n)) if is_root and self.op == "gather" else None
        sent = list(send.chunk(n)) if is_root and self.op == "scatter" else None

        def call() -> None:
            if self.op == "gather":
                dist.gather(send, received, dst=root)
            else:
                dist.scatter(recv, sent, src=root)

        return call

    def _ring(self) -> Callable[[], None]:
        n, rank = self.job.world_size, self.job.rank
        right, left, send, recv = (rank + 1) % n, (rank - 1) % n, self.send, self.recv

        def call() -> None:
            pair = [dist.P2POp(dist.isend, send, right), dist.P2POp(dist.irecv, recv, left)]
            for work in dist.batch_isend_irecv(pair):
                work.wait()

        return call

    def _expected(self) -> torch.Tensor | None:
        """Return what `recv` must hold, built from the definition on this rank alone; None where nothing."""
        op, job, n, rank = self.op, self.job, self.job.world_size, self.job.rank
        if op in ("reduce", "gather") and rank != job.root:
            return None
        if op in ("all_reduce", "reduce"):
            return _reduced(op, job, self.elements)
        if op == "reduce_scatter":
            return _reduced(op, job, self.elements).chunk(n)[rank]
        if op in ("all_gather", "gather"):
            return torch.cat([_pattern(op, job, peer, self.piece) for peer in range(n)])
        if op == "all_to_all":
            return torch.cat([_pattern(op, job, peer, self.elements).chunk(n)[rank] for peer in range(n)])
        if op == "scatter":
            return _pattern(op, job, job.root, self.elements).chunk(n)[rank]
        sender = job.root if op == "broadcast" else (rank - 1) % n
        return _pattern(op, job, sender, self.elements)


def _period(op: Op, job: Job) -> int:
    """The pattern repeats after so many elements; a prime where nothing is reduced, so pieces differ."""
    if op not in REDUCING:
        return 127
    return job.world_size if job.reduce_name == "product" else 4


def _one_period(op: Op, job: Job, rank: int) -> torch.Tensor:
    """One period of `rank`'s pattern: whole numbers that every element type holds exactly, sums too."""
    period = _period(op, job)
    places = torch.arange(period)
    if op not in REDUCING:
        return (places + 7 * rank) % period
    if job.reduce_name == "product":
        return 1 + ((places + rank) % period == 0).long()
    return (places + rank) % period


def _tile(period: torch.Tensor, elements: int, job: Job) -> torch.Tensor:
    repeats = -(-elements // len(period))
    return period.to(dtype=job.dtype, device=job.device).repeat(repeats)[:elements]


def _pattern(op: Op, job: Job, rank: int, elements: int) -> torch.Tensor:
    return _tile(_one_period(op, job, rank), elements, job)


def _reduced(op: Op, job: Job, elements: int) -> torch.Tensor:
    every = torch.stack([_one_period(op, job, rank) for rank in range(job.world_size)])
    match job.reduce_name:
        case "min":
            period = every.amin(dim=0)
        case "max":
            period = every.amax(dim=0)
        case "product":
            period = every.prod(dim=0)
        case "avg":
            period = every.double().mean(dim=0)
        case _:
            period = every.sum(dim=0)
    return _tile(period, elements, job)
