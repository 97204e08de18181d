"""The dp lab's checks of what was moved, what of that was hidden, and who read what."""

from __future__ import annotations

from labs.comms import Comms
from labs.context import Context
from labs.data_parallel import theory
from labs.data_parallel.journal import Journal, gather
from labs.data_parallel.spec import DataParallelParams
from labs.data_parallel.subjects import Subject
from labs.overlap import OverlapMeter
from labs.sharded_data import Reader, fairness, reads_of_all

FEWEST = 8
"""Examples of which a shuffle may come twice only once in 8! = 40320 times."""


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


def check_reads(ctx: Context, reader: Reader, proof: Comms) -> None:
    """Prove that the sampler dealt each example to one rank, and anew each epoch; all ranks call this."""
    examples = reader.num_examples
    reads = reads_of_all(proof, reader.epochs)
    if ctx.rank != 0:
        return
    found = fairness(reads, examples)
    ctx.check(
        "each example is read once an epoch",
        found.complete > 0 and not found.repeated and not found.missed,
        measured=found.repeated + found.missed,
        expected=0,
        unit=f"read again or by nobody, of {examples} in {found.complete} whole epochs",
        shows="the sampler gives every rank other examples, and leaves none out",
    )
    if len(reads) > 1 and examples >= FEWEST:
        ctx.check(
            "examples come in another order each epoch",
            not found.same_order,
            measured=len(found.same_order),
            expected=0,
            unit=f"of {len(reads) - 1} epochs in the order of the one before",
            shows="set_epoch is called at the beginning of each epoch; without it nothing is reshuffled",
        )
    ctx.metric("examples_per_epoch", examples)
    ctx.metric("epochs_begun", len(reads))
