"""Tells which examples each rank reads, and proves that the sampler dealt them out fairly."""

from __future__ import annotations

from labs.comms import Comms
from labs.context import Context
from labs.data_parallel.theory import rows_of
from labs.sharded_data import Reader, fairness, reads_of_all

FEWEST = 8
"""Examples of which a shuffle may come twice only once in 8! = 40320 times."""
SHOWN = 12
"""Numbers of examples that are told of an epoch."""


def tell_reads(ctx: Context, reader: Reader | None, told: int, batch: int, row: tuple[int, int]) -> int:
    """Tell which rows of the batch this rank reads, once an epoch with the numbers of the examples.

    Args:
        ctx: this rank's.
        reader: what deals out the examples; None where fp32 rows are drawn, which have no epochs.
        told: the epoch that was told last.
        batch: rows over all ranks.
        row: numbers in a row, and their bytes.

    Returns:
        the epoch that is told now.
    """
    epoch = 0 if reader is None else reader.epoch
    if epoch == told:
        return told
    rows = rows_of(ctx.rank, ctx.world_size, batch)
    numbers, nbytes = row
    note = ""
    if reader is not None:
        first = ", ".join(map(str, reader.epochs[-1][:SHOWN]))
        note = f"epoch {epoch}, {reader.share} of {reader.num_examples} examples: {first}, ..."
    ctx.shard(
        "batch",
        "data",
        (batch, numbers),
        (rows, (0, numbers)),
        dtype="uint8" if reader is not None else "float32",
        nbytes=(rows[1] - rows[0]) * nbytes,
        note=note,
    )
    return epoch


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
