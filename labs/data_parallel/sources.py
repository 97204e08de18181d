"""How many examples an epoch of the dp lab has, and whether there are enough for a step. Loads no torch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from labs.idx_data import read_images, what_to_place
from labs.params import ParameterError
from labs.text_files import DataError, corpus

if TYPE_CHECKING:
    from labs.data_parallel.spec import DataParallelParams

MOST_BYTES = 64 << 20
"""Of text or images that a rank holds in memory; a larger set is read so far."""
MOST_IMAGES = 1 << 20


def examples_a_step(params: DataParallelParams) -> int:
    """Return the examples that one optimizer step takes, over all ranks and accumulated batches."""
    return params.batch * params.accumulate


def steps_an_epoch(params: DataParallelParams, available: int) -> int:
    """Return the steps of an epoch: the run's steps spread over `--epochs`, or fewer where data are few.

    0 where `available` examples do not suffice for one step.
    """
    return min(math.ceil(params.steps / params.epochs), available // examples_a_step(params))


def examples_an_epoch(params: DataParallelParams, available: int) -> int:
    """Return the examples of an epoch, all of which fit into its steps."""
    return steps_an_epoch(params, available) * examples_a_step(params)


def wanted(params: DataParallelParams) -> int:
    """Return how many examples the run would read in an epoch if there were enough."""
    return steps_an_epoch(params, 1 << 62) * examples_a_step(params)


def text_limit(params: DataParallelParams) -> int:
    """Return the bytes of text to read for `wanted` sequences, the last target included."""
    return min(MOST_BYTES, wanted(params) * params.context + 1)


def image_limit(params: DataParallelParams) -> int:
    """Return the number of images to read."""
    return min(MOST_IMAGES, wanted(params))


def check(params: DataParallelParams) -> None:
    """Read the data as the run will, and refuse what cannot be read or does not suffice for one step.

    Raises:
        ParameterError: naming `--data`, or `--batch` where the standard library is too short for it.
    """
    if params.model == "classifier" and not params.data:
        raise ParameterError(
            "--data", f"--model classifier needs a folder with {what_to_place()}; give --data FOLDER"
        )
    try:
        if params.model == "classifier":
            _check_images(params)
        else:
            _check_text(params)
    except DataError as error:
        raise ParameterError("--data", str(error)) from None


def _check_text(params: DataParallelParams) -> None:
    held = len(corpus(params.data, text_limit(params)))
    needed = examples_a_step(params) * params.context + 1
    if held >= needed:
        return
    step = f"a step reads {needed} bytes (--batch x --accumulate x --context, and the last target)"
    if needed > MOST_BYTES:
        raise ParameterError("--batch", f"{step}, and at most {MOST_BYTES} are held; give a smaller --batch")
    if not params.data:
        raise ParameterError("--batch", f"{step}, the standard library has {held}; give a smaller --batch")
    raise ParameterError(
        "--data", f"{params.data!r} holds {held} bytes of text and {step}; add text or give a smaller --batch"
    )


def _check_images(params: DataParallelParams) -> None:
    images = read_images(params.data, image_limit(params))
    held = len(images)
    if held < examples_a_step(params):
        raise ParameterError(
            "--data",
            f"{params.data!r} gives {held} images and a step reads {examples_a_step(params)} "
            "(--batch x --accumulate); give a smaller --batch",
        )
    if images.classes < 2:
        raise ParameterError("--data", f"{params.data!r}: all of the {held} labels are 0; nothing to learn")
