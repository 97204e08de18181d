"""The stages behind one interface, so that the lab's training loop is the same for all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from labs.comms import Comms
from labs.parallel.clipping import clip_sharded_gradients
from labs.parallel.data import FlatDataParallel
from labs.parallel.fully_sharded import FullyShardedDataParallel, Observer
from labs.parallel.master_weights import MasterWeights
from labs.parallel.replica import broadcast_buffers, broadcast_module
from labs.parallel.sharded_optimizer import ShardedOptimizer

BUCKET_MB = 0.1
Change = Callable[[str, nn.Parameter, Literal["gathered", "freed"]], None]
"""Told with a parameter's name, the parameter as it was sharded, and what became of it."""


@dataclass(frozen=True)
class Held:
    """Elements `start` to `stop` of a flattened parameter, and the tensor that holds them here."""

    name: str
    numel: int
    start: int
    stop: int
    tensor: Tensor
    gradient: Tensor | None
    """Flattened, of those elements; None before it is complete."""


@dataclass(frozen=True)
class Options:
    """What all stages are built with; `dtype` is what the model computes in."""

    lr: float
    dtype: torch.dtype = torch.float32
    offload: bool = False

    @property
    def compute_dtype(self) -> torch.dtype | None:
        """The dtype, where it is not the masters'."""
        return None if self.dtype == torch.float32 else self.dtype

    def adamw(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Build the optimizer of all stages."""
        return AdamW(parameters, lr=self.lr)


class Stage(ABC):
    """A model in training on several ranks."""

    module: nn.Module
    inner: Optimizer
    """The one whose state this rank really keeps."""

    @abstractmethod
    def reduce(self) -> None:
        """Between backward and step: complete what a stage must before its memory is looked at."""

    @abstractmethod
    def finish(self) -> None:
        """Complete the mean gradients of all that this rank optimizes."""

    @abstractmethod
    def clip(self, max_norm: float) -> float:
        """After `finish`: clip the gradients by their global norm, and return that norm."""

    @abstractmethod
    def step(self) -> None:
        """Update the parameters and let the gradients go."""

    @abstractmethod
    def held(self) -> Iterator[Held]:
        """Yield what this rank optimizes: whole parameters or its pieces of the masters."""

    @abstractmethod
    def full_parameters(self) -> dict[str, Tensor]:
        """Return all master parameters whole, by name. Collective."""

    def parameters(self) -> Iterable[Tensor]:
        """The tensors that hold parameters now."""
        return self.module.parameters()

    def gradients(self) -> Iterable[Tensor]:
        """The tensors that hold gradients now."""
        return [p.grad for p in self.module.parameters() if p.grad is not None]

    def state(self) -> Iterable[Tensor]:
        """The optimizer's tensors: moments, and masters where the parameters are none."""
        tensors = (t for values in self.inner.state.values() for t in values.values())
        return [t for t in tensors if isinstance(t, Tensor) and t.dim()]

    def memory(self) -> dict[str, int]:
        """Measure: bytes of the memory behind the tensors of each kind, each block counted once."""
        return {
            "parameters": storage_bytes(self.parameters()),
            "gradients": storage_bytes(self.gradients()),
            "optimizer": storage_bytes(self.state()),
        }


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of the storages behind the tensors; views of one storage count once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


class Replicated(Stage):
    """Stage 0: everything on every rank."""

    def __init__(self, module: nn.Module, comms: Comms, options: Options) -> None:
        self.masters: MasterWeights | None = None
        if options.compute_dtype is not None:
            broadcast_module(module, comms)  # before rounding: the masters start equal too
            self.masters = MasterWeights(module.parameters(), options.adamw, options.compute_dtype)
        self.replica = FlatDataParallel(module, comms)
        self.module = module
        self.inner = self.masters.inner if self.masters else options.adamw(module.parameters())

    def reduce(self) -> None:
        """All-reduce the gradients."""
        self.replica.finish()

    def finish(self) -> None:
        """They are complete."""

    def clip(self, max_norm: float) -> float:
        """Every rank has the whole gradient, and so its norm."""
        return float(clip_sharded_gradients([], max_norm, None, self.module.parameters()))

    def step(self) -> None:
        """Every rank does the same step."""
        optimizer = self.masters or self.inner
        optimizer.step()
        optimizer.zero_grad()

    def state(self) -> Iterable[Tensor]:
        """Moments and masters."""
        return [*super().state(), *(self.masters.masters if self.masters else ())]

    def held(self) -> Iterator[Held]:
        """Every parameter, whole."""
        for name, p in self.module.named_parameters():
            yield Held(name, p.numel(), 0, p.numel(), p, None if p.grad is None else p.grad.flatten())

    def full_parameters(self) -> dict[str, Tensor]:
        """They are whole already."""
        names = [name for name, _ in self.module.named_parameters()]
        tensors = self.masters.masters if self.masters else list(self.module.parameters())
        return {name: tensor.detach().clone() for name, tensor in zip(names, tensors, strict=True)}


class ShardedState(Stage):
    """Stages 1 and 2: this rank's part of the optimizer's state, and in stage 2 of the gradients."""

    def __init__(self, module: nn.Module, comms: Comms, options: Options, stage: int) -> None:
        self.module = module
        broadcast_buffers(module, comms)
        self.names = {parameter: name for name, parameter in module.named_parameters()}
        self.sharded = ShardedOptimizer(
            module.parameters(),
            AdamW,
            comms,
            stage=2 if stage == 2 else 1,
            bucket_mb=BUCKET_MB,
            compute_dtype=options.compute_dtype,
            lr=options.lr,
        )
        assert self.sharded.inner is not None
        self.inner = self.sharded.inner

    def reduce(self) -> None:
        """Nothing: backward did it in stage 2, and stage 1 holds whole gradients until its step."""

    def finish(self) -> None:
        """Reduce-scatter what is not yet; `step` will not do so again."""
        self.sharded.finish()

    def clip(self, max_norm: float) -> float:
        """The squares of all parts are summed over the ranks."""
        return float(self.sharded.clip_grad_norm(max_norm))

    def step(self) -> None:
        """Step the part, all-gather the parameters."""
        self.sharded.step()
        self.sharded.zero_grad()

    def gradients(self) -> Iterable[Tensor]:
        """Whole ones after backward in stage 1, the parts of the buckets in stage 2."""
        parts = [shard.gradient for shard in self.sharded.shards if shard.gradient is not None]
        pieces = [held.tensor.grad for held in self.held() if held.tensor.grad is not None]
        return [*super().gradients(), *pieces, *parts]

    def state(self) -> Iterable[Tensor]:
        """Moments, and masters where the parameters are in another dtype."""
        masters = [shard.master for shard in self.sharded.shards if shard.master is not shard.part]
        return [*super().state(), *masters]

    def held(self) -> Iterator[Held]:
        """The pieces that the inner optimizer steps."""
        for shard in self.sharded.shards:
            for piece, tensor in shard.pieces:
                parameter = shard.parameters[piece.slot]
                name = self.names[parameter]
                yield Held(name, parameter.numel(), piece.start, piece.stop, tensor, tensor.grad)

    def full_parameters(self) -> dict[str, Tensor]:
        """Gathered from the ranks' masters."""
        found: dict[str, Tensor] = {}
        for shard in self.sharded.shards:
            found.update(zip((self.names[p] for p in shard.parameters), shard.assemble(), strict=True))
        return {name: found[name] for name in self.names.values()}


class FullySharded(Stage):
    """Stage 3: this rank's part of everything; layers are gathered while they run.

    With `replicate` it is hybrid sharding: `comms` joins the ranks that share one replica out.
    """

    def __init__(
        self,
        module: nn.Module,
        comms: Comms,
        options: Options,
        observer: Observer,
        replicate: Comms | None = None,
    ) -> None:
        self.wrapped = FullyShardedDataParallel(
            module,
            comms,
            replicate=replicate,
            compute_dtype=options.compute_dtype,
            offload=options.offload,
            observer=observer,
        )
        self.module = self.wrapped
        self.inner = options.adamw(self.wrapped.parameters())

    def reduce(self) -> None:
        """Reduce what is left and free what is whole."""
        self.wrapped.finish()

    def finish(self) -> None:
        """They are complete."""

    def clip(self, max_norm: float) -> float:
        """The squares of all parts are summed over the ranks of one replica."""
        return float(self.wrapped.clip_grad_norm(max_norm))

    def step(self) -> None:
        """Step the pieces; nothing moves until the next forward gathers."""
        self.inner.step()
        self.inner.zero_grad()

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
                    yield Held(slot.name, slot.numel, piece.start, piece.stop, tensor, tensor.grad)

    def full_parameters(self) -> dict[str, Tensor]:
        """Gathered from all ranks."""
        return self.wrapped.full_parameters()
