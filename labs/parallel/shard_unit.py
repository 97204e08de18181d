"""The parameters of one unit (a layer, or what belongs to no layer) and the moments they are whole.

Between its uses a rank holds its part of the unit: 1/N of the elements, in the master dtype. `gather` brings
the whole into one buffer, cast to the dtype of computation, `free` gives the buffer's memory back, `reduce`
turns whole gradients into this rank's part of their mean. Autograd saved views of the buffer during forward;
its storage is emptied and filled again in place, so those views are right when backward reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labs.comms import Comms, Handle
from labs.parallel.flat_layout import FlatLayout, Piece


@dataclass(frozen=True)
class Owned:
    """A parameter, its name in the module, and the places (module, attribute) that refer to it."""

    name: str
    parameter: nn.Parameter
    places: tuple[tuple[nn.Module, str], ...]


class ShardUnit:
    """Parameters that are gathered, freed and reduced together; all of one dtype, all trainable or none.

    Args:
        owned: the parameters; rank 0's values are broadcast. They are replaced by this rank's pieces.
        scatter: the ranks that share the unit out; None where every rank keeps it whole.
        replicate: ranks of other groups that hold the same part; its mean is taken over them too.
        compute_dtype: the dtype of the gathered parameters and of the gradients on the wire.
        home: where this rank's part, its gradient and so the optimizer's state live between uses; by default
            where the parameters are. The CPU, for parameters on a GPU, is ZeRO-Offload (Ren et al. 2021).
    """

    def __init__(
        self,
        owned: Sequence[Owned],
        scatter: Comms | None,
        replicate: Sequence[Comms],
        compute_dtype: torch.dtype | None,
        home: torch.device | None = None,
    ) -> None:
        # Not the parameters: this rank is to keep its part of them alone.
        self.names = [o.name for o in owned]
        self._places = [o.places for o in owned]
        self.scatter = scatter
        self.replicate = list(replicate)
        first = owned[0].parameter
        self.trainable = first.requires_grad
        self.compute_dtype = compute_dtype or first.dtype
        parts = scatter.world_size if scatter else 1
        self.layout = FlatLayout.of([(o.name, tuple(o.parameter.shape)) for o in owned], parts)
        self.rank = scatter.rank if scatter else 0
        self.device = first.device
        self.part = at_home(self._take_part(owned), home or first.device)
        self.pieces: list[tuple[Piece, nn.Parameter]] = [
            (piece, nn.Parameter(self.part[piece.offset : piece.offset + piece.numel], self.trainable))
            for piece in self.layout.pieces(self.rank)
        ]
        self.buffer = torch.empty(self.layout.padded, dtype=self.compute_dtype, device=first.device)
        # `.data` gives each a version counter of its own: refilling the buffer is no change of the parameter.
        self.whole = [
            nn.Parameter(self.buffer[s.start : s.stop].view(s.shape).data, self.trainable)
            for s in self.layout.slots
        ]
        self.gathering: Handle | None = None
        self.gathered = True
        self.reducing: Handle | None = None
        self.reduced: Tensor | None = None
        self.free()

    @property
    def ranks(self) -> int:
        """Over how many ranks the mean of gradients is taken."""
        count = self.scatter.world_size if self.scatter else 1
        for comms in self.replicate:
            count *= comms.world_size
        return count

    def _take_part(self, whole: Sequence[Owned]) -> Tensor:
        first = whole[0].parameter
        flat = torch.zeros(self.layout.padded, dtype=first.dtype, device=first.device)
        for owned, slot in zip(whole, self.layout.slots, strict=True):
            flat[slot.start : slot.stop].view(slot.shape).copy_(owned.parameter.detach())
        for comms in (self.scatter, *self.replicate):
            if comms is not None:
                comms.broadcast(flat, src=0)
        low, high = self.layout.bounds(self.rank)
        return flat[low:high].clone()

    def begin_gather(self) -> None:
        """Start the all-gather, if the whole is neither here nor on its way."""
        if self.gathered or self.gathering is not None:
            return
        storage = self.buffer.untyped_storage()
        storage.resize_(self.layout.padded * self.buffer.itemsize)
        # Kept until the gather is over: the backend reads from it.
        self._sent: Tensor | None = self.part.to(self.device, self.compute_dtype)
        if self.scatter is None:
            self.buffer.copy_(self._sent)
            self.gathered = True
        else:
            self.gathering = self.scatter.all_gather(self.buffer, self._sent, async_op=True)

    def gather(self) -> bool:
        """Have the whole here and the module's attributes refer to it; return whether it was not before."""
        was_away = not self.gathered
        self.begin_gather()
        if self.gathering is not None:
            self.gathering.wait()
            self.gathering = None
            self.gathered = True
        self._sent = None
        self._refer(self.whole)
        return was_away

    def free(self) -> bool:
        """Give the whole's memory back and refer to the pieces again; return whether it was here."""
        if self.gathering is not None:
            self.gather()
        was_here, self.gathered = self.gathered, False
        self._refer([parameter for _, parameter in self.pieces])
        self.buffer.untyped_storage().resize_(0)
        return was_here

    def _refer(self, parameters: Sequence[nn.Parameter]) -> None:
        for places, parameter in zip(self._places, parameters, strict=True):
            for module, attribute in places:
                module._parameters[attribute] = parameter

    @property
    def used(self) -> list[bool]:
        """For each parameter, whether backward left it a whole gradient that is not yet reduced."""
        return [parameter.grad is not None for parameter in self.whole]

    def begin_reduce(self) -> None:
        """Start to sum the whole gradients over ranks, each rank keeping its part; frees the whole ones."""
        self._full = torch.zeros(self.layout.padded, dtype=self.compute_dtype, device=self.device)
        for parameter, slot in zip(self.whole, self.layout.slots, strict=True):
            if parameter.grad is not None:
                torch.mul(
                    parameter.grad,
                    1.0 / self.ranks,
                    out=self._full[slot.start : slot.stop].view(slot.shape),
                )
                parameter.grad = None
        if self.scatter is None:
            self._incoming = self._full
        else:
            self._incoming = self._full.new_empty(self.layout.part)
            self.reducing = self.scatter.reduce_scatter(self._incoming, self._full, async_op=True)

    def end_reduce(self) -> None:
        """Wait for the reduction and add it to what this rank's part already has."""
        if self.reducing is not None:
            self.reducing.wait()
            self.reducing = None
        for comms in self.replicate:
            comms.all_reduce(self._incoming)
        part = self._incoming.to(self.part.device, self.part.dtype)
        self.reduced = part if self.reduced is None else self.reduced + part
        del self._full, self._incoming

    def expose(self, used: Sequence[bool]) -> None:
        """Add the reduced part to the pieces' gradients, but for parameters that no rank used."""
        if self.reduced is None:
            return
        for (piece, parameter), any_rank in zip(self.pieces, used, strict=True):
            if not any_rank or not piece.numel:
                continue
            part = self.reduced[piece.offset : piece.offset + piece.numel]
            parameter.grad = part if parameter.grad is None else parameter.grad + part
        self.reduced = None

    def assemble(self) -> dict[str, Tensor]:
        """Return whole copies of the master parameters by name, on every rank. Collective."""
        flat = part = self.part.to(self.device)
        if self.scatter is not None:
            flat = part.new_empty(self.layout.padded)
            self.scatter.all_gather(flat, part)
        return {s.name: flat[s.start : s.stop].view(s.shape).clone() for s in self.layout.slots}


def at_home(part: Tensor, home: torch.device) -> Tensor:
    """Return the part where it is to live; in pinned memory where it left a GPU, so that copies are fast."""
    if part.device.type == "cuda" and home.type == "cpu":
        return torch.empty_like(part, device=home, pin_memory=True).copy_(part)
    return part.to(home)
