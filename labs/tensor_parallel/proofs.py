"""The tp lab's checks: what the split model came to beside the whole one, and beside theory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import nn

from labs.comms import Comms
from labs.context import Context
from labs.tensor_parallel import theory
from labs.tensor_parallel.spec import TensorParallelParams
from labs.worst import farthest, over_ranks

COMPARED_STEPS = 20
"""Steps that one process repeats: training is chaotic, and lets last bits grow step by step."""
LOSS_TOLERANCE = 1e-4
GRADIENT_TOLERANCE = 1e-4
"""Of the largest gradient: fp32 sums of the same numbers in another order."""
DRIFT_TOLERANCE = 5e-3
"""Of the way the parameters went; AdamW divides by the gradient's size, so last bits of small ones count."""


@dataclass
class Journal:
    """What this rank noted while both models trained."""

    start: nn.Module
    losses: list[tuple[float, float]] = field(default_factory=list)
    """Split and whole, by step that one process repeats."""
    moved: list[Counter[str]] = field(default_factory=list)
    """S by op, by step."""
    layers: list[list[Counter[str]]] = field(default_factory=list)
    """S by op and `<op> calls`, by step and layer (for pairs of layers: by pair)."""
    gradients: float = 0.0
    drift: float = 0.0
    way: float = 0.0

    def note(self, moved: Counter[str], layers: Sequence[Counter[str]]) -> None:
        """Note what one step moved."""
        self.moved.append(moved)
        self.layers.append([Counter(layer) for layer in layers])


def check(
    ctx: Context,
    params: TensorParallelParams,
    proof: Comms,
    journal: Journal,
    held: int,
    sizes: tuple[int, int],
) -> None:
    """Emit the checks on rank 0, over the worst of all ranks; `sizes`: parameters split, and kept whole."""
    split, whole = zip(*journal.losses, strict=True)
    losses = farthest(split, whole)
    drift = journal.drift / journal.way if journal.way else float("inf")
    most_held, worst_loss, worst_gradient, worst_drift, fewest_held = over_ranks(
        proof, [held, losses, journal.gradients, drift, -held], "max"
    )
    if ctx.rank != 0:
        return
    _equal(
        ctx, "losses equal one process", worst_loss, LOSS_TOLERANCE, "the split model is the same function"
    )
    _equal(
        ctx,
        "gradients equal one process",
        worst_gradient,
        GRADIENT_TOLERANCE,
        "every rank's slices of the gradients are those of the whole model",
    )
    _equal(
        ctx,
        f"parameters equal one process after {len(journal.losses)} steps",
        worst_drift,
        DRIFT_TOLERANCE,
        "slices trained apart walked the way of the whole model",
    )
    expected = theory.of_step(params)
    _traffic(ctx, journal, expected)
    _layers(ctx, params, journal)
    bytes_expected = theory.parameter_bytes(*sizes, ctx.world_size)
    ctx.check(
        "parameter memory",
        most_held == -fewest_held == bytes_expected / theory.FP32,
        measured=most_held * theory.FP32,
        expected=bytes_expected,
        unit="B",
        shows="each rank holds 1/W of what is split, and the little that is not",
    )
    _metrics(ctx, params, expected)


def _traffic(ctx: Context, journal: Journal, expected: Counter[str]) -> None:
    """S of every step, op by op, beside theory's."""
    for op in sorted(set(expected) | set().union(*journal.moved)):
        seen = {step[op] for step in journal.moved}
        ctx.check(
            f"bytes of {op} a step",
            seen == {expected[op]},
            measured=max(seen),
            expected=expected[op],
            unit="B",
            shows="S by the rule of nccl-tests, forward and backward, against the formula of this variant",
        )


def _layers(ctx: Context, params: TensorParallelParams, journal: Journal) -> None:
    """Bytes and calls of every layer in every step, beside theory's; and a line a layer for the log."""
    expected = theory.of_layers(params)
    for place, layer in enumerate(journal.layers[-1]):
        ctx.say(f"{theory.layer_name(params, place)} in a step: {theory.words(layer)}")
    wrong = [
        (measured, wanted)
        for step in journal.layers
        for measured, wanted in zip(step, expected, strict=True)
        if measured != wanted
    ]
    shown = wrong[0] if wrong else (journal.layers[-1][-1], expected[-1])
    ctx.check(
        "bytes and calls of each layer",
        not wrong,
        measured=theory.words(shown[0]),
        expected=theory.words(shown[1]),
        shows="what each layer sends forward and backward, and in how many collectives",
    )
    last = journal.layers[-1][-1]
    ctx.metric("layer_bytes", sum(last[op] for op in theory.OPS), "B")
    ctx.metric("layer_calls", sum(last[f"{op} calls"] for op in theory.OPS))


def _equal(ctx: Context, name: str, measured: float, tolerance: float, shows: str) -> None:
    ctx.check(
        name,
        measured <= tolerance,
        measured=measured,
        expected=0.0,
        tolerance=tolerance,
        unit="relative",
        shows=shows,
    )


def _metrics(ctx: Context, params: TensorParallelParams, expected: Counter[str]) -> None:
    rows = params.batch * (params.context if params.model == "lm" else 1)
    tensor_bytes = theory.busiest_link(expected, ctx.world_size)
    pipeline = theory.pipeline_bytes(rows, params.dim, ctx.world_size)
    ctx.metric("sent_bytes_per_step_theory", tensor_bytes, "B")
    ctx.metric("pipeline_sent_bytes_per_step_theory", pipeline, "B")
    ctx.metric("sent_bytes_per_layer_theory", tensor_bytes / params.layers, "B")
    ctx.say(theory.advice(tensor_bytes, pipeline, params.layers, ctx.world_size))
