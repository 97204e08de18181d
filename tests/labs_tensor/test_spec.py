"""Combinations that the tp lab refuses, and its formulas at sizes one can check by hand."""

from __future__ import annotations

import pytest

from labs.params import ParameterError, parse
from labs.tensor_parallel import theory
from labs.tensor_parallel.spec import SPEC, TensorParallelParams


@pytest.mark.parametrize(
    ("given", "world_size", "flag", "part"),
    [
        ({"dim": "10"}, 4, "--dim", "multiple of 4"),
        ({"layers": "3"}, 2, "--layers", "even number"),
        ({"layers": "3", "variant": "dtensor"}, 2, "--layers", "even number"),
        ({"layers": "34"}, 2, "--layers", "give 32 or fewer"),
        ({"sequence_parallel": True}, 2, "--sequence-parallel", "--model lm"),
        ({"model": "lm", "variant": "gather"}, 2, "--variant", "--model mlp"),
        ({"model": "lm", "heads": "6", "dim": "96"}, 4, "--heads", "--heads 8, or --nproc 2"),
        ({"model": "lm", "heads": "4", "dim": "60"}, 4, "--dim", "even width; 64 would fit"),
        ({"model": "lm"}, 3, "--nproc", "3 ranks do not divide the 256 bytes; 2 or 4 would fit"),
        ({"model": "lm", "heads": "16", "dim": "32"}, 16, "--dim", "88 hidden features.*; 1536 would fit"),
        (
            {"model": "lm", "context": "30", "sequence_parallel": True},
            4,
            "--context",
            "30 bytes.*; give a multiple of 4",
        ),
        ({"variant": "colum"}, 2, "--variant", "allowed: dtensor, gather, megatron"),
    ],
)
def test_bad_combinations_name_the_flag(
    given: dict[str, str | bool], world_size: int, flag: str, part: str
) -> None:
    with pytest.raises(ParameterError, match=part) as raised:
        parse(SPEC, given, world_size)
    assert raised.value.flag == flag


def test_bytes_of_each_variant_by_hand() -> None:
    activation = 16 * 64 * 4
    assert theory.paired_mlp(16, 64, 4) == {"all_reduce": 3 * activation}
    assert theory.gathered_mlp(16, 64, 4) == {"all_gather": 4 * activation, "reduce_scatter": 3 * activation}
    plain = theory.language_model(16, 64, 2, sequence=False)
    assert plain == {"all_reduce": 10 * activation + 3 * 16 * 4}


def test_bytes_and_calls_of_each_layer_by_hand() -> None:
    activation = 16 * 64 * 4
    paired = theory.of_layers(TensorParallelParams())
    assert [theory.words(layer) for layer in paired] == [
        f"1 all_reduce of {activation} B in all",
        f"2 all_reduce of {2 * activation} B in all",
    ]
    gathered = theory.of_layers(TensorParallelParams(variant="gather"))
    assert gathered[0] == {}
    assert gathered[3] == {
        "all_gather": activation,
        "all_gather calls": 1,
        "reduce_scatter": activation,
        "reduce_scatter calls": 1,
    }
    sequence = theory.of_layers(TensorParallelParams(model="lm", sequence_parallel=True))
    assert sequence[0]["all_gather calls"] == sequence[0]["reduce_scatter calls"] == 4
    assert theory.layer_name(TensorParallelParams(), 1) == "layers 2 and 3"


def test_sequence_parallel_sends_the_same_bytes_but_for_the_norms() -> None:
    plain = theory.busiest_link(theory.language_model(16, 64, 2, sequence=False), 4)
    sliced = theory.busiest_link(theory.language_model(16, 64, 2, sequence=True), 4)
    assert sliced - plain == pytest.approx(5 * 64 * 4 * 2 * 3 / 4)


def test_advice_names_the_better_cut() -> None:
    assert "wide and shallow" in theory.advice(100.0, 10, layers=2, world_size=4)
    deep = theory.advice(100.0, 10, layers=8, world_size=4)
    assert "10 times fewer" in deep
    assert "100 B a step, by stages 10 B" in deep
