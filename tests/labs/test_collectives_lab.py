"""The collectives lab on real ranks: every op by its definition, and every wrong op seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from labs.collectives.theory import OPS
from launcher.events import Span, Tensor
from tests.labs import broken_collectives
from tests.ranks import Run, run_lab

DEFINED = {f"{op} matches its definition" for op in OPS}
IDENTITIES = {"all_reduce = reduce_scatter + all_gather", "broadcast = scatter + all_gather"}
COMMON = {"bytes of all operations", "same collectives on every rank"}


def healthy(run: Run) -> None:
    """No failure, no red check, every rank came to its end."""
    assert not run.failures
    assert [rank.exit_code for rank in run.ranks] == [0] * len(run.ranks)
    assert not run.red


@pytest.mark.parametrize(
    ("world_size", "params"),
    [
        (2, {}),
        (3, {"root": 2, "elements": 5, "reduce_op": "avg"}),
        (4, {"root": 1, "reduce_op": "product", "dtype": "int64"}),
        (3, {"async_op": True, "reduce_op": "max", "dtype": "bfloat16"}),
        (2, {"elements": 100, "reduce_op": "min", "dtype": "float64"}),
        (3, {"reduce_op": "avg", "dtype": "bfloat16"}),
    ],
)
def test_every_op_matches_its_definition(world_size: int, params: dict[str, Any]) -> None:
    """Over the reduce ops, the element types, roots, and both ways of calling."""
    run = run_lab("collectives", world_size, params)
    healthy(run)
    assert set(run.checks) == DEFINED | IDENTITIES | COMMON


@pytest.mark.parametrize("world_size", [2, 3, 4, 5])
@pytest.mark.parametrize(
    ("algorithm", "ops"),
    [("ring", ("all_gather", "reduce_scatter", "all_reduce")), ("tree", ("broadcast", "reduce"))],
)
def test_step_by_step_equals_the_library(algorithm: str, ops: tuple[str, ...], world_size: int) -> None:
    """With elements that the ranks do not divide, and a root in the middle."""
    run = run_lab(
        "collectives", world_size, {"algorithm": algorithm, "elements": 3, "root": 1, "reduce_op": "avg"}
    )
    healthy(run)
    for op in ops:
        for what in ("equals the library", "bytes", "steps"):
            assert f"{algorithm} {op} {what}" in run.checks


@pytest.mark.parametrize("op", OPS)
def test_a_wrong_op_is_seen(op: str) -> None:
    """By its check and not by an exception."""
    broken: Callable[[], None] = getattr(broken_collectives, op)
    run = run_lab("collectives", 3, {"op": op}, broken=broken)
    assert not run.failures
    assert f"{op} matches its definition" in run.red


@pytest.mark.parametrize(
    ("broken", "params", "red"),
    [
        (broken_collectives.fewer_bytes, {"op": "all_reduce"}, {"bytes of all operations"}),
        (
            broken_collectives.ring_one_step_short,
            {"op": "all_reduce", "algorithm": "ring"},
            {"ring all_reduce equals the library"},
        ),
        (
            broken_collectives.ring_once_too_often,
            {"op": "all_reduce", "algorithm": "ring"},
            {"ring all_reduce bytes", "ring all_reduce steps"},
        ),
        (
            broken_collectives.reduce_scatter,
            {"op": "all_reduce"},
            {"all_reduce = reduce_scatter + all_gather"},
        ),
        (broken_collectives.scatter, {"op": "broadcast"}, {"broadcast = scatter + all_gather"}),
    ],
)
def test_other_mistakes_are_seen(broken: Callable[[], None], params: dict[str, Any], red: set[str]) -> None:
    """Bytes, steps and identities have checks of their own."""
    run = run_lab("collectives", 3, params, broken=broken)
    assert not run.failures
    assert run.red == red


def test_buffers_before_and_after_with_origins() -> None:
    """Rank 1 of an all-to-all: its second pieces of all, each from the rank that sent it."""
    run = run_lab("collectives", 2, {"op": "all_to_all", "elements": 2})
    before, after = (
        next(e for e in run.ranks[1].events if isinstance(e, Tensor) and e.moment == moment)
        for moment in ("before", "after")
    )
    assert (before.name, before.values, before.origin) == ("all_to_all", [20, 21, 22, 23], [1, 1, 1, 1])
    assert (after.name, after.values, after.origin) == ("all_to_all", [12, 13, 22, 23], [0, 0, 1, 1])


def test_what_is_undefined_says_so() -> None:
    """After a reduce only the root's buffer means anything."""
    run = run_lab("collectives", 2, {"op": "reduce", "root": 1})
    origins = [
        event.origin
        for rank in run.ranks
        for event in rank.events
        if isinstance(event, Tensor) and event.moment == "after"
    ]
    assert origins == [[-2] * 4, [-1] * 4]


def test_large_buffers_travel_as_statistics() -> None:
    """No values, no origins, but a hash."""
    run = run_lab("collectives", 2, {"op": "broadcast", "elements": 5000})
    healthy(run)
    after = next(e for e in run.of(Tensor) if e.moment == "after")
    assert (after.values, after.origin) == (None, None)
    assert after.hash
    assert after.mean is not None


def test_a_handle_lets_compute_run_meanwhile() -> None:
    """The compute lies between the start of the operation and its wait."""
    run = run_lab("collectives", 2, {"op": "all_reduce", "async_op": True, "elements": 1000})
    healthy(run)
    spans = [e for e in run.ranks[0].events if isinstance(e, Span)]
    compute = next(e for e in spans if e.name == "meanwhile")
    moving = next(e for e in spans if e.name == "all_reduce")
    waiting = next(e for e in spans if e.name == "wait all_reduce")
    assert moving.t <= compute.t
    assert compute.t1 <= waiting.t


def test_a_mismatch_is_named_with_both_ranks_and_shapes() -> None:
    """One sentence for the person, by the check and by the failure."""
    run = run_lab("collectives", 3, {"mismatch": True})
    sentence = "in all_reduce rank 0 brings a tensor of shape [4] and rank 2 one of shape [5]"
    assert run.checks["same collectives on every rank"].measured == sentence
    named = {failure.message for failure in run.failures}
    assert sentence in named
    assert {failure.kind for failure in run.failures} <= {"mismatch", "exception"}
    assert all(rank.exit_code for rank in run.ranks)
