"""The four stages behind one interface, so that the lab's training loop is the same for all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from labs.comms import Comms
from labs.parallel.data import FlatDataParallel
from labs.parallel.fully_sharded import FullyShardedDataParallel, Observer
from labs.parallel.replica import broadcast_buffers
from labs.parallel.sharded_optimizer import ShardedOptimizer

BUCKET_MB = 0.1


@dataclass(frozen=True)
class Held:
    """Elements `start` to `stop` of a flattened parameter, and the tensor that holds them."""

    name: str
    numel: int
    start: int
    stop: int
    tensor: Tensor


class Stage(ABC):
    """A model in training on several ranks."""

    number: int
    module: nn.Module
    optimizer: Optimizer
    inner: Optimizer
    """The one whose state this rank really keeps."""

    @abstractmethod
    def finish(self) -> None:
        """Complete the gradients, between backward and step, where the stage does not do so in `step`."""

    def step(self) -> None:
        """Update the parameters and let the gradients go."""
        self.optimizer.step()
        self.optimizer.zero_grad()

    @abstractmethod
    def held(self) -> Iterator[Held]:
        """Yield what this rank optimizes: whole parameters or its pieces; `.grad` is their mean gradient."""

    @abstractmethod
    def full_parameters(self) -> dict[str, Tensor]:
        """Return all parameters whole, by name."""

    def parameters(self) -> Iterable[Tensor]:
        """The tensors that hold parameters now."""
        return self.module.parameters()

    def gradients(self) -> Iterable[Tensor]:
        """The tensors that hold gradients now."""
        candidates = [*self.module.parameters(), *(held.tensor for held in self.held())]
        return [p.grad for p in candidates if p.grad is not None]

    def memory(self) -> dict[str, int]:
        """Measure: bytes of the memory behind the tensors of each kind, each block counted once."""
        state = [t for values in self.inner.state.values() for t in values.values() if isinstance(t, Tensor)]
        return {
            "parameters": storage_bytes(self.parameters()),
            "gradients": storage_bytes(self.gradients()),
            "optimizer": storage_bytes(t for t in state if t.dim()),
        }


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of the storages behind the tensors; views of one storage count once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


class Replicated(Stage):
    """Stage 0: everything on every rank."""

    def __init__(self, module: nn.Module, comms: Comms, lr: float) -> None:
        self.number = 0
        self.replica = FlatDataParallel(module, comms)
        self.module = module
        self.optimizer = self.inner = AdamW(module.parameters(), lr=lr)

    def finish(self) -> None:
        """All-reduce the gradients."""
        self.replica.finish()

    def held(self) -> Iterator[Held]:
        """Every parameter, whole."""
        for name, parameter in self.module.named_parameters():
            yield Held(name, parameter.numel(), 0, parameter.numel(), parameter)

    def full_parameters(self) -> dict[str, Tensor]:
        """They are whole already."""
        return {name: parameter.detach().clone() for name, parameter in self.module.named_parameters()}


class ShardedState(Stage):
    """Stages 1 and 2: this rank's part of the optimizer's state, and in stage 2 of the gradients."""

    def __init__(self, module: nn.Module, comms: Comms, lr: float, stage: int) -> None:
        self.number = stage
        self.module = module
        broadcast_buffers(module, comms)
        self.names = {parameter: name for name, parameter in module.named_parameters()}
        sharded = ShardedOptimizer(
            module.parameters(), AdamW, comms, stage=2 if stage == 2 else 1, bucket_mb=BUCKET_MB, lr=lr
        )
        assert sharded.inner is not None
        self.sharded, self.optimizer, self.inner = sharded, sharded, sharded.inner

    def finish(self) -> None:
        """Nothing here: the optimizer reduces what is left in its step."""

    def gradients(self) -> Iterable[Tensor]:
        """Whole ones after backward in stage 1, the parts of the buckets in stage 2."""
        parts = [shard.gradient for shard in self.sharded.shards if shard.gradient is not None]
        return [*super().gradients(), *parts]

    def held(self) -> Iterator[Held]:
        """The pieces that the inner optimizer steps."""
        for shard in self.sharded.shards:
            for piece, tensor in shard.pieces:
                parameter = shard.parameters[piece.slot]
                yield Held(self.names[parameter], parameter.numel(), piece.start, piece.stop, tensor)

    def full_parameters(self) -> dict[str, Tensor]:
        """Every rank has them since the last all-gather."""
        return {name: parameter.detach().clone() for name, parameter in self.module.named_parameters()}


class FullySharded(Stage):
    """Stage 3: this rank's part of everything; layers are gathered while they run."""

    def __init__(self, module: nn.Module, comms: Comms, lr: float, observer: Observer) -> None:
        self.number = 3
        self.wrapped = FullyShardedDataParallel(module, comms, observer=observer)
        self.module = self.wrapped
        self.optimizer = self.inner = AdamW(self.wrapped.parameters(), lr=lr)

    def finish(self) -> None:
        """Reduce what is left and free what is whole."""
        self.wrapped.finish()

    def parameters(self) -> Iterable[Tensor]:
        """The parts, and the buffers of layers that are whole now."""
        for unit in self.wrapped.units:
            yield unit.part
            yield unit.buffer

    def held(self) -> Iterator[Held]:
        """This rank's pieces, empty ones left out."""
        for unit in self.wrapped.units:
            for piece, tensor in unit.pieces:
                slot = unit.layout.slots[piece.slot]
                if piece.numel:
                    yield Held(slot.name, slot.numel, piece.start, piece.stop, tensor)

    def full_parameters(self) -> dict[str, Tensor]:
        """Gathered from all ranks."""
        return self.wrapped.full_parameters()


def make_stage(stage: int, module: nn.Module, comms: Comms, lr: float, observer: Observer) -> Stage:
    """Return the module in training at a stage from 0 to 3."""
    if stage == 0:
        return Replicated(module, comms, lr)
    if stage == 3:
        return FullySharded(module, comms, lr, observer)
    return ShardedState(module, comms, lr, stage)


def lone_step(module: nn.Module, loss: Tensor, optimizer: Optimizer) -> dict[str, Tensor]:
    """One step of one process; returns the gradients by name."""
    torch.autograd.backward(loss)
    gradients = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    optimizer.step()
    optimizer.zero_grad()
    return gradients
