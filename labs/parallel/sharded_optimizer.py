"""ZeRO stages 1 and 2: each rank keeps 1/N of the optimizer's state, and in stage 2 of the gradients.

After backward the gradients are reduce-scattered, so each rank holds the mean gradient of its part; it steps
that part with the wrapped optimizer; an all-gather gives everybody the new parameters. Reduce-scatter plus
all-gather move what one all-reduce moves, 2 Psi (N-1)/N elements a rank: memory saved at no cost in traffic.
Stage 2 reduce-scatters each bucket as backward fills it and frees the full gradient at once. Rajbhandari et
al. 2020, "ZeRO", section 5.

The cut goes through parameters at any element, so it is even whatever their sizes. The wrapped optimizer must
therefore treat elements independently: SGD, Adam, AdamW, Adagrad, RMSprop do; LAMB or Muon do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from labs.comms import Comms
from labs.parallel.clipping import clip_sharded_gradients
from labs.parallel.flat_layout import fill_buckets
from labs.parallel.flat_shard import FlatShard
from labs.parallel.optimizer_state import assemble, cut

MEBIBYTE = 1 << 20
MASTER = "master"


class ShardedOptimizer(Optimizer):
    """Wraps an optimizer class so that its state is sharded; give it the parameters of a local module.

    It replaces both data parallelism's gradient averaging and the optimizer: do not all-reduce as well.
    Rank 0's parameters are broadcast, frozen ones too; buffers are the module's, broadcast those yourself.

    Args:
        params: what any optimizer takes: parameters, (name, parameter) pairs, or groups of either.
        optimizer_cls: an element-wise optimizer, built once over this rank's pieces.
        comms: the communicator of the ranks that hold replicas.
        stage: 1 shards the state; 2 shards the gradients too, and leaves every `.grad` None.
        bucket_mb: the most MiB reduce-scattered at once; a larger parameter is sent on its own.
        compute_dtype: turn the parameters into this dtype, in which gradients and parameters then travel,
            and keep this rank's part of a master copy in their own; the optimizer steps the masters.
        **options: the optimizer's options, such as `lr`.
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_cls: Callable[..., Optimizer],
        comms: Comms,
        *,
        stage: Literal[1, 2] = 1,
        bucket_mb: float = 25.0,
        compute_dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        self.comms = comms
        self.compute_dtype = compute_dtype
        self.stage = stage
        self.shards: list[FlatShard] = []
        self.inner: Optimizer | None = None
        self._make = optimizer_cls
        self._options = options
        self._limit = max(1, int(bucket_mb * MEBIBYTE))
        self._members: list[list[FlatShard]] = []
        self._place: dict[nn.Parameter, tuple[FlatShard, int]] = {}
        self._used: set[nn.Parameter] = set()
        self._next = 0
        self._rounds = 0
        self._finished = False
        super().__init__(params, dict(options))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with their own options; their state is sharded on its own. Collective."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        trainable = [p for p in group["params"] if p.requires_grad]
        for frozen in (p for p in group["params"] if not p.requires_grad):
            self.comms.broadcast(frozen.detach(), src=0)
        members = self._shard(trainable)
        self._members.append(members)
        self.shards = [shard for shards in reversed(self._members) for shard in shards]
        extra = {key: value for key, value in group.items() if key not in ("params", "param_names")}
        pieces = {"params": [piece for shard in members for _, piece in shard.pieces], **extra}
        if self.inner is None:
            self.inner = self._make([pieces], **self._options)
        else:
            self.inner.add_param_group(pieces)
        for key, value in self.inner.param_groups[-1].items():
            group.setdefault(key, value)

    def _shard(self, parameters: list[nn.Parameter]) -> list[FlatShard]:
        """Bucket the parameters from the last to the first, as backward meets them."""
        kinds: dict[tuple[torch.dtype, torch.device], list[nn.Parameter]] = {}
        for parameter in reversed(parameters):
            kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
        shards = []
        for members in kinds.values():
            for bucket in fill_buckets([p.nbytes for p in members], self._limit):
                chosen = [members[index] for index in bucket]
                names = [str(len(self._place) + i) for i in bucket]
                shards.append(FlatShard(chosen, names, self.comms, self.compute_dtype))
                for place, parameter in enumerate(chosen):
                    self._place[parameter] = (shards[-1], place)
                    parameter.register_post_accumulate_grad_hook(self._arrived)  # type: ignore[no-untyped-call]
        return shards

    @property
    def _scale(self) -> float:
        return 1.0 / self.comms.world_size

    def _arrived(self, parameter: Tensor) -> None:
        """Stage 2: move the gradient into its bucket, free it, and send full buckets, in order."""
        assert isinstance(parameter, nn.Parameter)
        self._finished = False
        if self.stage == 1:
            return
        shard, place = self._place[parameter]
        if shard.filled[place] or shard in self.shards[: self._next]:
            raise RuntimeError("call finish() after each backward when some parameters may get no gradient")
        shard.fill(place, self._scale)
        self._used.add(parameter)
        parameter.grad = None
        self._launch_ready()

    def _launch_ready(self) -> None:
        while self._next < len(self.shards) and not self.shards[self._next].missing:
            if self._next:
                self._collect(self.shards[self._next - 1])
            self.shards[self._next].launch()
            self._next += 1
        if self._next == len(self.shards) and self.shards:
            self._collect(self.shards[-1])
            self._next = 0
            self._rounds += 1

    def _collect(self, shard: FlatShard) -> None:
        shard.collect(accumulate=self.stage == 2)
        shard.open()

    def finish(self) -> None:
        """Reduce-scatter what is not yet sent; afterwards each piece has its mean gradient. Collective.

        `step` and `clip_grad_norm` do so on their own. In stage 2, where every backward is reduced at once,
        call it after each backward of an accumulation in which some parameters may get no gradient.
        """
        if self.stage == 1:
            self._used = {parameter for parameter in self._place if parameter.grad is not None}
        pending = self._next or any(any(shard.filled) for shard in self.shards)
        if self.shards and (self.stage == 1 or pending or not self._rounds):
            self._send_rest()
        self._expose()
        self._rounds = 0
        self._finished = True

    def _send_rest(self) -> None:
        """Fill what backward left open, one bucket after the other, until this round is sent."""
        rounds = self._rounds
        while self._rounds == rounds:
            shard = self.shards[self._next]
            for place, filled in enumerate(shard.filled):
                if not filled:
                    shard.fill(place, self._scale)
            self._launch_ready()

    def _expose(self) -> None:
        """Agree on which parameters any rank used (one float each), and hand the pieces their gradients."""
        parameters = list(self._place)
        if not parameters:
            return
        flags = torch.tensor([float(p in self._used) for p in parameters], device=parameters[0].device)
        self.comms.all_reduce(flags)
        used = {p: flag > 0 for p, flag in zip(parameters, flags.tolist(), strict=True)}
        for shard in self.shards:
            shard.expose([used[p] for p in shard.parameters])

    def clip_grad_norm(self, max_norm: float) -> Tensor:
        """Scale all gradients so that their global 2-norm is at most `max_norm`; return the norm before."""
        if not self._finished:
            self.finish()
        pieces = [piece for shard in self.shards for _, piece in shard.pieces]
        return clip_sharded_gradients(pieces, max_norm, self.comms)

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Finish the gradients, step this rank's part, all-gather the parameters. Collective."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not self._finished:
            self.finish()
        assert self.inner is not None
        self._copy_options()
        self.inner.step()
        for shard in self.shards:
            shard.refresh()
        self._finished = False
        return loss

    def _copy_options(self) -> None:
        """Let schedulers work: they change this optimizer's groups, the inner one must follow."""
        assert self.inner is not None
        for ours, theirs in zip(self.param_groups, self.inner.param_groups, strict=True):
            theirs.update({key: ours[key] for key in theirs if key not in ("params", "param_names")})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, the full ones and this rank's parts."""
        super().zero_grad(set_to_none)
        for shard in self.shards:
            shard.gradient = None
            for _, piece in shard.pieces:
                piece.grad = None
        self._used.clear()
        self._finished = False

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state, in the unsharded optimizer's own format, on every rank. Collective.

        It loads into the plain optimizer, and into a sharded one with any number of ranks. Where there are
        masters, each parameter's state has one more tensor, `master`.
        """
        packed = super().state_dict()
        held = self._numbered()
        state: dict[Tensor, Any] = dict(self._inner_state)
        if self.compute_dtype is not None:
            state = {piece: {**state.get(piece, {}), MASTER: piece.detach()} for *_, piece in held}
        packed["state"] = assemble(held, state, self.comms)
        return packed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the whole state (of this or of the unsharded optimizer) and keep this rank's pieces.

        Raises:
            ValueError: the groups do not match.
        """
        ours, theirs = self.param_groups, state_dict["param_groups"]
        if [len(g["params"]) for g in ours] != [len(g["params"]) for g in theirs]:
            raise ValueError("the state's parameter groups differ in number or size from this optimizer's")
        for group, saved in zip(ours, theirs, strict=True):
            group.update({k: v for k, v in saved.items() if k not in ("params", "param_names")})
        held, state = self._numbered(), self._inner_state
        cut(held, state, state_dict["state"])
        for *_, piece in held:
            master = state.get(piece, {}).pop(MASTER, None)
            if master is not None:
                piece.data.copy_(master)
        self._copy_options()

    @property
    def _inner_state(self) -> dict[Tensor, Any]:
        assert self.inner is not None
        return self.inner.state

    def _numbered(self) -> list[tuple[int, Tensor, int, int, nn.Parameter]]:
        """This rank's pieces as (number of the parameter, parameter, start, stop, piece)."""
        numbers = {p: i for i, p in enumerate(p for group in self.param_groups for p in group["params"])}
        return [
            (
                numbers[shard.parameters[piece.slot]],
                shard.parameters[piece.slot],
                piece.start,
                piece.stop,
                held,
            )
            for shard in self.shards
            for piece, held in shard.pieces
        ]
