"""What tensor parallelism must move and hold, from the sizes alone. Pure functions; loads no torch.

S follows nccl-tests: one buffer for an all-reduce, the total for all-gather and reduce-scatter. An activation
is rows x width x 4 bytes in fp32. (Shoeybi et al. 2019, section 3; Korthikanti et al. 2022, section 4.2.)
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labs.tensor_parallel.spec import TensorParallelParams

FP32 = 4
OPS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
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


def of_step(params: TensorParallelParams) -> Traffic:
    """Return S by op of one step of the lab."""
    if params.model == "lm":
        rows = params.batch * params.context
        return language_model(rows, params.dim, params.layers, params.sequence_parallel)
    formula = gathered_mlp if params.variant == "gather" else paired_mlp
    return formula(params.batch, params.dim, params.layers)


def of_layers(params: TensorParallelParams) -> list[Traffic]:
    """Return S by op, and calls under `<op> calls`, of each layer; of each pair where layers are paired.

    The first layer of an MLP sends less: its input is whole and needs no gradient.
    """
    rows = params.batch * (params.context if params.model == "lm" else 1)
    activation = rows * params.dim * FP32

    def calls(count: int, *ops: str) -> Traffic:
        tally: Traffic = Counter()
        for op in ops if count else ():
            tally.update({op: count * activation, f"{op} calls": count})
        return tally

    if params.model == "lm":
        ops = ("all_gather", "reduce_scatter") if params.sequence_parallel else ("all_reduce",)
        return [calls(4, *ops)] * params.layers
    if params.variant == "gather":
        return [calls(0), *[calls(1, "all_gather", "reduce_scatter")] * (params.layers - 1)]
    return [calls(1, "all_reduce"), *[calls(2, "all_reduce")] * (params.layers // 2 - 1)]


def layer_name(params: TensorParallelParams, place: int) -> str:
    """Return what the layers are called: `layer 3`, or `layers 2 and 3` for a pair."""
    paired = params.model == "mlp" and params.variant != "gather"
    return f"layers {2 * place} and {2 * place + 1}" if paired else f"layer {place}"


def words(tally: Traffic) -> str:
    """Say a layer's traffic: `2 all_reduce of 8192 B in all`."""
    told = [f"{tally[f'{op} calls']} {op} of {tally[op]} B in all" for op in OPS if tally[f"{op} calls"]]
    return ", ".join(told) or "nothing"


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
    both = f"by tensors a rank sends {tensor_bytes:.0f} B a step, by stages {pipeline} B; "
    if layers < world_size:
        return both + (
            f"{layers} layers do not fill {world_size} stages: wide and shallow, split it by tensors "
            f"although it sends {ratio:.0f} times the bytes"
        )
    return both + (
        f"deep enough for {world_size} stages: a pipeline would send {ratio:.0f} times fewer bytes, "
        "if there are micro-batches enough to fill it"
    )
