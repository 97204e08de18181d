"""The dp lab's checks of what was moved and what of that was hidden."""

from __future__ import annotations

from labs.comms import Comms
from labs.context import Context
from labs.data_parallel import theory
from labs.data_parallel.journal import Journal, gather
from labs.data_parallel.spec import DataParallelParams
from labs.data_parallel.subjects import Subject
from labs.overlap import OverlapMeter


def check_traffic(ctx: Context, params: DataParallelParams, subject: Subject, journal: Journal) -> None:
    """Compare the bytes all-reduced with theory, and give them by step and by row."""
    parameters, tensors = subject.size()
    moved = journal.all_reduced_bytes
    if ctx.rank != 0:
        return
    expected = theory.all_reduced_bytes(parameters, tensors, params.steps, params.variant != "ddp")
    ctx.check(
        "bytes all-reduced",
        moved == expected,
        measured=moved,
        expected=expected,
        unit="B",
        shows="every gradient once a step (and a flag a tensor, but for ddp), whatever the batch, "
        "however many batches are accumulated",
    )
    rows = params.steps * params.batch * params.accumulate
    ctx.metric("parameters", parameters)
    ctx.metric("all_reduced_bytes_per_step", moved / params.steps, "B")
    ctx.metric("all_reduced_bytes_per_row", moved / rows, "B")
    ctx.metric("sent_bytes_per_step_theory", theory.sent_bytes(moved, ctx.world_size) / params.steps, "B")


def check_overlap(ctx: Context, params: DataParallelParams, meter: OverlapMeter, proof: Comms) -> None:
    """Tell the share of communication that was hidden behind backward, over all ranks; all must call this."""
    totals = gather(proof, [*meter.totals(), meter.calls])
    if ctx.rank != 0:
        return
    hidden, total = (sum(row[place] for row in totals) for place in (0, 1))
    share = hidden / total if total else 0.0
    # With one bucket there is nothing left to compute when it is full.
    several = params.variant in ("bucketed", "ddp") and meter.calls > params.steps
    ctx.check(
        "communication hidden behind backward",
        share > 0 if several else hidden == 0,
        measured=share,
        expected="above 0" if several else 0.0,
        unit="of the time of all-reduces",
        shows="a bucket's all-reduce runs while backward goes on with earlier layers"
        if several
        else "what is sent only when backward is over hides behind nothing",
    )
    ctx.metric("hidden_communication", share)
    ctx.metric(
        "exposed_communication_ms_per_step", (total - hidden) / 1e6 / params.steps / ctx.world_size, "ms"
    )
