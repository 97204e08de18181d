"""ZeRO-3: parameters, gradients and optimizer state sharded; each layer is whole only while it is used.

Before a layer's forward its parameters are all-gathered, after it they are freed; backward gathers them again
and reduce-scatters the gradients. A rank moves 3 Psi (N-1)/N elements a step, half as much again as data
parallelism, and keeps 1/N of everything but the layer at work and the next one, which is gathered ahead.
Rajbhandari et al. 2020, "ZeRO", section 5.3; Zhao et al. 2023, "PyTorch FSDP".

Parameters outside the layers (embedding, head) form the root unit, which stays whole from forward to
`finish`. A weight tied across units belongs to the root. On a 2D mesh (hybrid sharding) the parts are shared
out within `comms`, say one node, and `replicate` joins the ranks of other nodes that hold the same part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from labs.comms import Comms
from labs.parallel.clipping import clip_sharded_gradients
from labs.parallel.replica import broadcast_buffers
from labs.parallel.shard_unit import ShardUnit
from labs.parallel.units import AfterBackward, map_tensors, split_units

Observer = Callable[[ShardUnit, Literal["gathered", "freed"]], None]


class Group:
    """The shard units of one layer: they differ in dtype or in being trainable, and move together."""

    def __init__(self, shards: Sequence[ShardUnit]) -> None:
        self.shards = list(shards)
        self.in_backward = False
        self.calls = 0
        """Forwards whose backward is still to come."""


class FullyShardedDataParallel(nn.Module):
    """Wraps any module; every rank calls forward, backward, `finish`, and then its optimizer's step.

    `parameters()` are this rank's pieces, one-dimensional, some of them empty: build the optimizer on them
    after wrapping. The optimizer must treat elements independently, as Adam does.

    Args:
        module: the module to shard, in place. Rank 0's parameters and buffers are broadcast.
        comms: the ranks that share the parameters out.
        replicate: the ranks of other shards that hold the same part (hybrid sharding).
        compute_dtype: gather, compute and reduce in this dtype, while the pieces stay as they are (masters).
            Buffers keep theirs, so a module that adds one to its activations must cast it.
        layers: the units; by default the members of every outermost ModuleList or Sequential.
        replicate_below: parameters of fewer elements are kept whole everywhere and all-reduced.
        prefetch: gather the next layer while this one computes.
        offload: keep the pieces, their gradients and so the optimizer's state in the CPU's memory. Without
            a GPU that is where they are already.
        observer: told whenever a unit is gathered or freed.
    """

    def __init__(
        self,
        module: nn.Module,
        comms: Comms,
        *,
        replicate: Comms | None = None,
        compute_dtype: torch.dtype | None = None,
        layers: Sequence[nn.Module] | None = None,
        replicate_below: int = 0,
        prefetch: bool = True,
        offload: bool = False,
        observer: Observer | None = None,
    ) -> None:
        super().__init__()
        self.module = module
        self.comms = comms
        self.compute_dtype = compute_dtype
        self._everyone = [comms, replicate] if replicate is not None else [comms]
        self._prefetch = prefetch
        self._observer = observer
        self._synchronise = True
        self._order: list[Group] = []
        self._last_order: list[Group] = []
        self._reducing: Group | None = None
        self._used: set[nn.Parameter] = set()
        self._names = [name for name, _ in module.named_parameters()]
        for group_comms in self._everyone:
            broadcast_buffers(module, group_comms)
        self.groups: list[Group] = []
        home = torch.device("cpu") if offload else None
        for layer, kinds in split_units(module, layers, replicate_below):
            shards = [
                ShardUnit(owned, None, self._everyone, compute_dtype, home)
                if small
                else ShardUnit(owned, comms, self._everyone[1:], compute_dtype, home)
                for small, owned in kinds
            ]
            self.groups.append(Group(shards))
            if layer is not module:
                self._hook(layer, self.groups[-1])
        self._root = self.groups[0]

    @property
    def units(self) -> list[ShardUnit]:
        """All shard units, the root's first."""
        return [shard for group in self.groups for shard in group.shards]

    def _hook(self, layer: nn.Module, group: Group) -> None:
        layer.register_forward_pre_hook(partial(self._before_forward, group), with_kwargs=True)
        layer.register_forward_hook(partial(self._after_forward, group), always_call=False)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the wrapped module, inputs cast to `compute_dtype`."""
        self._last_order, self._order = self._order or self._last_order, []
        for group in self.groups:
            if group.in_backward:
                # The first layer's inputs need no gradient, so nothing told the end of its backward.
                group.in_backward = False
                self._release(group)
        self._have(self._root)
        if self.compute_dtype is not None:
            args, kwargs = map_tensors(self._cast, (args, kwargs))
        output = self.module(*args, **kwargs)
        if not torch.is_grad_enabled():
            self._release(self._root)
        return output

    def _cast(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.compute_dtype) if tensor.is_floating_point() else tensor

    def _have(self, group: Group) -> None:
        for shard in group.shards:
            if shard.gather() and self._observer:
                self._observer(shard, "gathered")

    def _release(self, group: Group) -> None:
        for shard in group.shards:
            if shard.free() and self._observer:
                self._observer(shard, "freed")

    def _before_forward(self, group: Group, _layer: nn.Module, args: Any, kwargs: Any) -> Any:
        self._have(group)
        if not group.in_backward:
            self._order.append(group)
            self._ahead(group, self._last_order)
        if not torch.is_grad_enabled() or group.in_backward:
            return None
        inputs: list[Tensor] = []
        map_tensors(lambda t: inputs.append(t) if t.requires_grad else None, (args, kwargs))
        if not inputs:
            return None
        group.calls += 1
        marked = iter(AfterBackward.apply(partial(self._after_backward, group), *inputs))  # type: ignore[no-untyped-call]
        return map_tensors(lambda t: next(marked) if t.requires_grad else t, (args, kwargs))

    def _after_forward(self, group: Group, _layer: nn.Module, _args: Any, output: Any) -> None:
        if group.in_backward:
            return
        if torch.is_grad_enabled():
            watch = partial(self._before_backward, group)
            map_tensors(
                lambda t: t.register_hook(watch) if t.requires_grad else None,  # type: ignore[no-untyped-call]
                output,
            )
        self._release(group)

    def _before_backward(self, group: Group, _gradient: Tensor) -> None:
        group.in_backward = True
        self._have(group)
        self._ahead(group, list(reversed(self._order)))

    def _ahead(self, group: Group, order: Sequence[Group]) -> None:
        """Start to gather what follows this layer, so that it has arrived when it is needed."""
        if not self._prefetch or group not in order:
            return
        place = order.index(group) + 1
        for following in order[place : place + 1]:
            for shard in following.shards:
                shard.begin_gather()

    def _after_backward(self, group: Group) -> None:
        """The layer's backward is over: free its parameters and send its gradients on their way."""
        group.calls -= 1
        if group.calls:
            return
        group.in_backward = False
        self._release(group)
        if self._synchronise:
            self._reduce(group)

    def _reduce(self, group: Group) -> None:
        self._settle()
        for shard in group.shards:
            if shard.trainable:
                self._used.update(o for o, used in zip(shard.whole, shard.used, strict=True) if used)
                shard.begin_reduce()
        self._reducing = group

    def _settle(self) -> None:
        """Wait for the reduction in flight; one at a time bounds the memory of whole gradients."""
        if self._reducing is not None:
            for shard in self._reducing.shards:
                if shard.trainable:
                    shard.end_reduce()
            self._reducing = None

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backwards inside keep whole local gradients (Psi a rank); the next one outside reduces the sum."""
        before, self._synchronise = self._synchronise, False
        try:
            yield
        finally:
            self._synchronise = before

    def finish(self) -> None:
        """Reduce what backward left, wait, free what is whole; each piece then has its mean gradient.

        Call it on every rank after the last backward of a step (and after any other outside `no_sync`).
        """
        self._settle()
        for group in reversed(self.groups):
            self._release(group)
            group.in_backward, group.calls = False, 0
        trainable = [(group, shard) for group in self.groups for shard in group.shards if shard.trainable]
        flags = self._agree([shard for _, shard in trainable])
        for group in reversed(self.groups):
            if any(any(flags[shard][0]) for shard in group.shards if shard.trainable):
                self._reduce(group)
                self._settle()
        for _, shard in trainable:
            shard.expose(flags[shard][1])
        self._used.clear()

    def _agree(self, shards: Sequence[ShardUnit]) -> dict[ShardUnit, tuple[list[bool], list[bool]]]:
        """Tell every rank which parameters have unreduced gradients on any rank, and which were used at all.

        Two bytes a parameter: without them a rank whose step used a layer would wait for one whose did not.
        """
        local = [
            flag
            for shard in shards
            for whole, left in zip(shard.whole, shard.used, strict=True)
            for flag in (left, left or whole in self._used)
        ]
        if not local:
            return {shard: ([], []) for shard in shards}
        told = torch.tensor(local, dtype=torch.uint8, device=shards[0].device)
        for comms in self._everyone:
            comms.all_reduce(told, op="max")
        flags = iter(bool(flag) for flag in told.tolist())
        agreed = {}
        for shard in shards:
            pairs = [(next(flags), next(flags)) for _ in shard.whole]
            agreed[shard] = ([left for left, _ in pairs], [used for _, used in pairs])
        return agreed

    def clip_grad_norm(self, max_norm: float) -> Tensor:
        """After `finish`: scale gradients to a global 2-norm of `max_norm` at most; return it as it was."""
        sharded = [p for shard in self.units if shard.scatter for _, p in shard.pieces]
        whole = [p for shard in self.units if not shard.scatter for _, p in shard.pieces]
        return clip_sharded_gradients(sharded, max_norm, self.comms, whole)

    def full_parameters(self) -> dict[str, Tensor]:
        """Return whole copies of the master parameters, by the module's names, on every rank. Collective."""
        found: dict[str, Tensor] = {}
        for shard in self.units:
            found.update(shard.assemble())
        return {name: found[name] for name in self._names}

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return this rank's pieces (and the buffers) under the module's names."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load this rank's pieces, as `state_dict` gave them with the same number of ranks."""
        return self.module.load_state_dict(state_dict, strict, assign)
