"""The moments when bytes move: thin calls around `torch.distributed`, one span each.

Every span carries the op, the group, a sequence number and S, the bytes by the rule of nccl-tests
(`doc/PERFORMANCE.md`): one buffer for all-reduce, broadcast, reduce, send and recv; the total (ranks x piece)
for all-gather, reduce-scatter, all-to-all, gather and scatter. The sequence number counts the collectives of
this rank in the group: two ranks that do the same work agree on it, and one that lags never arrived.
Ranks in arguments (`src`, `dst`, `peer`) are ranks of the group, not of the world.

gloo numbers sends and receives as well, and under `TORCH_DISTRIBUTED_DEBUG=DETAIL` torch compares these
numbers in every collective. Where ranks send unequally often, use a group that runs no collectives after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from labs.recorder import Mark, Recorder

_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)

REDUCE_OPS = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.AVG,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "product": dist.ReduceOp.PRODUCT,
}


@dataclass
class Traffic:
    """What this rank took part in, by (op, group): how often, and S summed."""

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    bytes: Counter[tuple[str, str]] = field(default_factory=Counter)

    def total(self, op: str, group: str | None = None) -> int:
        """Return S summed over all calls of `op`, in one group or in all."""
        return sum(
            size for (name, where), size in self.bytes.items() if name == op and group in (None, where)
        )


@dataclass
class Ledger:
    """What all communicators of a rank share: sequence numbers, traffic, and the call in progress."""

    sequence: Counter[str] = field(default_factory=Counter)
    members: dict[str, list[int]] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)
    pending: tuple[str, str, int] | None = None
    """Op, group and sequence number of the blocking call that has not returned."""


class Handle:
    """An operation in flight. `wait()` returns when its result may be read; only then is its span known."""

    def __init__(
        self,
        comms: Comms,
        work: Any,
        name: str,
        size: int,
        start: Mark,
        seq: int,
        fields: dict[str, Any],
        then: Callable[[], Any] | None = None,
    ) -> None:
        self._comms = comms
        self._work = work
        self._name = name
        self._start = start
        self._fields = {"step": comms.recorder.step, "bytes": size, "group": comms.name, "seq": seq, **fields}
        self._finished: Mark | None = None
        self._waited = False
        self._then = then
        if comms.recorder.device.type == "cpu":
            # The backend's thread calls this when the bytes have arrived, often before anyone waits. Gloo's
            # sends, receives and reduce-scatters cannot be asked; theirs is the moment when a wait returns.
            with suppress(RuntimeError):
                work.get_future().add_done_callback(self._arrived)

    def _arrived(self, _future: Any) -> None:
        self._finished = self._comms.recorder.mark()

    @property
    def start(self) -> Mark:
        """The moment when the operation was begun."""
        return self._start

    def future(self) -> Any:
        """Return torch's own future of the operation, for code that waits in torch's way."""
        return self._work.get_future()

    def is_completed(self) -> bool:
        """Whether the operation is over; does not wait."""
        return self._waited or bool(self._work.is_completed())

    def wait(self) -> None:
        """Wait for the operation; a second call returns at once.

        Raises:
            RuntimeError: a peer failed, or did not come within the group's timeout.
        """
        if self._waited:
            return
        recorder, fields = self._comms.recorder, self._fields
        since = recorder.mark()
        with self._comms.pending(self._name, fields["seq"]):
            self._work.wait()
        self._waited = True
        if self._then is not None:
            self._then()
        now = recorder.mark()
        recorder.span("comm", self._name, self._start, self._finished or now, **fields)
        recorder.span("idle", f"wait {self._name}", since, now, step=fields["step"], group=self._comms.name)


class Comms:
    """The communicator of one process group, as one of its ranks sees it."""

    def __init__(
        self,
        recorder: Recorder,
        group: dist.ProcessGroup | None = None,
        name: str = "world",
        ledger: Ledger | None = None,
    ) -> None:
        self.recorder = recorder
        self.group = group if group is not None else dist.group.WORLD
        self.name = name
        self.ledger = ledger if ledger is not None else Ledger()
        self.rank = dist.get_rank(self.group)
        self.world_size = dist.get_world_size(self.group)
        self.ledger.members[name] = self.ranks
        # gloo averages since torch 2.13; before, and for what it refuses, a sum is divided.
        self._sum_for_avg = dist.get_backend(self.group) == "gloo" and _torch_version() < (2, 13)

    @property
    def traffic(self) -> Traffic:
        """What this rank took part in so far, in all groups."""
        return self.ledger.traffic

    @property
    def ranks(self) -> list[int]:
        """The group's members as ranks of the world."""
        return dist.get_process_group_ranks(self.group)

    def over(self, group: dist.ProcessGroup, name: str) -> Comms:
        """Return a communicator of another group that shares this one's counters."""
        return Comms(self.recorder, group, name, self.ledger)

    def all_reduce(self, tensor: Tensor, op: str = "sum", async_op: bool = False) -> Handle | None:
        """Combine all ranks' tensors element by element into everyone's, in place. S: one buffer.

        With `async_op` a handle comes back, whose `wait` must be called.
        """
        torch_op, then = self._reducing(op, tensor)
        return self._call(
            "all_reduce",
            tensor.nbytes,
            lambda: dist.all_reduce(tensor, op=torch_op, group=self.group, async_op=async_op),
            async_op,
            then,
        )

    def broadcast(self, tensor: Tensor, src: int = 0, async_op: bool = False) -> Handle | None:
        """Copy rank `src`'s tensor into everyone's, in place. S: one buffer."""
        return self._call(
            "broadcast",
            tensor.nbytes,
            lambda: dist.broadcast(tensor, group=self.group, group_src=src, async_op=async_op),
            async_op,
        )

    def reduce(self, tensor: Tensor, dst: int = 0, op: str = "sum", async_op: bool = False) -> Handle | None:
        """Combine all tensors into rank `dst`'s; the others' contents are then undefined. S: one buffer."""
        torch_op, then = self._reducing(op, tensor)
        return self._call(
            "reduce",
            tensor.nbytes,
            lambda: dist.reduce(tensor, op=torch_op, group=self.group, group_dst=dst, async_op=async_op),
            async_op,
            then,
        )

    def all_gather(self, output: Tensor, piece: Tensor, async_op: bool = False) -> Handle | None:
        """Lay every rank's `piece` into everyone's `output`, in rank order. S: the output."""
        return self._call(
            "all_gather",
            output.nbytes,
            lambda: _all_gather(output, piece, group=self.group, async_op=async_op),
            async_op,
        )

    def reduce_scatter(
        self, output: Tensor, total: Tensor, op: str = "sum", async_op: bool = False
    ) -> Handle | None:
        """Combine all `total`s and leave this rank its piece of the result in `output`. S: `total`."""
        torch_op, then = self._reducing(op, output)
        return self._call(
            "reduce_scatter",
            total.nbytes,
            lambda: _reduce_scatter(output, total, op=torch_op, group=self.group, async_op=async_op),
            async_op,
            then,
        )

    def all_to_all(self, output: Tensor, total: Tensor, async_op: bool = False) -> Handle | None:
        """Send piece i of `total` to rank i and receive a piece of each rank in `output`. S: `total`."""
        return self._call(
            "all_to_all",
            total.nbytes,
            lambda: dist.all_to_all_single(output, total, group=self.group, async_op=async_op),
            async_op,
        )

    def gather(
        self, pieces: list[Tensor] | None, piece: Tensor, dst: int = 0, async_op: bool = False
    ) -> Handle | None:
        """Collect every rank's `piece` at rank `dst` (`pieces` there, None elsewhere). S: all the pieces."""
        return self._call(
            "gather",
            piece.nbytes * self.world_size,
            lambda: dist.gather(piece, pieces, group=self.group, group_dst=dst, async_op=async_op),
            async_op,
        )

    def scatter(
        self, piece: Tensor, pieces: list[Tensor] | None, src: int = 0, async_op: bool = False
    ) -> Handle | None:
        """Deal rank `src`'s `pieces` (None elsewhere) out, one to each rank. S: all the pieces."""
        return self._call(
            "scatter",
            piece.nbytes * self.world_size,
            lambda: dist.scatter(piece, pieces, group=self.group, group_src=src, async_op=async_op),
            async_op,
        )

    def barrier(self, async_op: bool = False) -> Handle | None:
        """Return when every rank of the group has come here. S: 0, only the news travels."""
        devices = [self.recorder.device.index or 0] if self.recorder.device.type == "cuda" else None
        return self._call(
            "barrier",
            0,
            lambda: dist.barrier(group=self.group, async_op=async_op, device_ids=devices),
            async_op,
        )

    def send(self, tensor: Tensor, dst: int) -> None:
        """Send a tensor to rank `dst` of the group and return when it may be overwritten. S: the tensor."""
        self._point("send", tensor, dst, lambda: dist.send(tensor, group=self.group, group_dst=dst))

    def recv(self, tensor: Tensor, src: int) -> None:
        """Receive from rank `src` of the group into `tensor`, of agreed shape and dtype. S: the tensor."""
        self._point("recv", tensor, src, lambda: dist.recv(tensor, group=self.group, group_src=src))

    def isend(self, tensor: Tensor, dst: int, **fields: Any) -> Handle:
        """Begin a send; the tensor must stay unchanged until `wait`. `fields` go into the span."""
        start = self._count("send", tensor.nbytes)
        work = dist.isend(tensor, group=self.group, group_dst=dst)
        return Handle(self, work, "send", tensor.nbytes, start, -1, {"peer": self.ranks[dst], **fields})

    def irecv(self, tensor: Tensor, src: int, **fields: Any) -> Handle:
        """Begin a receive; the tensor may be read after `wait`. `fields` go into the span."""
        start = self._count("recv", tensor.nbytes)
        work = dist.irecv(tensor, group=self.group, group_src=src)
        return Handle(self, work, "recv", tensor.nbytes, start, -1, {"peer": self.ranks[src], **fields})

    def exchange(
        self, sends: Sequence[tuple[Tensor, int]], receives: Sequence[tuple[Tensor, int]]
    ) -> list[Handle]:
        """Begin several sends and receives at once (`batch_isend_irecv`), in no order that could deadlock."""
        calls = [("send", tensor, peer) for tensor, peer in sends]
        calls += [("recv", tensor, peer) for tensor, peer in receives]
        batch = [
            dist.P2POp(
                dist.isend if kind == "send" else dist.irecv, tensor, group=self.group, group_peer=peer
            )
            for kind, tensor, peer in calls
        ]
        starts = [self._count(kind, tensor.nbytes) for kind, tensor, _ in calls]
        works = dist.batch_isend_irecv(batch) if batch else []
        # NCCL coalesces a batch into one work; every handle then waits for the same one.
        works = works if len(works) == len(calls) else works * len(calls)
        return [
            Handle(self, work, kind, tensor.nbytes, start, -1, {"peer": self.ranks[peer]})
            for work, (kind, tensor, peer), start in zip(works, calls, starts, strict=True)
        ]

    def booked(self, name: str, size: int, call: Callable[[], Any]) -> None:
        """Book a collective of this group that another library issues: `call` runs it, and waits for it.

        `size` is S; the library's caller knows it.
        """
        self._call(name, size, call, async_op=False)

    def _point(self, name: str, tensor: Tensor, peer: int, call: Callable[[], Any]) -> None:
        start = self._count(name, tensor.nbytes)
        with self.pending(f"{name} {'to' if name == 'send' else 'from'} rank {self.ranks[peer]}", -1):
            call()
        self.recorder.span(
            "comm",
            name,
            start,
            self.recorder.mark(),
            bytes=tensor.nbytes,
            group=self.name,
            peer=self.ranks[peer],
        )

    def _reducing(self, op: str, result: Tensor) -> tuple[dist.ReduceOp.RedOpType, Callable[[], Any] | None]:
        """Return torch's op, and what is left to do to the result when it is there."""
        if op == "avg" and self._sum_for_avg:
            return dist.ReduceOp.SUM, lambda: result.div_(self.world_size)
        return REDUCE_OPS[op], None

    def _call(
        self,
        name: str,
        size: int,
        call: Callable[[], Any],
        async_op: bool,
        then: Callable[[], Any] | None = None,
    ) -> Handle | None:
        seq = self.ledger.sequence[self.name]
        self.ledger.sequence[self.name] += 1
        start = self._count(name, size)
        if async_op:
            return Handle(self, call(), name, size, start, seq, {}, then)
        with self.pending(name, seq):
            call()
        if then is not None:
            then()
        self.recorder.span("comm", name, start, self.recorder.mark(), bytes=size, group=self.name, seq=seq)
        return None

    def _count(self, name: str, size: int) -> Mark:
        self.ledger.traffic.calls[name, self.name] += 1
        self.ledger.traffic.bytes[name, self.name] += size
        return self.recorder.mark()

    @contextmanager
    def pending(self, name: str, seq: int) -> Iterator[None]:
        """Remember what this rank is waiting in; a call that fails leaves it standing, to be told."""
        self.ledger.pending = (name, self.name, seq)
        self.recorder.emit.waiting(name, self.name, seq)
        yield
        self.ledger.pending = None
        self.recorder.emit.arrived()


def _torch_version() -> tuple[int, int]:
    major, minor, *_ = torch.__version__.split(".")
    return int(major), int(minor)
