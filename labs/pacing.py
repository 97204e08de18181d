"""When and how far the labs that show overlap stretch real computation with a sleep. Loads no torch.

With fewer cores than ranks and no GPU, computation of two ranks cannot overlap, so a schedule cannot be seen.
A sleep around the real computation lets the clock run without a core.
"""

from __future__ import annotations

import os
from typing import Annotated

from msgspec import Meta

AUTO = -1.0
DEFAULT_MS = 20.0
StagePace = Annotated[
    float,
    Meta(
        ge=AUTO,
        le=10_000,
        description="stretch each forward of a stage to so long; 0: off; -1: 20 where ranks outnumber the "
        "cores",
        extra={"unit": "ms"},
    ),
]
"""The parameter of the labs with a pipeline."""


def resolve(pace_ms: float, world_size: int, cores: int, device: str) -> float:
    """Return the milliseconds of a forward; 0 where nothing is paced.

    `pace_ms` is what was asked; AUTO paces where ranks on the CPU outnumber its cores.
    """
    if pace_ms != AUTO:
        return pace_ms
    return DEFAULT_MS if device == "cpu" and world_size > cores else 0.0


def round_trip_s(pace_ms: float, stages: int, backward: float) -> float:
    """Return the seconds of a paced micro-batch's way through all stages and back: the most a stage waits.

    `pace_ms` is what was asked, `backward` what a backward costs in forwards.
    """
    return max(pace_ms, 0.0) / 1e3 * stages * (1 + backward)


def misfit(pace_ms: float) -> str:
    """Return what is wrong with a pace between off and `AUTO`, or nothing."""
    return f"{pace_ms:g} is no time; give -1 (automatic), 0 (off) or more" if AUTO < pace_ms < 0 else ""


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
