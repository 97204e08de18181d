"""What pipeline stages send each other: activations forwards, gradients backwards, and once their shapes.

Deadlock cannot happen here. Sends are asynchronous and their tensors are kept until they have left. A message
is matched by its order alone, and both sides know the whole schedule: the receiver posts its receives from
each peer in the order in which that peer's row sends them. So a rank only ever waits for a message whose
sender gets there by the schedule alone, and the validator has shown that the schedule gets there.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from labs.parallel.schedule_actions import Action, Schedule, dependency

MAX_DIMS = 7
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class Pending(Protocol):
    """A transfer under way."""

    def wait(self) -> object:
        """Return when the transfer is done."""


class Wire(Protocol):
    """How a tensor gets from one rank of the pipeline to another; messages of a pair arrive in their order.

    `labs.comms.Comms` is one. `fields` tell the span which stage and micro-batch it is about.
    """

    def isend(self, tensor: Tensor, dst: int, **fields: Any) -> Pending:
        """Start to send `tensor` to the pipeline's rank `dst`."""

    def irecv(self, tensor: Tensor, src: int, **fields: Any) -> Pending:
        """Start to receive into `tensor` from the pipeline's rank `src`."""


class TwoWay:
    """A wire made of one for messages to higher ranks and one for messages to lower ranks.

    NCCL runs the messages of a pair one after another in one stream: two ranks that send to each other first
    and receive afterwards would wait for ever. With a group of its own, each direction keeps its order.
    """

    def __init__(self, rank: int, up: Wire, down: Wire) -> None:
        self._rank, self._up, self._down = rank, up, down

    def isend(self, tensor: Tensor, dst: int, **fields: Any) -> Pending:
        """Start to send `tensor` to rank `dst`."""
        return (self._up if dst > self._rank else self._down).isend(tensor, dst, **fields)

    def irecv(self, tensor: Tensor, src: int, **fields: Any) -> Pending:
        """Start to receive into `tensor` from rank `src`."""
        return (self._up if src < self._rank else self._down).irecv(tensor, src, **fields)


class Boundary(NamedTuple):
    """Shape and dtype of what crosses between two stages, the same in both directions."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class Message(NamedTuple):
    """What an action waits for: the output of a stage for a micro-batch, forwards (F) or backwards (I)."""

    kind: str
    to_stage: int
    micro_batch: int


def awaited(action: Action, num_stages: int) -> Message | None:
    """Return the message that `action` cannot start without, or None."""
    if dependency(action, num_stages) is None:
        return None
    return Message("F" if action.kind == "F" else "I", action.stage, action.micro_batch)


def produced(action: Action, num_stages: int) -> Message | None:
    """Return the message that `action` makes for a neighbouring stage, or None."""
    if action.kind == "F" and action.stage < num_stages - 1:
        return Message("F", action.stage + 1, action.micro_batch)
    if action.kind in "BI" and action.stage > 0:
        return Message("I", action.stage - 1, action.micro_batch)
    return None


class _Sent(NamedTuple):
    """A message under way: its tensor lives until it has left; the peer takes it at `due` of its row."""

    due: int
    tensor: Tensor
    pending: Pending


class Mail:
    """One rank's messages, one pass through the schedule after another."""

    def __init__(
        self, schedule: Schedule, rank: int, wire: Wire, boundaries: dict[int, Boundary], device: torch.device
    ) -> None:
        """`boundaries[s]` is what enters stage s, for the stages of this rank and those behind them."""
        self._schedule, self._rank, self._wire = schedule, rank, wire
        self._boundaries, self._device = boundaries, device
        self._here: dict[Message, Tensor] = {}
        self._posted: dict[Message, tuple[Tensor, Pending]] = {}
        self._outgoing: dict[int, deque[_Sent]] = {peer: deque() for peer in range(schedule.num_ranks)}
        self._coming: dict[int, deque[Message]] = {}
        self._routes: dict[int, tuple[Message, ...]] = {}
        self._made: dict[Message, int] = {}
        self._taken: dict[Message, int] = {}
        for peer, row in enumerate(schedule.rows):
            if peer != rank:
                self._learn(peer, row)

    def _learn(self, peer: int, row: tuple[Action, ...]) -> None:
        """Note what `peer` sends to this rank and takes from it, and where in its row."""
        for index, action in enumerate(row):
            sent = produced(action, self._schedule.num_stages)
            needed = awaited(action, self._schedule.num_stages)
            if sent is not None and self._schedule.rank_of(sent.to_stage) == self._rank:
                self._made[sent] = index
            if needed is not None and self._source(needed) == self._rank:
                self._taken[needed] = index
        self._routes[peer] = tuple(m for m in self._made if self._source(m) == peer)

    def begin(self) -> None:
        """Start a pass: expect from every peer all that its row sends here."""
        self._coming = {peer: deque(messages) for peer, messages in self._routes.items()}

    def post(self, action: Action) -> None:
        """Post the receive that `action` will wait for, and those that its sender sends before it."""
        message = awaited(action, self._schedule.num_stages)
        if message is None:
            return
        peer = self._source(message)
        coming = self._coming.get(peer)
        while coming and message not in self._posted:
            following = coming.popleft()
            boundary = self._boundary(following)
            buffer = torch.empty(boundary.shape, dtype=boundary.dtype, device=self._device)
            fields = {"stage": following.to_stage, "micro_batch": following.micro_batch}
            self._posted[following] = (buffer, self._wire.irecv(buffer, peer, **fields))

    def take(self, action: Action) -> Tensor | None:
        """Wait for what `action` needs from another stage and return it; None if it needs nothing."""
        message = awaited(action, self._schedule.num_stages)
        if message is None:
            return None
        if message in self._here:
            return self._here.pop(message)
        self.post(action)
        tensor, pending = self._posted.pop(message)
        pending.wait()
        self._let_go(self._source(message), self._made[message])
        return tensor

    def send(self, action: Action, result: Tensor | None) -> None:
        """Send what `action` made to the stage that waits for it, if one does; returns at once."""
        message = produced(action, self._schedule.num_stages)
        if message is None or result is None:
            return
        peer = self._schedule.rank_of(message.to_stage)
        if peer == self._rank:
            self._here[message] = result.detach()
            return
        tensor = result.detach().contiguous()
        fields = {"stage": action.stage, "micro_batch": action.micro_batch}
        pending = self._wire.isend(tensor, peer, **fields)
        self._outgoing[peer].append(_Sent(self._taken[message], tensor, pending))

    def finish(self) -> None:
        """Wait until everything sent has left."""
        for peer in self._outgoing:
            self._let_go(peer, len(self._schedule.rows[peer]))

    def _let_go(self, peer: int, reached: int) -> None:
        """Let go of what `peer` has taken before action `reached` of its row.

        Gloo cannot say whether a send has left without waiting for it. But a message that the peer made at
        some action proves that it had taken all it needed before: these waits return at once.
        """
        outgoing = self._outgoing[peer]
        for sent in [sent for sent in outgoing if sent.due <= reached]:
            sent.pending.wait()
            outgoing.remove(sent)

    def _source(self, message: Message) -> int:
        stage = message.to_stage - 1 if message.kind == "F" else message.to_stage + 1
        return self._schedule.rank_of(stage)

    def _boundary(self, message: Message) -> Boundary:
        """A gradient has the shape of the activation whose gradient it is: what enters the stage behind."""
        return self._boundaries[message.to_stage if message.kind == "F" else message.to_stage + 1]


def encode_boundary(boundary: Boundary) -> list[int]:
    """Return the boundary as numbers of fixed length, to be sent before the first tensor.

    Raises:
        ValueError: a dtype that no gradient can have, or too many dimensions.
    """
    shape, dtype = boundary
    if dtype not in DTYPES:
        raise ValueError(f"stages hand on floating point activations, not {dtype}")
    if len(shape) > MAX_DIMS:
        raise ValueError(f"an activation has {len(shape)} dimensions; at most {MAX_DIMS} can be handed on")
    return [DTYPES.index(dtype), len(shape), *shape, *[0] * (MAX_DIMS - len(shape))]


def decode_boundary(numbers: list[int]) -> Boundary:
    """Return the boundary that `encode_boundary` wrote."""
    dtype, dims, *shape = numbers
    return Boundary(tuple(shape[:dims]), DTYPES[dtype])
