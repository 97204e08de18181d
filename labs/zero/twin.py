"""PyTorch's own `fully_shard` as a stage: the twin of ours, its collectives booked like ours.

It shards each parameter by rows (dimension 0) where ours cuts one flat buffer, keeps DTensors as the shards,
and reduces within backward. Its all-gather and reduce-scatter can be replaced: here by calls of `labs.comms`,
so bytes and spans are measured as for the other stages. Importing it costs a rank more than a second of a
core: import this module only where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from labs.comms import Comms, Handle
from labs.parallel.clipping import clip_sharded_gradients
from labs.parallel.replica import broadcast_module
from labs.parallel.tensor import local
from labs.parallel.tensor_torch import Booked
from labs.parallel.units import layers_of
from labs.zero.stages import Change, Held, Options, Stage
from labs.zero.theory import rows_held

OPS = {dist.ReduceOp.SUM: "sum", dist.ReduceOp.AVG: "avg"}


class _Allocating:
    """How PyTorch has buffers made for a collective that is replaced."""

    def __init__(self, comms: Comms) -> None:
        self.comms = comms

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return a buffer of its own for each call."""
        return torch.empty(*size, dtype=dtype, device=device)


class AllGather(_Allocating):
    """All-gather by `labs.comms`, in the form that `set_custom_all_gather` takes."""

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> Handle | None:
        """Gather; the handle has the `wait` that is called."""
        return self.comms.all_gather(output_tensor, input_tensor, async_op)


class ReduceScatter(_Allocating):
    """Reduce-scatter by `labs.comms`, in the form that `set_custom_reduce_scatter` takes."""

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> Handle | None:
        """Reduce and scatter."""
        return self.comms.reduce_scatter(output_tensor, input_tensor, OPS[op], async_op)


class TorchSharded(Stage):
    """`fully_shard` on each layer and then on the root, over all ranks.

    Args:
        module: sharded in place; rank 0's values are broadcast first, which `fully_shard` leaves to others.
        comms: the communicator of the whole world.
        options: learning rate, dtype of computation, whether shards live on the CPU.
        changed: told when a layer's parameters turn whole and when they are shards again.
    """

    def __init__(self, module: nn.Module, comms: Comms, options: Options, changed: Change) -> None:
        broadcast_module(module, comms)
        self.comms = comms
        self.module = module
        self.changed = changed
        self._offloaded = options.offload
        mesh = init_device_mesh(comms.recorder.device.type, (comms.world_size,), mesh_dim_names=("world",))
        dtype = options.compute_dtype
        for unit in (*layers_of(module), module):
            sharded = fully_shard(
                unit,
                mesh=mesh,
                mp_policy=MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype),
                offload_policy=CPUOffloadPolicy() if options.offload else OffloadPolicy(),
            )
            sharded.set_custom_all_gather(AllGather(comms))  # type: ignore[arg-type]
            sharded.set_custom_reduce_scatter(ReduceScatter(comms))  # type: ignore[arg-type]
        self.inner = options.adamw(module.parameters())
        self._whole: set[nn.Module] = set()
        self._looks: list[Callable[[], None]] = []
        names = {inner: name for name, inner in module.named_modules()}
        for layer in layers_of(module):
            self._watch(layer, names[layer])

    def _watch(self, layer: nn.Module, prefix: str) -> None:
        """Look, before and after a layer's forward and backward, whether its parameters are whole.

        The hooks come after PyTorch's own, so they see what those left.
        """
        shards = {f"{prefix}.{name}": p for name, p in layer.named_parameters()}

        def look(*_: Any) -> None:
            whole = not isinstance(next(layer.parameters()), DTensor)
            if whole == (layer in self._whole):
                return
            (self._whole.add if whole else self._whole.discard)(layer)
            for name, parameter in shards.items():
                self.changed(name, parameter, "gathered" if whole else "freed")

        def after(_layer: nn.Module, _args: Any, output: Tensor) -> None:
            look()
            if output.requires_grad:
                output.register_hook(look)  # type: ignore[no-untyped-call]

        layer.register_forward_pre_hook(look)
        layer.register_forward_hook(after)
        self._looks.append(look)

    def reduce(self) -> None:
        """Backward did; see what it left whole."""
        for look in self._looks:
            look()

    def finish(self) -> None:
        """They are complete."""

    def clip(self, max_norm: float) -> float:
        """By PyTorch's own function, which knows DTensors; its sum over ranks is booked.

        Where shards live on the CPU it would sum them there, over a group that talks between GPUs: ours.
        """
        if self._offloaded:
            return float(clip_sharded_gradients(self._local_shards(), max_norm, self.comms))
        with Booked(self.comms):
            norm = nn.utils.clip_grad_norm_(self.module.parameters(), max_norm)
            return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)

    def _local_shards(self) -> list[Tensor]:
        """This rank's rows of each parameter as plain tensors, with their gradients' own memory."""
        shards = []
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                shards.append(local(parameter.detach()))
                shards[-1].grad = local(parameter.grad)
        return shards

    def step(self) -> None:
        """Step the shards."""
        self.inner.step()
        self.inner.zero_grad()

    def parameters(self) -> Iterable[Tensor]:
        """What the module's attributes refer to: shards, or whole parameters where a layer is gathered."""
        return [local(p.detach()) for p in self.module.parameters()]

    def gradients(self) -> Iterable[Tensor]:
        """The shards' gradients."""
        return [local(p.grad) for p in self.module.parameters() if p.grad is not None]

    def state(self) -> Iterable[Tensor]:
        """The shards' moments."""
        return [local(tensor) for tensor in super().state()]

    def held(self) -> Iterator[Held]:
        """This rank's rows of each parameter, none left out but empty ones."""
        for name, p in self.module.named_parameters():
            start, stop = rows_held(tuple(p.shape), self.comms.rank, self.comms.world_size)
            if stop > start:
                gradient = None if p.grad is None else local(p.grad).flatten()
                yield Held(name, p.numel(), start, stop, local(p.detach()), gradient)

    def full_parameters(self) -> dict[str, Tensor]:
        """Gathered from all ranks, on the device on which they talk."""
        found: dict[str, Tensor] = {}
        with Booked(self.comms), torch.no_grad():
            for name, parameter in self.module.named_parameters():
                held = parameter.to(self.comms.recorder.device)
                found[name] = (held.full_tensor() if isinstance(held, DTensor) else held).clone()
        return found
