"""The definitions of the collectives and their bytes: lists only, no process."""

from __future__ import annotations

import pytest

from labs.collectives import theory
from labs.collectives.spec import SPEC, CollectivesParams, steps_of
from labs.collectives.theory import COMBINED, Op
from labs.params import ParameterError, parse

BUFFERS = [[10.0, 11.0, 12.0, 13.0], [20.0, 21.0, 22.0, 23.0]]
"""What two ranks hold, two elements a piece where an operation cuts them."""


@pytest.mark.parametrize(
    ("op", "root", "rank_0", "rank_1"),
    [
        ("broadcast", 1, BUFFERS[1], BUFFERS[1]),
        ("scatter", 0, [10, 11], [12, 13]),
        ("gather", 1, None, [*BUFFERS[0], *BUFFERS[1]]),
        ("reduce", 0, [30, 32, 34, 36], None),
        ("all_gather", 0, [*BUFFERS[0], *BUFFERS[1]], [*BUFFERS[0], *BUFFERS[1]]),
        ("reduce_scatter", 0, [30, 32], [34, 36]),
        ("all_reduce", 0, [30, 32, 34, 36], [30, 32, 34, 36]),
        ("all_to_all", 0, [10, 11, 20, 21], [12, 13, 22, 23]),
        ("barrier", 0, [], []),
        ("send_recv", 0, BUFFERS[1], BUFFERS[0]),
    ],
)
def test_definitions(op: Op, root: int, rank_0: list[float] | None, rank_1: list[float] | None) -> None:
    """Worked out by hand."""
    for rank, expected in enumerate((rank_0, rank_1)):
        found = theory.outcome(op, rank, BUFFERS, root, "sum")
        assert (found.values if found else None) == expected


def test_origins() -> None:
    """Moved elements carry the rank they came from, combined ones -1."""
    moved, combined = (theory.outcome(op, 1, BUFFERS, 0, "sum") for op in ("all_to_all", "all_reduce"))
    assert moved is not None
    assert moved.origin == [0, 0, 1, 1]
    assert combined is not None
    assert combined.origin == [COMBINED] * 4


@pytest.mark.parametrize(
    ("reduce_op", "expected"),
    [("sum", 30), ("avg", 15), ("min", 10), ("max", 20), ("product", 200)],
)
def test_reduce_ops(reduce_op: str, expected: float) -> None:
    """The first element of both buffers."""
    found = theory.outcome("all_reduce", 0, BUFFERS, 0, reduce_op)
    assert found is not None
    assert found.values[0] == expected


def test_start_values_tell_the_rank_and_stay_exact() -> None:
    """The leading digit is the rank + 1; products stay small."""
    assert theory.start_of("all_reduce", 2, 4, 4, 0, "sum") == [30, 31, 32, 33]
    assert theory.start_of("scatter", 1, 2, 4, 0, "sum") == []
    assert len(theory.start_of("scatter", 0, 2, 4, 0, "sum")) == 8
    factors = [theory.start_of("all_reduce", rank, 8, 16, 0, "product") for rank in range(8)]
    product = theory.outcome("all_reduce", 0, factors, 0, "product")
    assert product is not None
    assert set(product.values) == {-2.0}


@pytest.mark.parametrize(
    ("op", "payload", "sent"),
    [
        ("all_reduce", 400, 2 * 3 / 4 * 400),
        ("reduce_scatter", 1600, 3 / 4 * 1600),
        ("all_gather", 1600, 3 / 4 * 1600),
        ("all_to_all", 1600, 3 / 4 * 1600),
        ("barrier", 0, 0),
    ],
)
def test_bytes_a_rank_sends(op: Op, payload: int, sent: float) -> None:
    """100 fp32 a piece on four ranks; S is a total where buffers are cut."""
    assert theory.payload_bytes(op, 100, 4, 4) == payload
    assert theory.sent_bytes(op, 3, 0, 4, payload) == pytest.approx(sent)


def test_a_root_sends_or_receives_for_all() -> None:
    """The root's place moves with it."""
    assert theory.sent_bytes("scatter", 2, 2, 4, 1600) == 1200
    assert theory.sent_bytes("scatter", 0, 2, 4, 1600) == 0
    assert theory.sent_bytes("gather", 0, 2, 4, 1600) == 400


def test_steps() -> None:
    """Ring: W-1 a half; binomial tree: ceil(log2 W)."""
    assert theory.stepwise_rounds("all_reduce", 8) == 14
    assert [theory.stepwise_rounds("broadcast", w) for w in (2, 3, 4, 5, 8)] == [1, 2, 2, 3, 3]
    assert steps_of(CollectivesParams(algorithm="tree")) == ("broadcast", "reduce")
    assert steps_of(CollectivesParams(algorithm="ring", op="all_reduce")) == ("all_reduce",)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"root": "4"}, "--root: 4 is no rank of 4; allowed: 0 to 3"),
        (
            {"reduce_op": "avg", "dtype": "int32"},
            "--reduce-op: avg of int32: gloo cannot; use --reduce-op sum",
        ),
        (
            {"algorithm": "ring", "op": "broadcast"},
            "--algorithm: ring does not fit broadcast; it runs all_gather",
        ),
        ({"algorithm": "tree", "op": "all_reduce"}, "--algorithm: tree does not fit all_reduce; it runs"),
        ({"op": "gather", "mismatch": True}, "--mismatch: does not fit gather"),
        (
            {"algorithm": "ring", "mismatch": True},
            "--mismatch: is one plain all-reduce by the library; leave",
        ),
        ({"async_op": True, "mismatch": True}, "--mismatch: is one plain all-reduce by the library; leave"),
        ({"op": "allreduce"}, "--op: 'allreduce' is not allowed; did you mean all_reduce?"),
        ({"elements": "0"}, "--elements: 0 is out of bounds"),
    ],
)
def test_what_is_refused(given: dict[str, str | bool], message: str) -> None:
    """One line that names the flag, before anything is started."""
    with pytest.raises(ParameterError) as caught:
        parse(SPEC, given, 4)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_one_rank_is_too_few() -> None:
    """A collective of one moves nothing."""
    with pytest.raises(ParameterError, match="--nproc"):
        parse(SPEC, {}, 1)
