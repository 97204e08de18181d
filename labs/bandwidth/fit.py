"""The two regimes of a collective: t = alpha + S/beta fitted to measured times. Loads no torch.

Below `half_size` = alpha * beta a collective costs its latency whatever it carries; above, the link's rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec


class Summary(msgspec.Struct, frozen=True):
    """The times of one size (seconds): the best, the middle and the tail of `count` iterations."""

    minimum: float
    median: float
    p99: float
    count: int


class Fit(msgspec.Struct, frozen=True):
    """`alpha` in seconds, `beta` in bytes a second; the errors are relative, 0.05 is 5%.

    `error` is the root mean square of (measured - fitted) / measured; `alpha_error` and `beta_error` are one
    standard error, infinite where the data do not hold the value.
    """

    alpha: float
    beta: float
    error: float
    alpha_error: float
    beta_error: float

    @property
    def half_size(self) -> float:
        """The size (bytes) at which half of the time is latency: where one regime turns into the other."""
        return self.alpha * self.beta

    def seconds(self, size: float) -> float:
        """Return the fitted time of `size` bytes."""
        return self.alpha + size / self.beta


def summarise(seconds: Sequence[float]) -> Summary:
    """Return the summary of one size's iterations; p99 by nearest rank, so it is one of the times measured.

    Raises:
        ValueError: there are no times.
    """
    if not seconds:
        raise ValueError("no iteration was timed")
    ordered = sorted(seconds)
    count = len(ordered)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return Summary(ordered[0], middle, ordered[math.ceil(0.99 * count) - 1], count)


def scatter(summaries: Sequence[Summary]) -> float:
    """Return how far medians lie above the best times: the root mean square of (median - min) / min."""
    squares = [((s.median - s.minimum) / s.minimum) ** 2 for s in summaries if s.minimum > 0]
    return math.sqrt(sum(squares) / len(squares)) if squares else 0.0


def fit(sizes: Sequence[int], seconds: Sequence[float]) -> Fit | None:
    """Fit t = alpha + S/beta by least squares on relative errors, alpha not below 0.

    Relative, since times span four orders of magnitude: absolute squares would let the largest size decide
    alone and leave alpha to chance. Where time does not grow with size, only the latency shows: beta is
    infinite. None with fewer than 3 sizes.
    """
    if len(set(sizes)) < 3:
        return None
    rows = [(1 / t, size / t) for size, t in zip(sizes, seconds, strict=True)]
    aa = sum(a * a for a, _ in rows)
    ab = sum(a * b for a, b in rows)
    bb = sum(b * b for _, b in rows)
    a1, b1 = sum(a for a, _ in rows), sum(b for _, b in rows)
    determinant = aa * bb - ab * ab
    alpha, slope = (a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant
    if alpha < 0:
        alpha, slope = 0.0, b1 / bb
    if slope <= 0:
        alpha, slope = a1 / aa, 0.0
    residuals = [1 - alpha * a - slope * b for a, b in rows]
    squares = sum(residual * residual for residual in residuals)
    variance = squares / max(len(rows) - 2, 1)
    return Fit(
        alpha=alpha,
        beta=1 / slope if slope > 0 else math.inf,
        error=math.sqrt(squares / len(rows)),
        alpha_error=math.sqrt(variance * bb / determinant) / alpha if alpha > 0 else math.inf,
        beta_error=math.sqrt(variance * aa / determinant) / slope if slope > 0 else math.inf,
    )
