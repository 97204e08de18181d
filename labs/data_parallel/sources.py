"""What the dp lab reads of text or images, and whether it suffices for a step. Loads no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labs.idx_data import read_images, what_to_place
from labs.params import ParameterError
from labs.supply import Supply, check_text
from labs.text_files import DataError

if TYPE_CHECKING:
    from labs.data_parallel.spec import DataParallelParams

MOST_IMAGES = 1 << 20


def supply_of(params: DataParallelParams) -> Supply:
    """Return what the run reads; a step takes all its accumulated batches."""
    return Supply(params.steps, params.epochs, params.batch * params.accumulate)


def image_limit(params: DataParallelParams) -> int:
    """Return the number of images to read."""
    return min(MOST_IMAGES, supply_of(params).wanted)


def check(params: DataParallelParams) -> None:
    """Read the data as the run will, and refuse what cannot be read or does not suffice for one step.

    Raises:
        ParameterError: naming `--data`, or `--batch` where the standard library is too short for it.
    """
    if params.model == "lm":
        check_text(params.data, params.context, supply_of(params), "--batch x --accumulate x --context")
        return
    if not params.data:
        raise ParameterError(
            "--data", f"--model classifier needs a folder with {what_to_place()}; give --data FOLDER"
        )
    try:
        _check_images(params)
    except DataError as error:
        raise ParameterError("--data", str(error)) from None


def _check_images(params: DataParallelParams) -> None:
    images = read_images(params.data, image_limit(params))
    held, a_step = len(images), supply_of(params).a_step
    if held < a_step:
        raise ParameterError(
            "--data",
            f"{params.data!r} gives {held} images and a step reads {a_step} "
            "(--batch x --accumulate); give a smaller --batch",
        )
    if images.classes < 2:
        raise ParameterError("--data", f"{params.data!r}: all of the {held} labels are 0; nothing to learn")
