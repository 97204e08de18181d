"""The largest of what elements, steps or ranks were off by, where NaN is worse than any number.

Python's `max` and gloo's pass over a NaN that is not the first: a check of the largest error would be green.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import torch

from labs.comms import Comms

SMALL = 1e-3
"""Of the first loss: what has fallen below it may be equal by rank, and is held to it in comparisons."""


def worst(numbers: Iterable[float]) -> float:
    """Return the largest number; infinity where one is NaN, 0 where there is none."""
    return max(map(_or_infinite, numbers), default=0.0)


def ratio(part: float, whole: float) -> float:
    """Return part / whole, also where the whole is nothing: 0 for nothing of it, infinity for anything."""
    return part / whole if whole else (math.inf if part else 0.0)


def farthest(measured: Iterable[float], expected: Sequence[float]) -> float:
    """Return the largest relative difference of two courses, such as the losses of all steps.

    What has fallen below a thousandth of what it was at first is held to that: its last digits are chance.
    """
    least = SMALL * abs(expected[0])
    return worst(ratio(abs(a - b), max(abs(b), least)) for a, b in zip(measured, expected, strict=True))


def over_ranks(proof: Comms, numbers: Sequence[float], op: Literal["max", "sum"]) -> list[float]:
    """Return the largest or the sum over ranks of each number; NaN counts as infinity. Collective.

    Exact for whole numbers below 2^53.
    """
    told = torch.tensor([*map(_or_infinite, numbers)], dtype=torch.float64, device=proof.recorder.device)
    proof.all_reduce(told, op=op)
    return [float(number) for number in told.tolist()]


def _or_infinite(number: float) -> float:
    return math.inf if math.isnan(number) else number
