"""A rank under a `torchrun` command that a person pasted: flags in, words out."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import msgspec
import torch

from labs import worker
from labs.catalog import UnknownLabError, spec_of
from labs.flags import split, unknown
from labs.params import ParameterError, parse

USAGE = 2
OWN_FLAGS = ("--seed", "--device", "--pace-ms", "--pg-timeout-s")


def argument_of(argv: Sequence[str], world_size: int, local_world_size: int) -> worker.Argument:
    """Turn `LAB --flags` into the worker's argument.

    Raises:
        UnknownLabError: the first word is no lab.
        ParameterError: a flag or a value does not fit.
    """
    spec = spec_of(argv[0] if argv else "")
    given, rest = split(spec, argv[1:])
    own = dict(zip(rest[::2], rest[1::2], strict=False))
    strangers = [flag for flag in rest[::2] if flag not in OWN_FLAGS]
    if strangers or len(rest) % 2:
        raise unknown(spec, strangers or rest[-1:], OWN_FLAGS)
    params = parse(spec, given, world_size)
    device = own.get("--device", "auto")
    if device == "auto":
        device = "cuda" if torch.cuda.device_count() >= local_world_size else "cpu"
    if spec.validate_device is not None:
        spec.validate_device(params, device)
    numbers = {}
    for flag, kind in (("--seed", int), ("--pace-ms", float), ("--pg-timeout-s", float)):
        if flag in own:
            try:
                numbers[flag[2:].replace("-", "_")] = kind(own[flag])
            except ValueError:
                raise ParameterError(flag, f"{own[flag]!r} is not a number") from None
    fields = {"lab": spec.id, "params": msgspec.to_builtins(params), "device": device}
    return msgspec.convert(
        {**fields, **numbers, "backend": "nccl" if device == "cuda" else "gloo"}, worker.Argument
    )


def run_pasted(argv: Sequence[str]) -> None:
    """Run one rank and, where no workbench listens, print the checks and exit with the verdict (rank 0)."""
    if "RANK" not in os.environ:
        print(
            "labs.worker runs under torchrun: torchrun --nproc-per-node N -m labs.worker LAB", file=sys.stderr
        )
        raise SystemExit(USAGE)
    try:
        world_size = int(os.environ["WORLD_SIZE"])
        argument = argument_of(argv, world_size, int(os.environ.get("LOCAL_WORLD_SIZE", world_size)))
    except (UnknownLabError, ParameterError) as error:
        if os.environ["RANK"] == "0":
            print(f"labs.worker: {error}", file=sys.stderr)
        raise SystemExit(USAGE) from None
    ctx = worker.main(msgspec.to_builtins(argument))
    if ctx.rank == 0 and not ctx.emit.connected:
        for check in ctx.checks:
            mark = "passed" if check.passed else "FAILED"
            print(f"{mark}  {check.name}: {check.measured} (expected {check.expected}) {check.unit}".rstrip())
    if not ctx.emit.connected and any(not check.passed for check in ctx.checks):
        raise SystemExit(worker.FAILED)
