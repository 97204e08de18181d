"""What a person may ask for, and the one line for everything else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from labs.bandwidth import theory
from labs.bandwidth.spec import SPEC, Params, ops_of, sizes_of
from labs.comms import REDUCE_OPS
from labs.params import ParameterError, fields_of, parse


def _parse(world_size: int = 4, **given: str | bool) -> Params:
    params = parse(SPEC, given, world_size)
    assert isinstance(params, Params)
    return params


def test_short_flags_are_those_of_nccl_tests() -> None:
    short = {field.name: field.short for field in fields_of(Params) if field.short}
    assert short == {
        "min_bytes": "-b",
        "max_bytes": "-e",
        "factor": "-f",
        "iters": "-n",
        "warmup": "-w",
        "dtype": "-d",
        "reduce_op": "-o",
        "root": "-r",
        "check": "-c",
    }


def test_choices_are_what_the_lab_can_do() -> None:
    choices = {field.name: field.choices for field in fields_of(Params)}
    assert set(choices["op"]) == {"all", *theory.OPS}
    assert set(choices["reduce_op"]) == set(REDUCE_OPS)


@pytest.mark.parametrize("world_size", range(2, 65))
def test_defaults_run_every_op_at_every_rank_count(world_size: int) -> None:
    params = _parse(world_size, op="all")
    assert ops_of(params) == theory.OPS
    assert sizes_of(params)[0] == 1024


def test_sizes_take_binary_suffixes() -> None:
    assert sizes_of(_parse(min_bytes="8", max_bytes="8K", factor="32")) == [8, 256, 8192]


@pytest.mark.parametrize(
    ("given", "flag", "says"),
    [
        ({"min_bytes": "2M", "max_bytes": "1M"}, "--min-bytes", "larger than --max-bytes 1M"),
        ({"factor": "1"}, "--factor", "allowed: a whole number >= 2"),
        ({"factor": "x"}, "--factor", "is not a whole number"),
        ({"min_bytes": "10"}, "--min-bytes", "multiples of 4"),
        ({"min_bytes": "12", "dtype": "float64"}, "--min-bytes", "multiples of 8"),
        ({"min_bytes": "8", "op": "all_gather"}, "--min-bytes", "allowed: 16 and more"),
        ({"min_bytes": "8", "op": "all"}, "--min-bytes", "in reduce_scatter; allowed: 16"),
        ({"min_bytes": "8Q"}, "--min-bytes", "'8Q' is not a size"),
        ({"max_bytes": "65G"}, "--max-bytes", "1 to 64G"),
        ({"iters": "0"}, "--iters", ">= 1"),
        ({"warmup": "-1"}, "--warmup", ">= 0"),
        ({"op": "allreduce"}, "--op", "did you mean all_reduce?"),
        ({"dtype": "float"}, "--dtype", "float32"),
        ({"op": "broadcast", "root": "4"}, "--root", "allowed: 0 to 3"),
        ({"reduce_op": "avg", "dtype": "int32"}, "--reduce-op", "use sum"),
        ({"output": "table.txt"}, "--output", ".csv or .json"),
        ({"output": "no/such/folder/table.csv"}, "--output", "does not exist"),
    ],
)
def test_bad_input_is_one_line_naming_the_flag(given: dict[str, str], flag: str, says: str) -> None:
    with pytest.raises(ParameterError) as error:
        parse(SPEC, given, 4)
    assert error.value.flag == flag
    assert says in error.value.message
    assert "\n" not in str(error.value)


def test_one_rank_has_nobody_to_talk_to() -> None:
    with pytest.raises(ParameterError, match="allowed 2 to 64"):
        _parse(1)


def test_what_an_op_does_not_use_is_not_held_against_it(tmp_path: Path) -> None:
    _parse(op="all_reduce", root="9")
    _parse(op="broadcast", reduce_op="avg", dtype="int64")
    _parse(op="all_reduce", min_bytes="8")
    _parse(output=str(tmp_path / "table.json"))


class TestOutput:
    """A sweep that could not write its table in the end is refused before it begins."""

    def test_a_folder_is_no_file(self, tmp_path: Path) -> None:
        (tmp_path / "taken.csv").mkdir()
        with pytest.raises(ParameterError, match=r"^--output: .*taken.csv is a folder"):
            _parse(output=str(tmp_path / "taken.csv"))

    def test_a_folder_that_cannot_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # Root may write anywhere, whatever the mode says.
        monkeypatch.setattr(os, "access", lambda path, wanted: Path(path) != tmp_path)
        with pytest.raises(ParameterError, match=r"^--output: .* that cannot be written"):
            _parse(output=str(tmp_path / "table.csv"))
