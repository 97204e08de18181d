"""The labs' two models, split over ranks: the deep MLP by columns or in pairs, the transformer by heads.

Each function takes a full model that is equal on all ranks and returns the same function of its inputs.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from labs.comms import Comms
from labs.language_model import LanguageModel, Layer
from labs.models import DeepMLP
from labs.parallel.tensor import (
    ColumnParallelLinear,
    RowParallelLinear,
    Split,
    VocabParallelEmbedding,
    enter,
)
from labs.parallel.tensor_ops import copy_in, gather_for_all, gather_for_parts, split_cross_entropy, sum_out

FEATURES = -1


class GatheredLayer(Split):
    """gelu(x W_r): columns of a square layer. The input is gathered first, unless it is whole already."""

    def __init__(self, weight: nn.Parameter, comms: Comms, first: bool) -> None:
        super().__init__(comms)
        self.first = first
        self.take("weight", weight, 1)

    weight: nn.Parameter

    def forward(self, x: Tensor) -> Tensor:
        """(B, dim/W), or (B, dim) for the first layer, to (B, dim/W)."""
        x = copy_in(x, self.comms) if self.first else gather_for_parts(x, FEATURES, self.comms)
        return F.gelu(x @ self.weight)


class GatheredMLP(nn.Module):
    """The deep MLP by columns: activations are all-gathered between layers, gradients reduce-scattered."""

    def __init__(self, full: DeepMLP, comms: Comms) -> None:
        super().__init__()
        self.comms = comms
        self.layers = nn.ModuleList(
            GatheredLayer(layer.weight, comms, first=index == 0)  # type: ignore[arg-type]
            for index, layer in enumerate(full.layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, dim) to (B, dim), replicated."""
        for layer in self.layers:
            x = layer(x)
        return gather_for_all(x, FEATURES, self.comms)


class ColumnThenRow(Split):
    """Two layers of the deep MLP with one all-reduce: gelu(sum over ranks of gelu(x A_r) B_r)."""

    def __init__(self, column: nn.Parameter, row: nn.Parameter, comms: Comms) -> None:
        super().__init__(comms)
        self.take("column", column, 1)
        self.take("row", row, 0)

    column: nn.Parameter
    row: nn.Parameter

    def forward(self, x: Tensor) -> Tensor:
        """(B, dim) to (B, dim), replicated on both sides."""
        inner = F.gelu(copy_in(x, self.comms) @ self.column)
        return F.gelu(sum_out(inner @ self.row, self.comms))


class PairedMLP(nn.Module):
    """The deep MLP in column-row pairs: one all-reduce forward and one backward for two layers."""

    def __init__(self, full: DeepMLP, comms: Comms) -> None:
        super().__init__()
        weights: list[nn.Parameter] = [layer.weight for layer in full.layers]  # type: ignore[misc]
        if len(weights) % 2:
            raise ValueError(f"{len(weights)} layers do not make column-row pairs: give an even number")
        self.pairs = nn.ModuleList(
            ColumnThenRow(column, row, comms) for column, row in zip(weights[::2], weights[1::2], strict=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, dim) to (B, dim), replicated."""
        for pair in self.pairs:
            x = pair(x)
        return x


def split_language_model(model: LanguageModel, comms: Comms, sequence: bool = False) -> LanguageModel:
    """Split a transformer in place and return it: heads, hidden features and vocabulary over the ranks.

    Queries, keys and values are column-parallel by whole heads, so each rank attends with its own heads; the
    output projections are row-parallel. The head keeps its columns split: its logits go into
    `split_language_loss`. Tied embeddings stay tied, since both are split by the same words.

    Raises:
        ValueError: heads, hidden width or vocabulary do not divide among the ranks.
    """
    if model.config.heads % comms.world_size:
        raise ValueError(f"{model.config.heads} heads do not divide among {comms.world_size} ranks")
    tied = model.head.weight is model.embedding.weight
    for layer in model.layers:
        assert isinstance(layer, Layer)
        _split_block(layer.attention, ("query", "key", "value"), "out", comms, sequence)
        _split_block(layer.feed_forward, ("gate", "up"), "down", comms, sequence)
        layer.attention.heads //= comms.world_size
        _enter_behind(layer.attention_norm, comms, sequence)
        _enter_behind(layer.feed_forward_norm, comms, sequence)
    _enter_behind(model.norm, comms, sequence)
    head = ColumnParallelLinear(model.head, comms, entered=True)
    embedding = VocabParallelEmbedding(model.embedding, comms, sequence)
    if tied:
        head.weight = embedding.weight
    model._modules.update(embedding=embedding, head=head)
    return model


def _split_block(block: nn.Module, columns: tuple[str, ...], row: str, comms: Comms, sequence: bool) -> None:
    """Split a block's first matrices by columns and its last by rows."""
    for name in columns:
        full = block._modules[name]
        assert isinstance(full, nn.Linear)
        block._modules[name] = ColumnParallelLinear(full, comms, entered=True)
    last = block._modules[row]
    assert isinstance(last, nn.Linear)
    block._modules[row] = RowParallelLinear(last, comms, sequence)


def _enter_behind(norm: nn.Module, comms: Comms, sequence: bool) -> None:
    """Let what a norm returns enter the block once, for all its column-parallel matrices together."""
    norm.register_forward_hook(lambda _module, _inputs, out: enter(out, comms, sequence))


def split_language_loss(logits: Tensor, targets: Tensor, comms: Comms) -> Tensor:
    """Return the mean loss a byte from split logits (B, S, V/W) and whole targets (B, S)."""
    return split_cross_entropy(logits.float().flatten(0, 1), targets.flatten(), comms)
