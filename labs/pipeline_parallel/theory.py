"""What the texts predict for a pipeline: bubble, peak activations, bytes on the wire. Pure, loads no torch.

p ranks, m micro-batches, v chunks a rank; F a forward, B = I + W a backward, of a rank's full depth.
"""

from __future__ import annotations

from collections.abc import Sequence

from labs.parallel.schedule_simulator import Costs


def bubble_time(schedule: str, p: int, m: int, v: int, costs: Costs) -> float | None:
    """Return the idle time of a rank in one step, communication aside; None where the papers give no closed
    form.

    Sources: GPipe; Narayanan et al. 2021 (1F1B, interleaved); Lamy-Poirier 2022 (breadth-first); Qi et al.
    2023 (ZB-H1). ZBV's and DualPipeV's formulas hold for F = I = W or for overlapped pairs only.
    """
    backward = costs.input_gradient + costs.weight_gradient
    full = costs.forward + backward
    match schedule:
        case "naive":
            return m * (p - 1) * full
        case "gpipe" | "1f1b":
            return (p - 1) * full
        case "interleaved" | "looped_bfs" if m >= p:
            return (p - 1) * full / v
        case "zb_h1" if costs.weight_gradient <= costs.input_gradient and m >= p:
            return (p - 1) * (costs.forward + costs.input_gradient - costs.weight_gradient)
    return None


def peak_micro_batches(schedule: str, p: int, m: int, v: int, rank: int) -> float:
    """Return the most activations a rank keeps, in micro-batches of its full depth.

    Sources: as `bubble_time`; ZBV: Qi et al. 2024; DualPipeV: DeepSeek 2025. In all of them a rank frees an
    activation after B, or after W where the backward is split.
    """
    match schedule:
        case "naive":
            return 1.0
        case "gpipe" | "looped_bfs":
            return float(m)
        case "1f1b":
            return float(min(m, p - rank))
        case "interleaved":
            return min(m * v, (v - 1) * p + 2 * (p - 1 - rank) + 1) / v
        case "zbv":
            # With few micro-batches all are in the first chunk before the rank's second one fills up.
            return min(m, p, (m + 1 + rank) / 2)
        case "dualpipev":
            return p + 0.5
    return float(min(m, p))


def step_bytes(boundaries: Sequence[int], micro_batches: int) -> int:
    """Return the bytes that all ranks together send in a step.

    `boundaries` are the bytes of one micro-batch's activation at each boundary between stages on different
    ranks; each crosses once forwards and its gradient once back.
    """
    return 2 * micro_batches * sum(boundaries)
