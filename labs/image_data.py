"""Images of an IDX set as examples: pixels from 0 to 1 in a row, and a label."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.data import Dataset

from labs.idx_data import IdxImages


class ImageDataset(Dataset[tuple[Tensor, Tensor]]):
    """The first `examples` images of what was read."""

    def __init__(self, images: IdxImages, examples: int) -> None:
        if not 0 < examples <= len(images):
            raise ValueError(f"{len(images)} images were read, {examples} are asked for")
        self.num_pixels = images.rows * images.columns
        self.num_classes = images.classes
        pixels = torch.frombuffer(bytearray(images.pixels), dtype=torch.uint8)
        self.pixels = pixels.view(len(images), self.num_pixels)[:examples]
        self.labels = torch.frombuffer(bytearray(images.labels), dtype=torch.uint8)[:examples].long()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return (pixels, label): fp32 of shape (num_pixels,), int64 of shape ()."""
        return self.pixels[index].float() / 255, self.labels[index]
