"""The communicator that a learner's code gets: the calls of `labs.comms`, each announced on the board first.

The bytes move by gloo as in every lab. But an operation starts only when the board has shown that its
partners want the same: a size that does not fit, a partner that never comes and a handle nobody waits for
are told by name instead of hanging or ending the process. Sends are rendezvous, as gloo's and NCCL's large
ones are: a `send` returns when the other side has called `recv`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from labs.comms import Comms, Handle
from labs.exercise_board import Board, MismatchError
from labs.exercise_journal import Journal, WatchedHandle
from labs.recorder import Recorder

_tags = itertools.count(1)
_groups: dict[tuple[int, ...], dist.ProcessGroup] = {}


class WatchedComms(Comms):
    """A communicator whose calls are announced on the board; as `labs.comms.Comms` otherwise."""

    def __init__(
        self,
        recorder: Recorder,
        board: Board,
        group: dist.ProcessGroup | None = None,
        name: str = "world",
        journal: Journal | None = None,
    ) -> None:
        super().__init__(recorder, group, name)
        self.board = board
        self.journal = journal if journal is not None else Journal()
        self._key = f"{name}:{'-'.join(map(str, self.ranks))}"

    def split(self, groups: Sequence[Sequence[int]], name: str) -> WatchedComms:
        """Return the communicator of the one group that holds this rank; every rank names all groups
        alike."""
        mine: dist.ProcessGroup | None = None
        for ranks in map(tuple, groups):
            if ranks not in _groups:
                _groups[ranks] = dist.new_group(list(ranks))
            if self.board.rank in ranks:
                mine = _groups[ranks]
        if mine is None:
            raise ValueError(
                f"no group of {name} holds rank {self.board.rank}: {[list(each) for each in groups]}"
            )
        return WatchedComms(self.recorder, self.board, mine, name, self.journal)

    def over(self, group: dist.ProcessGroup, name: str) -> WatchedComms:
        """Return a communicator of another group that writes into the same journal."""
        return WatchedComms(self.recorder, self.board, group, name, self.journal)

    def all_reduce(self, tensor: Tensor, op: str = "sum", async_op: bool = False) -> Handle | None:
        """Combine all ranks' tensors element by element into everyone's, in place."""
        return self._collective(
            "all_reduce", tensor, op, async_op, lambda: Comms.all_reduce(self, tensor, op, True)
        )

    def broadcast(self, tensor: Tensor, src: int = 0, async_op: bool = False) -> Handle | None:
        """Copy rank `src`'s tensor into everyone's, in place."""
        extra = f"from rank {src}"
        return self._collective(
            "broadcast", tensor, extra, async_op, lambda: Comms.broadcast(self, tensor, src, True)
        )

    def reduce(self, tensor: Tensor, dst: int = 0, op: str = "sum", async_op: bool = False) -> Handle | None:
        """Combine all tensors into rank `dst`'s; the others' contents are then undefined."""
        extra = f"{op}, to rank {dst}"
        return self._collective(
            "reduce", tensor, extra, async_op, lambda: Comms.reduce(self, tensor, dst, op, True)
        )

    def all_gather(self, output: Tensor, piece: Tensor, async_op: bool = False) -> Handle | None:
        """Lay every rank's `piece` into everyone's `output`, in rank order."""
        self._fits("all_gather", "output", output, piece)
        self.journal.gathered.append(StorageWeakRef(output.untyped_storage()))  # type: ignore[no-untyped-call]
        # gloo's thread may refer to its buffer a moment longer than the operation lasts. That the caller has
        # let go of `output` can be seen only if nobody else holds it: so gloo gets a buffer of its own.
        landing = output.new_empty(output.shape)
        return self._collective(
            "all_gather",
            piece,
            "",
            async_op,
            lambda: Comms.all_gather(self, landing, piece, True),
            lambda: output.detach().copy_(landing),
        )

    def reduce_scatter(
        self, output: Tensor, total: Tensor, op: str = "sum", async_op: bool = False
    ) -> Handle | None:
        """Combine all `total`s and leave this rank its piece of the result in `output`."""
        self._fits("reduce_scatter", "total", total, output)
        return self._collective(
            "reduce_scatter", total, op, async_op, lambda: Comms.reduce_scatter(self, output, total, op, True)
        )

    def all_to_all(self, output: Tensor, total: Tensor, async_op: bool = False) -> Handle | None:
        """Send piece i of `total` to rank i and receive a piece of each rank in `output`."""
        return self._collective(
            "all_to_all", total, "", async_op, lambda: Comms.all_to_all(self, output, total, True)
        )

    def gather(
        self, pieces: list[Tensor] | None, piece: Tensor, dst: int = 0, async_op: bool = False
    ) -> Handle | None:
        """Collect every rank's `piece` at rank `dst` (`pieces` there, None elsewhere)."""
        extra = f"to rank {dst}"
        return self._collective(
            "gather", piece, extra, async_op, lambda: Comms.gather(self, pieces, piece, dst, True)
        )

    def scatter(
        self, piece: Tensor, pieces: list[Tensor] | None, src: int = 0, async_op: bool = False
    ) -> Handle | None:
        """Deal rank `src`'s `pieces` (None elsewhere) out, one to each rank."""
        extra = f"from rank {src}"
        return self._collective(
            "scatter", piece, extra, async_op, lambda: Comms.scatter(self, piece, pieces, src, True)
        )

    def barrier(self, async_op: bool = False) -> Handle | None:
        """Return when every rank of the group has come here."""
        return self._collective("barrier", None, "", async_op, lambda: Comms.barrier(self, True))

    def send(self, tensor: Tensor, dst: int) -> None:
        """Send a tensor to rank `dst` of the group; returns when that rank has called `recv`."""
        self.isend(tensor, dst).wait()

    def recv(self, tensor: Tensor, src: int) -> None:
        """Receive from rank `src` of the group into `tensor`, of agreed size and dtype."""
        self.irecv(tensor, src).wait()

    def isend(self, tensor: Tensor, dst: int, **fields: Any) -> WatchedHandle:
        """Begin a send; the tensor must stay unchanged until `wait`."""
        key, peer = self._pair(self.rank, dst)
        tag = next(_tags)
        handle = self._handle("send", f"send to rank {peer}", tensor, lambda: [peer], peer=peer, **fields)
        handle.real = dist.isend(tensor, group=self.group, group_dst=dst, tag=tag)
        self.board.announce(key, f"{tensor.numel()}|{_kind(tensor)}|{list(tensor.shape)}|{tag}")
        handle.ready = lambda: self._taken(f"{key}/taken")
        return handle

    def irecv(self, tensor: Tensor, src: int, **fields: Any) -> WatchedHandle:
        """Begin a receive; the tensor may be read after `wait`."""
        key, peer = self._pair(src, self.rank)
        handle = self._handle("recv", f"recv from rank {peer}", tensor, lambda: [peer], peer=peer, **fields)
        self.board.pursue(lambda: self._receive(handle, tensor, src, key))
        return handle

    def exchange(
        self, sends: Sequence[tuple[Tensor, int]], receives: Sequence[tuple[Tensor, int]]
    ) -> list[Handle]:
        """Begin several sends and receives at once; returns a handle each, sends first."""
        begun: list[Handle] = [self.isend(tensor, peer) for tensor, peer in sends]
        return [*begun, *(self.irecv(tensor, peer) for tensor, peer in receives)]

    def finish(self) -> list[WatchedHandle]:
        """After the learner's function: carry on with what is under way; returns handles nobody waited
        for."""
        forgotten = [handle for handle in self.journal.handles if not handle.asked]
        for handle in forgotten:
            if handle.real is None:
                self.board.wait(handle.ready, f"{handle.text} (never waited for)", handle._missing)
        return forgotten

    def _pair(self, src: int, dst: int) -> tuple[str, int]:
        """The key of the next message between two ranks of the group, and the other one's rank in the
        world."""
        other = dst if src == self.rank else src
        if not 0 <= other < self.world_size:
            raise ValueError(f"rank {other} is not in the group of {self.world_size} ranks")
        if src == dst:
            raise ValueError(f"rank {src} cannot send to itself or receive from itself")
        pair = f"{self._key}/{src}>{dst}"
        side = f"{'s' if src == self.rank else 'r'}{pair}"
        number = self.journal.counts[side]
        self.journal.counts[side] += 1
        return f"{pair}/{number}", self.ranks[other]

    def _receive(self, handle: WatchedHandle, tensor: Tensor, src: int, key: str) -> bool:
        if not self.board.announced([key]):
            return False
        numel, kind, shape, tag = self.board.read([key])[0].split("|")
        if (int(numel), kind) != (tensor.numel(), _kind(tensor)):
            wrong = (
                f"rank {self.ranks[src]} sends {kind} of shape {shape} and "
                f"rank {self.board.rank} receives into {_kind(tensor)} of shape {list(tensor.shape)}"
            )
            self.board.announce(f"{key}/taken", wrong)
            raise MismatchError(wrong)
        self.board.announce(f"{key}/taken", "")
        handle.real = dist.irecv(tensor, group=self.group, group_src=src, tag=int(tag))
        return True

    def _taken(self, key: str) -> bool:
        if not self.board.announced([key]):
            return False
        if wrong := self.board.read([key])[0]:
            raise MismatchError(wrong)
        return True

    def _collective(
        self,
        op: str,
        tensor: Tensor | None,
        extra: str,
        async_op: bool,
        start: Callable[[], Handle | None],
        then: Callable[[], Any] | None = None,
    ) -> Handle | None:
        number = self.journal.counts[self._key]
        self.journal.counts[self._key] += 1
        size = f" of {tensor.numel()} {_kind(tensor)}" if tensor is not None else ""
        brings = f"{op}{f' ({extra})' if extra else ''}{size}"
        keys = {rank: f"{self._key}/c{number}/{rank}" for rank in self.ranks}

        def missing() -> list[int]:
            return [rank for rank, key in keys.items() if not self.board.announced([key])]

        handle = self._handle(op, f"{op} number {number} of group {self.name}", tensor, missing)
        handle.span = {}  # the real call emits its own
        handle.then = then
        queue = self.journal.queues[self._key]
        queue.append(handle)

        def attempt() -> bool:
            if queue[0] is not handle or not self.board.announced(list(keys.values())):
                return False
            queue.popleft()
            _agree(dict(zip(keys, self.board.read(list(keys.values())), strict=True)))
            handle.real = start()
            return True

        self.board.announce(keys[self.board.rank], brings)
        self.board.pursue(attempt)
        if async_op:
            return handle
        handle.wait()
        return None

    def _handle(
        self, name: str, text: str, tensor: Tensor | None, missing: Callable[[], list[int]], **fields: Any
    ) -> WatchedHandle:
        numel, nbytes = (tensor.numel(), tensor.nbytes) if tensor is not None else (0, 0)
        self.journal.calls.append(text)
        self.journal.elements[name] += numel
        handle = WatchedHandle(self, name, text, missing, self.recorder.mark())
        handle.elements = numel
        handle.span = {"bytes": nbytes, "group": self.name, "step": self.recorder.step, **fields}
        self.journal.handles.append(handle)
        return handle

    def _fits(self, op: str, name: str, whole: Tensor, piece: Tensor) -> None:
        """gloo's own words about a buffer of the wrong size name neither of them."""
        if whole.numel() != piece.numel() * self.world_size or whole.dtype != piece.dtype:
            raise ValueError(
                f"{op}: {name} has {whole.numel()} elements of {_kind(whole)}; "
                f"{self.world_size} pieces of {piece.numel()} {_kind(piece)} need "
                f"{self.world_size * piece.numel()}"
            )


def _agree(brought: dict[int, str]) -> None:
    """Refuse a collective to which ranks bring different things; told alike on all of them."""
    kinds: dict[str, list[str]] = {}
    for rank, text in brought.items():
        kinds.setdefault(text, []).append(str(rank))
    if len(kinds) > 1:
        said = [
            f"rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}: {text}" for text, ranks in kinds.items()
        ]
        raise MismatchError(f"in the same place of their programs the ranks call {'; '.join(said)}")


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
