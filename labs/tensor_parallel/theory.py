"""What tensor parallelism must move and hold, from the sizes alone. Pure functions; loads no torch.

S follows nccl-tests: one buffer for an all-reduce, the total for all-gather and reduce-scatter. An activation
is rows x width x 4 bytes in fp32. (Shoeybi et al. 2019, section 3; Korthikanti et al. 2022, section 4.2.)
"""

from __future__ import annotations

from collections import Counter

FP32 = 4
Traffic = Counter[str]
"""S by op, of one step on one rank."""


def gathered_mlp(rows: int, dim: int, layers: int) -> Traffic:
    """Columns with all-gather: every layer's output is gathered once; backward scatters all but the first.

    The first layer's input needs no gradient, and the last gather's backward is a slice.
    """
    activation = rows * dim * FP32
    return Counter({"all_gather": layers * activation, "reduce_scatter": (layers - 1) * activation})


def paired_mlp(rows: int, dim: int, layers: int) -> Traffic:
    """Column-row pairs: one all-reduce forward (g) and one backward (f) a pair, none before the first."""
    pairs = layers // 2
    return Counter({"all_reduce": (2 * pairs - 1) * rows * dim * FP32})


def language_model(rows: int, dim: int, layers: int, sequence: bool) -> Traffic:
    """The transformer: two all-reduces a layer each way, one for the embedding, one for the head's input.

    With `sequence`, each all-reduce is a reduce-scatter and an all-gather of the same S, and the gradients of
    the norms are summed once. The loss over the split vocabulary adds three numbers a row.
    """
    activation = rows * dim * FP32
    loss = 3 * rows * FP32
    if not sequence:
        return Counter({"all_reduce": 2 * (2 * layers + 1) * activation + loss})
    norms = (2 * layers + 1) * dim * FP32
    each = 2 * (2 * layers + 1) * activation
    return Counter({"all_gather": each, "reduce_scatter": each, "all_reduce": loss + norms})


def busiest_link(traffic: Traffic, world_size: int) -> float:
    """Return the bytes a rank sends for this traffic by ring: S x 2(W-1)/W for all-reduce, else (W-1)/W."""
    part = (world_size - 1) / world_size
    return sum(size * part * (2 if op == "all_reduce" else 1) for op, size in traffic.items())


def parameter_bytes(split: int, whole: int, world_size: int) -> int:
    """Return the parameter bytes of a rank, when `split` of them are shared out and `whole` are not."""
    return (split // world_size + whole) * FP32


def pipeline_bytes(rows: int, dim: int, stages: int) -> int:
    """Return what the busiest stage sends in a pipeline of the same model: one activation each way."""
    return (2 if stages > 2 else 1) * rows * dim * FP32 if stages > 1 else 0


def advice(tensor_bytes: float, pipeline: float, layers: int, world_size: int) -> str:
    """Say in one sentence which of the two this model suits, and why."""
    ratio = tensor_bytes / pipeline if pipeline else float("inf")
    if layers < world_size:
        return (
            f"{layers} layers do not fill {world_size} stages: wide and shallow, split it by tensors "
            f"although it sends {ratio:.0f} times the bytes"
        )
    return (
        f"deep enough for {world_size} stages: a pipeline would send {ratio:.0f} times fewer bytes, "
        "if there are micro-batches enough to fill it"
    )
