"""The models that the tp lab trains, whole and split, and how they are trained and compared alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from labs.comms import Comms
from labs.language_model import LanguageModel, LanguageModelConfig, next_byte_loss
from labs.models import DeepMLP, output_loss
from labs.parallel.tensor import finish_partial_gradients, local, slices_of
from labs.parallel.tensor_models import GatheredMLP, PairedMLP, split_language_loss, split_language_model
from labs.parallel.tensor_ops import slice_along
from labs.tensor_parallel.spec import TensorParallelParams
from labs.worst import worst

Batch = tuple[Tensor, Tensor]


@dataclass
class Subject:
    """One model with its loss: the split one and the whole one are two of these.

    `twin` maps a parameter's name in the split model to its name in the whole one; `transposed` says that
    matrices lie the other way round there. `around` is entered for forward and backward; `finish` completes
    the gradients. `split_dims` has the dimension along which each split parameter is cut.
    """

    module: nn.Module
    loss: Callable[[Batch], Tensor]
    twin: Callable[[str], str] = lambda name: name
    transposed: bool = False
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    finish: Callable[[], None] = lambda: None
    split_dims: dict[str, int] = field(default_factory=dict)

    def held(self) -> int:
        """Return how many elements of parameters this rank holds."""
        return sum(local(p.detach()).numel() for p in self.module.parameters())

    def kept_whole(self) -> int:
        """Return how many elements of parameters every rank holds."""
        named = self.module.named_parameters()
        return sum(p.numel() for name, p in named if name not in self.split_dims)


def build(params: TensorParallelParams, seed: int) -> nn.Module:
    """Return the full model, drawn from `seed` (ranks draw differently; rank 0's values are broadcast)."""
    if params.model == "mlp":
        return DeepMLP(params.dim, params.layers, seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LanguageModel(LanguageModelConfig(params.dim, params.layers, params.heads, params.context))


def whole_subject(module: nn.Module, params: TensorParallelParams) -> Subject:
    """Return the model as one process trains it."""
    if params.model == "mlp":
        return Subject(module, lambda batch: output_loss(module(batch[0])))
    return Subject(module, lambda batch: next_byte_loss(module(batch[0]), batch[1]))


def split_subject(full: nn.Module, params: TensorParallelParams, comms: Comms) -> Subject:
    """Return the split model; `full` is equal on all ranks and may be taken apart."""
    if params.variant == "dtensor":
        return _by_torch(full, params, comms)
    subject = _by_us(full, params, comms)
    subject.split_dims = slices_of(subject.module)
    subject.finish = lambda: finish_partial_gradients(subject.module, comms, params.sequence_parallel)
    return subject


def _by_us(full: nn.Module, params: TensorParallelParams, comms: Comms) -> Subject:
    if isinstance(full, LanguageModel):
        split = split_language_model(full, comms, params.sequence_parallel)
        return Subject(split, lambda batch: split_language_loss(split(batch[0]), batch[1], comms))
    assert isinstance(full, DeepMLP)
    if params.variant == "gather":
        columns = GatheredMLP(full, comms)
        return Subject(columns, lambda batch: output_loss(columns(batch[0])))
    pairs = PairedMLP(full, comms)
    return Subject(pairs, lambda batch: output_loss(pairs(batch[0])), twin_of_pair)


def _by_torch(full: nn.Module, params: TensorParallelParams, comms: Comms) -> Subject:
    """The same model by `parallelize_module`, on a mesh over the ranks of the world."""
    from labs.parallel import tensor_torch  # loads DTensors, which the other variants do without

    mesh = init_device_mesh(comms.recorder.device.type, (comms.world_size,), mesh_dim_names=("tp",))
    if isinstance(full, LanguageModel):
        split = tensor_torch.parallelize_language_model(full, mesh, params.sequence_parallel)
        subject = Subject(split, lambda batch: local(next_byte_loss(split(batch[0]), batch[1])))
    else:
        assert isinstance(full, DeepMLP)
        pairs = tensor_torch.parallelize_mlp(full, mesh)
        subject = Subject(pairs, lambda batch: output_loss(pairs(batch[0])), twin_of_pair, transposed=True)
    subject.split_dims = tensor_torch.placed_slices(subject.module)
    subject.around = lambda: tensor_torch.booking(comms)
    subject.finish = lambda: tensor_torch.finish_gradients(subject.module)
    return subject


def twin_of_pair(name: str) -> str:
    """Return the whole model's name of a pair's matrix: `pairs.1.row` is `layers.3.weight`."""
    _, pair, kind = name.removesuffix(".weight").split(".")
    return f"layers.{2 * int(pair) + (kind == 'row')}.weight"


def layers_of(module: nn.Module) -> nn.ModuleList:
    """Return the layers (of the MLP in pairs: the pairs) of a model of the lab, in order."""
    layers = next(child for child in module.children() if isinstance(child, nn.ModuleList))
    assert isinstance(layers, nn.ModuleList)
    return layers


def compare(split: Subject, alone: Subject, comms: Comms, *, gradient: bool) -> float:
    """Return how far this rank's slices are from the whole model's, of gradients or of parameters.

    Gradients: the largest difference over the largest element of all. Parameters: the root of summed squares.
    """
    twins = dict(alone.module.named_parameters())
    farthest, largest, squares = 0.0, 1e-30, 0.0
    for name, mine in split.module.named_parameters():
        theirs = twins[split.twin(name)]
        a, b = (mine.grad, theirs.grad) if gradient else (mine.detach(), theirs.detach())
        if a is None or b is None:
            return math.inf
        a = local(a)
        b = b.T if split.transposed else b
        if name in split.split_dims:
            b = slice_along(b, split.split_dims[name], comms)
        if a.shape != b.shape:
            return math.inf
        farthest = worst((farthest, float((a - b).abs().max())))
        largest = max(largest, float(b.abs().max()))
        squares += float((a - b).double().square().sum())
    return farthest / largest if gradient else math.sqrt(squares)


def way(now: nn.Module, start: nn.Module) -> float:
    """Return how far a model's parameters went: the root of the summed squares."""
    pairs = zip(now.parameters(), start.parameters(), strict=True)
    return math.sqrt(sum(float((a - b).detach().double().square().sum()) for a, b in pairs))
