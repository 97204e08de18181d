"""PyTorch's own tensor parallelism beside ours: `parallelize_module` on the same models, its bytes booked.

A plan names for each layer how its matrix is split (`ColwiseParallel`, `RowwiseParallel`), and in which
layout activations come and go; parameters become DTensors that know their placement, and the collectives
follow from the layouts. Importing them costs a rank more than a second of a core: import this module only
where it is used. Nothing in it counts bytes, so `Booked` watches the dispatcher and books each
collective with the group's communicator: the traffic is then measured for both in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.utils._python_dispatch import TorchDispatchMode

from labs.comms import Comms
from labs.language_model import LanguageModel, Layer
from labs.models import DeepMLP
from labs.parallel.tensor import SEQUENCE

_functional = torch.ops._c10d_functional
NAMES = {
    _functional.all_reduce.default: "all_reduce",
    _functional.all_gather_into_tensor.default: "all_gather",
    _functional.reduce_scatter_tensor.default: "reduce_scatter",
    _functional.all_to_all_single.default: "all_to_all",
}


class Booked(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Books the collectives that DTensors issue over one group, each waited for where it is issued.

    Raises:
        RuntimeError: a collective over another group, which nobody would count.
    """

    def __init__(self, comms: Comms) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.comms = comms

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Let DTensors unfold first; of what they unfold to, book the collectives."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        name = NAMES.get(func)
        if name is None:
            return func(*args, **(kwargs or {}))
        if args[-1] != getattr(self.comms.group, "group_name", None):
            raise RuntimeError(f"{name} over group {args[-1]!r}, which is not {self.comms.name}'s")
        size = args[0].nbytes * (self.comms.world_size if name == "all_gather" else 1)
        result: list[Any] = []
        self.comms.booked(
            name,
            size,
            lambda: result.append(_functional.wait_tensor.default(func(*args, **(kwargs or {})))),
        )
        return result[0]


@contextmanager
def booking(comms: Comms) -> Iterator[None]:
    """Within: DTensors' collectives are booked, and a cross entropy may have its vocabulary split."""
    with loss_parallel(), Booked(comms):
        yield


class LinearPair(nn.Module):
    """Two layers of the deep MLP as `nn.Linear`, whose weight (out, in) is the layer's transposed."""

    def __init__(self, column: nn.Parameter, row: nn.Parameter) -> None:
        super().__init__()
        self.column, self.row = _linear(column), _linear(row)

    def forward(self, x: Tensor) -> Tensor:
        """(B, dim) to (B, dim)."""
        return F.gelu(self.row(F.gelu(self.column(x))))


class LinearMLP(nn.Module):
    """The deep MLP in pairs of `nn.Linear`, as `parallelize_module` can take it."""

    def __init__(self, full: DeepMLP) -> None:
        super().__init__()
        weights: list[nn.Parameter] = [layer.weight for layer in full.layers]  # type: ignore[misc]
        if len(weights) % 2:
            raise ValueError(f"{len(weights)} layers do not make column-row pairs: give an even number")
        self.pairs = nn.ModuleList(map(LinearPair, weights[::2], weights[1::2]))

    def forward(self, x: Tensor) -> Tensor:
        """(B, dim) to (B, dim)."""
        for pair in self.pairs:
            x = pair(x)
        return x


def _linear(weight: nn.Parameter) -> nn.Linear:
    linear = nn.Linear(weight.shape[0], weight.shape[1], bias=False, device=weight.device, dtype=weight.dtype)
    linear.weight = nn.Parameter(weight.detach().T.contiguous(), weight.requires_grad)
    return linear


def parallelize_mlp(full: DeepMLP, mesh: DeviceMesh) -> LinearMLP:
    """Return the MLP with its pairs split; `full` is equal on all ranks."""
    model = LinearMLP(full)
    plan: dict[str, ParallelStyle] = {"pairs.*.column": ColwiseParallel(), "pairs.*.row": RowwiseParallel()}
    parallelize_module(model, mesh, plan)
    return model


def parallelize_language_model(
    model: LanguageModel, mesh: DeviceMesh, sequence: bool = False
) -> LanguageModel:
    """Split a transformer in place as `labs.parallel.tensor_models` does, by PyTorch's plan; return it.

    With `sequence` norms and residual stream hold slices of the sequence. Embeddings must not be tied:
    `parallelize_module` would split the two ends apart.

    Raises:
        ValueError: tied embeddings.
    """
    if model.head.weight is model.embedding.weight:
        raise ValueError("parallelize_module unties tied embeddings; give a model without")
    stream = Shard(SEQUENCE) if sequence else Replicate()
    norm: dict[str, ParallelStyle] = {"norm": SequenceParallel()} if sequence else {}
    plan: dict[str, ParallelStyle] = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=stream),
        "head": ColwiseParallel(input_layouts=stream, output_layouts=Shard(-1), use_local_output=False),
        **norm,
    }
    parallelize_module(model, mesh, plan)
    for layer in model.layers:
        assert isinstance(layer, Layer)
        layer.attention.heads //= mesh.size()
        parallelize_module(layer, mesh, _layer_plan(stream, sequence))
    return model


def _layer_plan(stream: Shard | Replicate, sequence: bool) -> dict[str, ParallelStyle]:
    """The plan of one layer: a block's input becomes whole once, for all its column-parallel matrices."""
    norms = ("attention_norm", "feed_forward_norm") if sequence else ()
    columns = ("attention.query", "attention.key", "attention.value", "feed_forward.gate", "feed_forward.up")
    rows = ("attention.out", "feed_forward.down")
    return {
        **{name: SequenceParallel() for name in norms},
        "attention": PrepareModuleInput(
            input_layouts=(stream, None), desired_input_layouts=(Replicate(), None)
        ),
        "feed_forward": PrepareModuleInput(input_layouts=(stream,), desired_input_layouts=(Replicate(),)),
        **{name: ColwiseParallel() for name in columns},
        **{name: RowwiseParallel(output_layouts=stream) for name in rows},
    }


def finish_gradients(module: nn.Module) -> None:
    """Bring every DTensor's gradient to its parameter's placement, between backward and the optimizer's step.

    The norms' gradients on sequence slices are partial sums: an all-reduce each. The split embedding's comes
    whole: each rank cuts its slice.
    """
    for parameter in module.parameters():
        gradient = parameter.grad
        if isinstance(parameter, DTensor) and isinstance(gradient, DTensor):
            parameter.grad = gradient.redistribute(placements=parameter.placements)


def placed_slices(module: nn.Module) -> dict[str, int]:
    """Return, by parameter name, the dimension along which DTensor parameters are split."""
    found: dict[str, int] = {}
    for name, parameter in module.named_parameters():
        if isinstance(parameter, DTensor):
            found.update((name, p.dim) for p in parameter.placements if isinstance(p, Shard))
    return found
