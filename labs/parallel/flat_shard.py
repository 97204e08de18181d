"""A flat buffer of parameters of which this rank owns one part: what the sharded optimizer is made of.

The parameters' `.data` become views of the buffer, so one all-gather into it refreshes all of them, and the
buffer costs nothing beside them. What the inner optimizer sees is this rank's pieces: one-dimensional views
of the part, one for each parameter that the part covers in whole or in part. With a `compute_dtype` the
buffer (hence the parameters and what travels) has that dtype, and the pieces are views of a master copy of
the part in the parameters' own (Micikevicius et al. 2018, "Mixed Precision Training", section 3.1).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from labs.comms import Comms, Handle
from labs.parallel.flat_layout import FlatLayout, Piece


class FlatShard:
    """Some parameters (one dtype, one device) in one buffer, cut evenly among the ranks of `comms`.

    Construction broadcasts rank 0's values, so that replicas that were seeded differently start equal.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        names: Sequence[str],
        comms: Comms,
        compute_dtype: torch.dtype | None = None,
    ) -> None:
        self.comms = comms
        self.parameters = list(parameters)
        named = [(name, tuple(p.shape)) for name, p in zip(names, parameters, strict=True)]
        self.layout = FlatLayout.of(named, comms.world_size)
        low, high = self.layout.bounds(comms.rank)
        whole = self._broadcast()
        self.buffer = whole if compute_dtype is None else whole.to(compute_dtype)
        self.part = self.buffer[low:high]
        self.master = self.part if self.buffer is whole else whole[low:high].clone()
        self._adopt()
        self.pieces: list[tuple[Piece, nn.Parameter]] = [
            (piece, nn.Parameter(self.master[piece.offset : piece.offset + piece.numel]))
            for piece in self.layout.pieces(comms.rank)
            if piece.numel
        ]
        self.gradient: Tensor | None = None
        self.open()

    def _broadcast(self) -> Tensor:
        """Return the parameters end to end, with the values of rank 0."""
        first = self.parameters[0]
        whole = torch.zeros(self.layout.padded, dtype=first.dtype, device=first.device)
        for parameter, slot in zip(self.parameters, self.layout.slots, strict=True):
            whole[slot.start : slot.stop].view(slot.shape).copy_(parameter.detach())
        self.comms.broadcast(whole, src=0)
        return whole

    def _adopt(self) -> None:
        """Let the parameters be views of the buffer."""
        for parameter, slot in zip(self.parameters, self.layout.slots, strict=True):
            parameter.data = self.buffer[slot.start : slot.stop].view(slot.shape)

    def open(self) -> None:
        """Begin a round of gradients: nothing is filled, nothing in flight."""
        self.full: Tensor | None = None
        self.handle: Handle | None = None
        self.filled = [False] * len(self.parameters)
        self.missing = len(self.parameters)

    def fill(self, place: int, scale: float) -> None:
        """Add one parameter's gradient, times `scale`, into the full gradient buffer of this round."""
        if self.full is None:
            self.full = torch.zeros_like(self.buffer)
        slot = self.layout.slots[place]
        gradient = self.parameters[place].grad
        if gradient is not None:
            self.full[slot.start : slot.stop].view(slot.shape).add_(gradient, alpha=scale)
        if not self.filled[place]:
            self.filled[place] = True
            self.missing -= 1

    def launch(self) -> None:
        """Start the reduce-scatter: (N-1)/N of the buffer leaves this rank, the sum of its part arrives."""
        assert self.full is not None
        self.reduced = torch.empty_like(self.part)
        self.handle = self.comms.reduce_scatter(self.reduced, self.full, async_op=True)

    def collect(self, accumulate: bool) -> None:
        """Wait for the reduce-scatter, keep this rank's part, free the full gradient."""
        if self.handle is None:
            return
        self.handle.wait()
        if accumulate and self.gradient is not None:
            self.gradient += self.reduced
        else:
            self.gradient = self.reduced
        del self.reduced
        self.full = None
        self.handle = None

    def expose(self, used: Sequence[bool]) -> None:
        """Give each piece its gradient; None where no rank used the parameter, as in one process."""
        for piece, parameter in self.pieces:
            parameter.grad = None
            if used[piece.slot] and self.gradient is not None:
                part = self.gradient[piece.offset : piece.offset + piece.numel]
                parameter.grad = part.to(parameter.dtype)

    def refresh(self) -> None:
        """All-gather the parts that the ranks updated into everybody's buffer, hence into the parameters."""
        self.comms.all_gather(self.buffer, self.master.to(self.buffer.dtype, copy=True))

    def assemble(self) -> list[Tensor]:
        """Return whole copies of the master parameters, in order, on every rank. Collective."""
        whole = self.master.new_empty(self.layout.padded)
        self.comms.all_gather(whole, self.master.clone())
        return [whole[slot.start : slot.stop].view(slot.shape).clone() for slot in self.layout.slots]
