"""What the dp lab trains: a model with its loss, what each rank reads of a batch, and what one process does.

Three of them share one face: the deep MLP on rows drawn for each step, and the language model and the
classifier on examples that a sampler deals out, epoch after epoch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from labs.context import Context
from labs.data_parallel import sources, theory
from labs.data_parallel.spec import DataParallelParams
from labs.idx_data import read_images
from labs.image_data import ImageDataset
from labs.language_model import (
    VOCABULARY,
    LanguageModel,
    LanguageModelConfig,
    next_byte_loss,
    parameter_count,
)
from labs.models import Classifier, DeepMLP, class_loss, output_loss
from labs.sharded_data import Examples, Reader
from labs.text_data import entropy, supplied_text

Batch = tuple[Tensor, Tensor]
"""Inputs and targets; the MLP has no targets and gets its rows twice."""
FRESH_FACTOR = 1.1
"""By how much a fresh model's cross entropy may be off."""
LEAST_PART = 0.1
"""Of a fresh model's loss: no run has to fall below it, however monotonous its data are."""


class Subject(ABC):
    """A model and its data, on one rank of the context."""

    def __init__(self, ctx: Context, params: DataParallelParams) -> None:
        self.ctx = ctx
        self.params = params

    @abstractmethod
    def build(self, seed: int) -> nn.Module:
        """Return a freshly drawn model on the rank's device."""

    @abstractmethod
    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss over the rows given."""

    @abstractmethod
    def parts(self) -> Iterator[Batch]:
        """Yield this rank's rows of batch after batch, without end."""

    @abstractmethod
    def wholes(self) -> Iterator[Batch]:
        """Yield what one process trains on, step after step: all ranks' rows of all its batches."""

    @abstractmethod
    def initial_loss(self) -> tuple[float, float]:
        """Return the loss that a fresh model should have, and the factor by which it may be off."""

    @property
    @abstractmethod
    def row(self) -> tuple[int, int]:
        """Numbers in one row of inputs, and their bytes."""

    @abstractmethod
    def size(self) -> tuple[int, int]:
        """Return by theory how many parameters the model has, and in how many tensors."""

    def learned_loss(self) -> float:
        """Return the loss below which a run of the default length has clearly learned; infinite: any."""
        return math.inf

    @property
    def reader(self) -> Reader | None:
        """What deals out the examples and knows which were read; None where rows are drawn."""
        return None


class RandomRows(Subject):
    """The deep MLP: every rank draws the same rows for a batch and keeps its own."""

    def build(self, seed: int) -> nn.Module:
        """Return the deep MLP."""
        return DeepMLP(self.params.dim, self.params.layers, seed=seed).to(self.ctx.device)

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """Return the mean square of the output."""
        return output_loss(output)

    def parts(self) -> Iterator[Batch]:
        """Yield this rank's rows, (its share, dim)."""
        rows = slice(*theory.rows_of(self.ctx.rank, self.ctx.world_size, self.params.batch))
        for number in range(1 << 62):
            mine = self._drawn(number)[rows]
            yield mine, mine

    def wholes(self) -> Iterator[Batch]:
        """Yield all rows of a step, (batch x accumulate, dim)."""
        batches = self.params.accumulate
        for step in range(1 << 62):
            rows = torch.cat([self._drawn(step * batches + place) for place in range(batches)])
            yield rows, rows

    def initial_loss(self) -> tuple[float, float]:
        """Return the mean square that 1/fan-in weights leave after so many layers."""
        layers, dim = self.params.layers, self.params.dim
        return theory.initial_loss(layers), math.exp(5 * math.sqrt(layers / dim))

    def size(self) -> tuple[int, int]:
        """Return those of the deep MLP."""
        return theory.mlp_size(self.params.dim, self.params.layers)

    @property
    def row(self) -> tuple[int, int]:
        """`dim` fp32 numbers."""
        return self.params.dim, self.params.dim * 4

    def _drawn(self, number: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.ctx.seed * 1_000_003 + number)
        return torch.randn(self.params.batch, self.params.dim, generator=generator).to(self.ctx.device)


class Dealt(Subject):
    """Examples of a set, dealt out by a `DistributedSampler`."""

    examples: Examples

    def parts(self) -> Iterator[Batch]:
        """Yield this rank's batches from the sampler's hand."""
        assert self._reader is not None
        while True:
            yield self._here(self._reader.next())

    def wholes(self) -> Iterator[Batch]:
        """Yield what all ranks together read in a step: the same shuffle, dealt to one."""
        alone = Reader(self.examples, 0, 1, sources.supply_of(self.params).a_step, self.ctx.seed)
        while True:
            yield self._here(alone.next())

    @property
    def reader(self) -> Reader | None:
        """This rank's reader."""
        return self._reader

    def _deal(self, examples: Examples) -> None:
        self.examples = examples
        world_size = self.ctx.world_size
        share = self.params.batch // world_size
        self._reader = Reader(examples, self.ctx.rank, world_size, share, self.ctx.seed)

    def _here(self, batch: Batch) -> Batch:
        return batch[0].to(self.ctx.device), batch[1].to(self.ctx.device)


class Text(Dealt):
    """The language model on the bytes of text files."""

    def __init__(self, ctx: Context, params: DataParallelParams) -> None:
        super().__init__(ctx, params)
        self.config = LanguageModelConfig(params.dim, params.layers, params.heads, params.context)
        dataset = supplied_text(params.data, params.context, sources.supply_of(params))
        self._entropy = dataset.entropy()
        self._deal(dataset)

    def build(self, seed: int) -> nn.Module:
        """Return the language model."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return LanguageModel(self.config).to(self.ctx.device)

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross entropy, in nats a byte."""
        return next_byte_loss(output, targets)

    def initial_loss(self) -> tuple[float, float]:
        """Return about ln 256: of a normed row the head makes logits of variance dim x 0.02^2."""
        return theory.fresh_cross_entropy(VOCABULARY, self.params.dim * 0.02**2), FRESH_FACTOR

    def size(self) -> tuple[int, int]:
        """Return those of the language model: nine tensors a layer, two tables and a norm."""
        return parameter_count(self.config), 9 * self.params.layers + 3

    def learned_loss(self) -> float:
        """Return what knowing each byte's frequency, and nothing of its neighbours, would give."""
        return max(self._entropy, LEAST_PART * theory.fresh_cross_entropy(VOCABULARY))

    @property
    def row(self) -> tuple[int, int]:
        """`context` bytes."""
        return self.params.context, self.params.context


class Images(Dealt):
    """The classifier on the images of IDX files."""

    def __init__(self, ctx: Context, params: DataParallelParams) -> None:
        super().__init__(ctx, params)
        images = read_images(params.data, sources.image_limit(params))
        self.images = ImageDataset(images, sources.supply_of(params).examples_an_epoch(len(images)))
        self._deal(self.images)

    def build(self, seed: int) -> nn.Module:
        """Return the classifier."""
        sizes = (self.images.num_pixels, self.images.num_classes, self.params.dim, self.params.layers)
        return Classifier(*sizes, seed=seed).to(self.ctx.device)

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross entropy, in nats an image."""
        return class_loss(output, targets)

    def initial_loss(self) -> tuple[float, float]:
        """Return ln of the number of classes: small weights make all about equally likely."""
        return theory.fresh_cross_entropy(self.images.num_classes), FRESH_FACTOR

    def size(self) -> tuple[int, int]:
        """Return those of the classifier."""
        images = self.images
        return theory.classifier_size(
            images.num_pixels, images.num_classes, self.params.dim, self.params.layers
        )

    def learned_loss(self) -> float:
        """Return what knowing each class's frequency, and nothing of the image, would give."""
        fresh = theory.fresh_cross_entropy(self.images.num_classes)
        return max(entropy(self.images.labels), LEAST_PART * fresh)

    @property
    def row(self) -> tuple[int, int]:
        """The pixels, a byte each."""
        return self.images.num_pixels, self.images.num_pixels


SUBJECTS: dict[str, Callable[[Context, DataParallelParams], Subject]] = {
    "mlp": RandomRows,
    "lm": Text,
    "classifier": Images,
}
