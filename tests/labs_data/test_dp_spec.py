"""What dp refuses before anything is started, and how long its epochs are."""

from __future__ import annotations

from pathlib import Path

import pytest

from labs.data_parallel import sources
from labs.data_parallel.spec import SPEC, DataParallelParams
from labs.params import ParameterError, parse
from tests.labs_data.idx import write_set

LM = {"model": "lm"}
CLASSIFIER = {"model": "classifier"}


@pytest.mark.parametrize(
    ("given", "world_size", "words"),
    [
        ({"bucket_mb": "1"}, 2, "--bucket-mb: means nothing with --variant naive; leave it out, or give "),
        ({"data": "x"}, 2, "--data: means nothing with --model mlp; .* --model lm or --model classifier"),
        ({"epochs": "3"}, 2, "--epochs: means nothing with --model mlp"),
        ({"heads": "2", **CLASSIFIER}, 2, "--heads: means nothing with --model classifier"),
        ({"context": "8"}, 2, "--context: means nothing with --model mlp"),
        ({**LM, "batch": "7"}, 3, "--batch: 7 does not divide among 3 ranks, .* --batch 6 or --batch 9"),
        ({**LM, "batch": "2"}, 3, "--batch: 2 rows leave some of 3 ranks without one"),
        ({**LM, "heads": "3"}, 2, "--dim: 64 does not divide into 3 heads of even width; 66 would fit"),
        ({**LM, "data": "/nowhere"}, 2, "--data: '/nowhere' does not exist"),
        (CLASSIFIER, 2, "--data: --model classifier needs a folder with train-images-idx3-ubyte and "),
        ({**CLASSIFIER, "data": "/nowhere"}, 2, "--data: '/nowhere' does not exist"),
        ({**LM, "batch": "65536", "context": "4096"}, 2, "--batch: a step reads 268435457 bytes .* smaller"),
        ({"accumulate": "0"}, 2, "--accumulate: 0 is out of bounds"),
        ({"layers": "33"}, 2, "--layers: 33 layers of the mlp, .*; give 32 or fewer, or --model lm"),
        ({"precision": "fp8"}, 2, "--precision: 'fp8' is not allowed; .* bf16, fp16, fp32"),
        ({"variant": "dpp"}, 2, "--variant: 'dpp' is not allowed; did you mean ddp"),
    ],
)
def test_a_combination_that_does_not_fit_is_one_line(
    given: dict[str, str], world_size: int, words: str
) -> None:
    """It names the flag, the value, and what to give instead."""
    with pytest.raises(ParameterError, match=f"^{words}") as caught:
        parse(SPEC, given, world_size)
    assert "\n" not in str(caught.value)


def test_a_person_s_text_must_suffice_for_a_step(tmp_path: Path) -> None:
    """The last target is a byte more."""
    given = {**LM, "data": str(tmp_path), "batch": "4", "context": "8", "accumulate": "2"}
    (tmp_path / "a.txt").write_text("x" * 64)
    with pytest.raises(ParameterError, match=r"^--data: '.*' holds 64 bytes of text and a step reads 65"):
        parse(SPEC, given, 2)
    (tmp_path / "a.txt").write_text("x" * 65)
    parse(SPEC, given, 2)


def test_images_must_suffice_for_a_step(tmp_path: Path) -> None:
    """And show more than one class."""
    given = {**CLASSIFIER, "data": str(write_set(tmp_path / "set", 10)), "batch": "12"}
    with pytest.raises(ParameterError, match=r"^--data: '.*' gives 10 images and a step reads 12"):
        parse(SPEC, given, 2)
    parse(SPEC, {**given, "batch": "10"}, 2)
    one = str(write_set(tmp_path / "one", 10, classes=1))
    with pytest.raises(ParameterError, match="all of the 10 labels are 0; nothing to learn"):
        parse(SPEC, {**given, "data": one, "batch": "10"}, 2)


def test_fp16_needs_gpus() -> None:
    """Only the device tells, so this is asked apart."""
    assert SPEC.validate_device is not None
    params = parse(SPEC, {"precision": "fp16"}, 2)
    with pytest.raises(ParameterError, match=r"^--precision: fp16 needs GPUs.* allowed here: fp32, bf16"):
        SPEC.validate_device(params, "cpu")
    SPEC.validate_device(params, "cuda")
    SPEC.validate_device(parse(SPEC, {"precision": "bf16"}, 2), "cpu")


@pytest.mark.parametrize(
    ("steps", "epochs", "available", "expected"),
    [(60, 2, 10_000, 30), (60, 7, 10_000, 9), (60, 1, 10_000, 60), (60, 2, 100, 4), (60, 2, 23, 0)],
)
def test_steps_of_an_epoch(steps: int, epochs: int, available: int, expected: int) -> None:
    """As asked for, or as far as the data go; whole steps only."""
    params = DataParallelParams(steps=steps, epochs=epochs, batch=12, accumulate=2)
    supply = sources.supply_of(params)
    assert supply.steps_an_epoch(available) == expected
    assert supply.examples_an_epoch(available) == 24 * expected
