"""What the split loss must be: torch's cross entropy of the whole logits."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.exercise_comms import WatchedComms

FUNCTIONS = ("split_cross_entropy",)
ROWS, WORDS = 6, 12
CASES = {"logits around 0": 1.0, "logits around 300": 300.0}
USUALLY = "Maximum, sum of exponentials and the target's logit must each be of the whole row, on every rank."


def run(yours: Any, comms: WatchedComms, case: float) -> dict[str, Any]:
    """The learner's loss on this rank's words."""
    logits, targets = whole(case)
    width = WORDS // comms.world_size
    mine = logits[:, comms.rank * width : (comms.rank + 1) * width].contiguous()
    losses = yours.split_cross_entropy(mine, targets, comms)
    elements = comms.journal.elements
    moved = sum(elements.values()) + (comms.world_size - 1) * elements["all_gather"]
    return {"losses of the rows": losses, "more than 4 N numbers communicated": moved > 4 * ROWS}


def expected(rank: int, world_size: int, case: float) -> dict[str, Any]:
    """torch's own, in one process."""
    logits, targets = whole(case)
    losses = F.cross_entropy(logits, targets, reduction="none")
    return {"losses of the rows": losses, "more than 4 N numbers communicated": False}


def whole(scale: float) -> tuple[Tensor, Tensor]:
    """The whole logits, (N, V), and the targets, one in each rank's part at least."""
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(ROWS, WORDS, generator=generator) * 2 + (scale if scale > 1 else 0.0)
    return logits, torch.tensor([0, 3, 6, 9, 11, 4])
