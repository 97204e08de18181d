"""What each ZeRO stage must hold and move, from the number of parameters alone. Loads no torch.

Rajbhandari et al. 2020, "ZeRO", sections 5 and 7, for fp32 training with Adam: 4 bytes a parameter for the
parameters, 4 for the gradients, 8 for Adam's two moments.
"""

from __future__ import annotations

from typing import Literal

FP32 = 4
MOMENTS = 2
Moment = Literal["init", "before step", "after step"]
MOMENTS_OF_A_STEP: tuple[Moment, ...] = ("init", "before step", "after step")
KINDS = ("parameters", "gradients", "optimizer")


def memory(stage: int, parameters: int, world_size: int, moment: Moment) -> dict[str, float]:
    """Return the bytes a rank holds, by kind, outside any layer's forward and backward.

    `init` is before the first step, when Adam has no state yet; `before step` is after a backward, `after
    step` when the gradients have been let go.
    """
    part = parameters / world_size
    state = 0.0 if moment == "init" else (part if stage >= 1 else parameters) * FP32 * MOMENTS
    gradients = (part if stage >= 2 else parameters) * FP32 if moment == "before step" else 0.0
    return {
        "parameters": (part if stage == 3 else parameters) * FP32,
        "gradients": float(gradients),
        "optimizer": float(state),
    }


def traffic_factor(stage: int) -> int:
    """Return how many times Psi (N-1)/N elements a rank sends in a step: 2, and 3 in stage 3.

    An all-reduce counts twice (a reduce-scatter and an all-gather). Stage 3 gathers for forward and for
    backward, and reduce-scatters.
    """
    return 3 if stage == 3 else 2


def traffic(stage: int, parameters: int, world_size: int) -> float:
    """Return the bytes a rank sends in a step, in fp32."""
    return traffic_factor(stage) * parameters * FP32 * (world_size - 1) / world_size


def sent(op: str, size: int, world_size: int) -> float:
    """Return what a rank sends for calls of `op` over S = `size` bytes, by a ring (nccl-tests' factors)."""
    share = (world_size - 1) / world_size
    return {"all_reduce": 2 * share, "all_gather": share, "reduce_scatter": share}.get(op, 0.0) * size
