"""How many examples a run reads, an epoch and a step, and whether its text suffices. Loads no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from labs.params import ParameterError
from labs.text_files import DataError, corpus

MOST_BYTES = 64 << 20
"""Of text or images that a rank holds in memory; a larger set is read so far."""


@dataclass(frozen=True)
class Supply:
    """What a run of `steps` steps asks for: `a_step` examples in each, over all ranks, in so many epochs."""

    steps: int
    epochs: int
    a_step: int

    def steps_an_epoch(self, available: int) -> int:
        """Return the steps of an epoch: the run's spread over its epochs, or fewer where data are few.

        0 where `available` examples do not suffice for one step.
        """
        return min(math.ceil(self.steps / self.epochs), available // self.a_step)

    def examples_an_epoch(self, available: int) -> int:
        """Return the examples of an epoch, all of which fit into its steps."""
        return self.steps_an_epoch(available) * self.a_step

    @property
    def wanted(self) -> int:
        """Examples that the run would read in an epoch if there were enough."""
        return self.examples_an_epoch(1 << 62)

    def text_limit(self, context: int) -> int:
        """Return the bytes of text to read for `wanted` sequences, the last target included."""
        return min(MOST_BYTES, self.wanted * context + 1)


def check_shares(batch: int, world_size: int) -> None:
    """Refuse a batch that a sampler cannot deal out.

    Raises:
        ParameterError: naming `--batch` and those that would fit.
    """
    if batch % world_size:
        lower = batch - batch % world_size
        raise ParameterError(
            "--batch",
            f"{batch} does not divide among {world_size} ranks, and a DistributedSampler deals out "
            f"equal parts; give --batch {lower} or --batch {lower + world_size}",
        )


def check_text(folder: str, context: int, supply: Supply, flags: str) -> None:
    """Read the text as the run will, and refuse what cannot be read or does not suffice for one step.

    Args:
        folder: the person's own, or empty for the standard library.
        context: bytes of a sequence.
        supply: what the run reads.
        flags: whose product is a step's bytes, in words.

    Raises:
        ParameterError: naming `--data`, or `--batch` where the standard library is too short for it.
    """
    try:
        held = len(corpus(folder, supply.text_limit(context)))
    except DataError as error:
        raise ParameterError("--data", str(error)) from None
    needed = supply.a_step * context + 1
    if held >= needed:
        return
    step = f"a step reads {needed} bytes ({flags}, and the last target)"
    if needed > MOST_BYTES:
        raise ParameterError("--batch", f"{step}, and at most {MOST_BYTES} are held; give a smaller --batch")
    if not folder:
        raise ParameterError("--batch", f"{step}, the standard library has {held}; give a smaller --batch")
    raise ParameterError(
        "--data", f"{folder!r} holds {held} bytes of text and {step}; add text or give a smaller --batch"
    )
