"""The bandwidth lab's declaration: nccl-tests' flags, their bounds, what is refused. Loads no torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from labs.bandwidth.sizes import ELEMENT_BYTES, format_size, parse_size, sweep
from labs.bandwidth.theory import CUT_IN_PIECES, OPS, REDUCING, ROOTED, Op
from labs.params import LabSpec, ParameterError

OpChoice = Literal["all", Op]
ReduceOp = Literal["sum", "avg", "min", "max", "product"]
Dtype = Literal["float32", "float64", "float16", "bfloat16", "int32", "int64"]


class Params(msgspec.Struct, frozen=True):
    """What a person can set; the short flags are those of nccl-tests."""

    op: Annotated[OpChoice, Meta(description="the collective to time, or all of them in turn")] = "all_reduce"
    min_bytes: Annotated[
        str, Meta(description="first size; binary suffixes, 8M is 8 MiB", extra={"short": "-b", "unit": "B"})
    ] = "1K"
    max_bytes: Annotated[str, Meta(description="last size", extra={"short": "-e", "unit": "B"})] = "16M"
    factor: Annotated[
        int,
        Meta(ge=2, le=1024, description="each size is so many times the one before", extra={"short": "-f"}),
    ] = 2
    iters: Annotated[
        int, Meta(ge=1, le=100_000, description="timed iterations a size", extra={"short": "-n"})
    ] = 20
    warmup: Annotated[
        int, Meta(ge=0, le=100_000, description="iterations before, not timed", extra={"short": "-w"})
    ] = 5
    dtype: Annotated[Dtype, Meta(description="type of the elements", extra={"short": "-d"})] = "float32"
    reduce_op: Annotated[
        ReduceOp, Meta(description="how the reducing collectives combine", extra={"short": "-o"})
    ] = "sum"
    root: Annotated[
        int,
        Meta(ge=0, le=1023, description="root of broadcast, reduce, gather, scatter", extra={"short": "-r"}),
    ] = 0
    check: Annotated[
        bool,
        Meta(description="compare each size's result with its definition (#wrong)", extra={"short": "-c"}),
    ] = True
    output: Annotated[
        str, Meta(description="also write the table to this file, by its ending .csv or .json")
    ] = ""


def ops_of(params: Params) -> tuple[Op, ...]:
    """Return the collectives to run, in the table's order."""
    return tuple(op for op in OPS if params.op in ("all", op))


def sizes_of(params: Params) -> list[int]:
    """Return the sizes asked for (bytes), before they are rounded down to whole elements a rank.

    Raises:
        ValueError: a size cannot be read or the sweep is empty.
    """
    return sweep(parse_size(params.min_bytes), parse_size(params.max_bytes), params.factor)


def validate(params: Params, world_size: int) -> None:
    """Refuse what no single flag can.

    Raises:
        ParameterError: a size that cannot be read or divided, -b above -e, a root that is no rank, an
            average of whole numbers, or an output file that cannot be written.
    """
    smallest = _size("--min-bytes", params.min_bytes)
    largest = _size("--max-bytes", params.max_bytes)
    if smallest > largest:
        raise ParameterError(
            "--min-bytes",
            f"{params.min_bytes} is larger than --max-bytes {params.max_bytes}; allowed: up to --max-bytes",
        )
    _elements(params, smallest, world_size)
    if params.root >= world_size and any(op in ROOTED for op in ops_of(params)):
        raise ParameterError(
            "--root", f"{params.root} is no rank of {world_size}; allowed: 0 to {world_size - 1}"
        )
    if params.reduce_op == "avg" and "int" in params.dtype and any(op in REDUCING for op in ops_of(params)):
        raise ParameterError(
            "--reduce-op", f"avg of {params.dtype} has no whole result; use sum, or --dtype float32"
        )
    _output(params.output)


def _size(flag: str, text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise ParameterError(flag, str(error)) from None


def _elements(params: Params, smallest: int, world_size: int) -> None:
    element = ELEMENT_BYTES[params.dtype]
    if smallest % element:
        raise ParameterError(
            "--min-bytes",
            f"{params.min_bytes} is not a whole number of {params.dtype}; allowed: multiples of {element}",
        )
    least = element * world_size
    cut = [op for op in ops_of(params) if op in CUT_IN_PIECES]
    if cut and smallest < least:
        raise ParameterError(
            "--min-bytes",
            f"{params.min_bytes} is less than one {params.dtype} for each of {world_size} ranks in {cut[0]}; "
            f"allowed: {format_size(least)} and more",
        )


def _output(output: str) -> None:
    if not output:
        return
    path = Path(output)
    if path.suffix not in (".csv", ".json"):
        raise ParameterError("--output", f"{output} ends in neither; allowed: a file ending in .csv or .json")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise ParameterError("--output", f"{output} lies in a folder that does not exist; create it first")
    if path.is_dir():
        raise ParameterError("--output", f"{output} is a folder; allowed: a file ending in .csv or .json")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ParameterError("--output", f"{output} lies in a folder that cannot be written; name another")


SPEC = LabSpec(
    id="bandwidth",
    title="Bandwidth",
    summary="how fast collectives are by size: latency, bandwidth, and what the link could do",
    group="communication",
    params=Params,
    panes=("bandwidth", "topology", "log", "checks"),
    teaches=(
        "warm up, synchronise, barrier, time: the four steps of an honest measurement",
        "algbw and busbw, what S counts, and why the factor makes rank counts comparable",
        "the latency regime and the bandwidth regime, from the fit t = alpha + S/beta",
        "two published figures that are wrong, and how to see it",
    ),
    min_ranks=2,
    default_ranks=4,
    debug_detail=False,
    tells=True,
    validate=validate,
)
