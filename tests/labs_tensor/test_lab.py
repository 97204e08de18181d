"""The tp lab on real gloo ranks: every variant equals one process, and each check goes red when broken."""

from __future__ import annotations

from typing import Any

import pytest

from labs.tensor_parallel.proofs import COMPARED_STEPS
from tests.ranks import run_lab, values

SMALL: dict[str, Any] = {"steps": 3, "dim": 16, "batch": 4}
SMALL_LM: dict[str, Any] = {**SMALL, "model": "lm", "dim": 32, "layers": 2, "heads": 4, "context": 8}


@pytest.mark.parametrize(
    ("world_size", "params"),
    [
        (2, {**SMALL, "steps": COMPARED_STEPS + 2}),
        (4, SMALL),
        (2, {**SMALL, "variant": "gather"}),
        (4, {**SMALL, "variant": "gather", "layers": 3}),
        (2, SMALL_LM),
        (4, SMALL_LM),
        (4, {**SMALL_LM, "sequence_parallel": True}),
        (2, {**SMALL, "variant": "dtensor"}),
        (2, {**SMALL_LM, "variant": "dtensor"}),
        (2, {**SMALL_LM, "variant": "dtensor", "sequence_parallel": True}),
    ],
)
def test_every_variant_equals_one_process(world_size: int, params: dict[str, Any]) -> None:
    run = run_lab("tp", world_size, params)
    values(run)
    assert not run.red, {name: run.checks[name].measured for name in run.red}
    repeated = min(params["steps"], COMPARED_STEPS)
    after = f"parameters equal one process after {repeated} steps"
    assert {"parameter memory", "bytes and calls of each layer", after} <= run.checks.keys()


def no_backward_sum() -> None:
    """f without its all-reduce: each rank goes on with its own term of the gradient."""
    from labs.parallel import tensor_ops

    tensor_ops._CopyIn.backward = staticmethod(lambda ctx, *g: (g[0], None))  # type: ignore[method-assign]


def sum_backward_too() -> None:
    """g with an all-reduce backward: gradients W times too large."""
    from labs.parallel import tensor_ops

    def broken(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * 2, None

    tensor_ops._SumOut.backward = staticmethod(broken)  # type: ignore[method-assign]


def neighbour_slice() -> None:
    """Every rank takes the slice of the first one: equal shards, as from one seed for all."""
    from labs.parallel import tensor

    tensor.slice_along = lambda whole, dim, comms: whole.narrow(  # type: ignore[attr-defined]
        dim, 0, whole.shape[dim] // comms.world_size
    )


def keep_norms_partial() -> None:
    """Sequence parallel without the all-reduce of the norms' gradients."""
    from labs.tensor_parallel import subjects

    subjects.__dict__["finish_partial_gradients"] = lambda module, comms, sequence: None


def slice_instead_of_scatter() -> None:
    """The all-gather's backward as a slice where the gradient is partial."""
    from labs.parallel import tensor_ops

    def broken(ctx: Any, *gradients: Any) -> Any:
        return tensor_ops.slice_along(gradients[0], ctx.dim, ctx.comms).contiguous(), None, None

    tensor_ops._GatherForParts.backward = staticmethod(broken)  # type: ignore[method-assign]


def twin_keeps_partial_gradients() -> None:
    """parallelize_module without the redistribution of gradients: norms partial, the embedding's whole."""
    from labs.parallel import tensor_torch

    tensor_torch.finish_gradients = lambda module: None


def twin_enters_thrice() -> None:
    """A plan whose queries, keys and values each take the whole input: their gradients are summed apart."""
    from labs.parallel import tensor_torch

    plan = tensor_torch._layer_plan
    tensor_torch._layer_plan = lambda stream, sequence: {
        name: style for name, style in plan(stream, sequence).items() if "." in name
    }


@pytest.mark.parametrize(
    ("broken", "params", "red"),
    [
        (
            no_backward_sum,
            SMALL,
            {
                "gradients equal one process",
                "bytes of all_reduce a step",
                "bytes and calls of each layer",
            },
        ),
        (
            twin_keeps_partial_gradients,
            {**SMALL_LM, "variant": "dtensor", "sequence_parallel": True},
            {"gradients equal one process", "bytes of all_reduce a step"},
        ),
        (
            twin_enters_thrice,
            {**SMALL_LM, "variant": "dtensor"},
            {"bytes of all_reduce a step", "bytes and calls of each layer"},
        ),
        (sum_backward_too, SMALL, {"gradients equal one process"}),
        (neighbour_slice, SMALL, {"losses equal one process"}),
        (
            keep_norms_partial,
            {**SMALL_LM, "sequence_parallel": True},
            {"gradients equal one process", "bytes of all_reduce a step"},
        ),
        (
            slice_instead_of_scatter,
            {**SMALL, "variant": "gather"},
            {"gradients equal one process", "bytes of reduce_scatter a step"},
        ),
    ],
)
def test_a_broken_algorithm_turns_its_checks_red(broken: Any, params: dict[str, Any], red: set[str]) -> None:
    run = run_lab("tp", 2, params, broken=broken)
    assert red <= run.red
    assert not run.failures
