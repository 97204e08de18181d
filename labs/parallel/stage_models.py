"""Stages of the labs' two models for pipelines whose stages are split by tensors too.

A stage keeps the whole model's names (`layers.3.attention.query.weight`), so that each of its parameters is
found in a model on one process. Stages are cut from one model that is split already; where the first and the
last stage meet on one rank, a tied embedding stays one parameter in both of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from labs.comms import Comms
from labs.language_model import LanguageModel
from labs.models import DeepMLP
from labs.parallel.tensor_models import PairedMLP, split_language_model


class LanguageModelStage(nn.Module):
    """Some layers of a transformer; the first stage embeds bytes, the last gives logits.

    Args:
        model: the whole model, split or not; its modules are used, not copied.
        layers: the numbers of the layers that the stage runs.
        spread: over how many ranks the sequence is split between the layers (sequence parallel), else 1.
    """

    angles: Tensor

    def __init__(self, model: LanguageModel, layers: range, spread: int = 1) -> None:
        super().__init__()
        self.embedding = model.embedding if layers.start == 0 else None
        self.layers = nn.ModuleDict({str(index): model.layers[index] for index in layers})
        last = layers.stop == len(model.layers)
        self.norm = model.norm if last else None
        self.head = model.head if last else None
        self.spread = spread
        self.register_buffer("angles", model.angles, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Take bytes (B, S) or activations (B, S/spread, D); give activations, or logits (B, S, V/W)."""
        length = x.shape[1] * (1 if self.embedding is not None else self.spread)
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers.values():
            x = layer(x, self.angles[:length])
        if self.norm is not None and self.head is not None:
            x = self.head(self.norm(x))
        return x

    @property
    def tied(self) -> list[nn.Parameter]:
        """The table of the embedding and of the head, those that this stage holds."""
        holders = (self.embedding, self.head)
        return [holder.weight for holder in holders if isinstance(holder, nn.Module)]  # type: ignore[misc]


class MLPStage(nn.Module):
    """Some layers of the deep MLP, or column-row pairs of them; (B, dim) in and out."""

    tied: tuple[nn.Parameter, ...] = ()

    def __init__(self, kind: str, parts: Iterable[tuple[int, nn.Module]]) -> None:
        super().__init__()
        self.add_module(kind, nn.ModuleDict({str(index): part for index, part in parts}))

    def forward(self, x: Tensor) -> Tensor:
        """Run the parts in turn."""
        for parts in self.children():
            assert isinstance(parts, nn.ModuleDict)
            for part in parts.values():
                x = part(x)
        return x


Stage = LanguageModelStage | MLPStage


def cut(
    model: nn.Module, num_stages: int, mine: Iterable[int], tp: Comms, sequence: bool = False
) -> dict[int, Stage]:
    """Split the model over `tp`, where that has more than one rank, and return the stages `mine` of it.

    `model` is equal on all ranks and is taken apart. `sequence`: sequence parallel between the layers (lm).

    Raises:
        ValueError: the layers do not divide into the stages, or not into column-row pairs.
    """
    split = tp.world_size > 1
    if isinstance(model, LanguageModel):
        if split:
            split_language_model(model, tp, sequence)
        each = _each(len(model.layers), num_stages)
        spread = tp.world_size if sequence else 1
        return {
            stage: LanguageModelStage(model, range(stage * each, (stage + 1) * each), spread)
            for stage in mine
        }
    assert isinstance(model, DeepMLP)
    kind, parts = ("pairs", PairedMLP(model, tp).pairs) if split else ("layers", model.layers)
    each = _each(len(parts), num_stages)
    return {
        stage: MLPStage(kind, [(i, parts[i]) for i in range(stage * each, (stage + 1) * each)])
        for stage in mine
    }


def _each(parts: int, num_stages: int) -> int:
    if parts % num_stages:
        raise ValueError(f"{parts} layers or pairs do not divide into {num_stages} stages")
    return parts // num_stages


def name_in_whole(name: str) -> str:
    """Return the whole model's name of a stage's parameter: `pairs.1.row` is `layers.3.weight`."""
    if not name.startswith("pairs."):
        return name
    _, pair, kind = name.split(".")
    return f"layers.{2 * int(pair) + (kind == 'row')}.weight"
