"""The lab on real ranks: one launch for each world size runs many meshes, whole and broken."""

from __future__ import annotations

from functools import cache

import pytest

from labs.three_d.spec import ThreeDParams
from launcher.events import Check
from tests.labs_three_d import cases
from tests.labs_three_d.cases import PACE_MS, Case, params, prove
from tests.ranks import on_ranks, values

WHOLE: dict[int, dict[str, Case]] = {
    2: {
        "dp alone": (params(2, 1, 1), ""),
        "pp alone": (params(1, 2, 1), ""),
        "tp alone": (params(1, 1, 2), ""),
        "tp alone, sequence parallel": (params(1, 1, 2, sequence_parallel=True), ""),
        "pp alone, mlp": (params(1, 2, 1, model="mlp"), ""),
        "tp alone, mlp": (params(1, 1, 2, model="mlp"), ""),
        "first and last stage on one rank": (params(1, 2, 1, schedule="zbv"), ""),
    },
    4: {
        "dp and pp": (params(2, 2, 1, micro_batches=3), ""),
        "dp and tp": (params(2, 1, 2), ""),
        "pp and tp, split backward": (params(1, 2, 2, schedule="zb_h1"), ""),
        "pp and tp, sequence parallel": (params(1, 2, 2, sequence_parallel=True), ""),
        "two chunks, whose gradients leave apart": (params(2, 2, 1, schedule="interleaved"), ""),
        "a table shared by two stages of a rank": (params(2, 2, 1, schedule="zbv"), ""),
        "naive": (params(1, 2, 2, schedule="naive"), ""),
        "gpipe": (params(1, 2, 2, schedule="gpipe"), ""),
        "looped_bfs": (params(1, 2, 2, schedule="looped_bfs"), ""),
        "interleaved_zb, mlp": (params(1, 2, 2, schedule="interleaved_zb", model="mlp"), ""),
        "chunks on a pipeline of one": (params(2, 1, 2, schedule="interleaved"), ""),
        "four stages": (params(1, 4, 1, micro_batches=4), ""),
    },
    8: {
        "the default, unpaced": (ThreeDParams(pace_ms=0.0, steps=2), ""),
        "all three, v placement": (params(2, 2, 2, schedule="dualpipev", micro_batches=4), ""),
        "all three, mlp": (params(2, 2, 2, model="mlp"), ""),
    },
}
BROKEN: dict[int, list[tuple[Case, set[str]]]] = {
    2: [
        (
            (params(2, 1, 1), "no_average"),
            {
                "gradients equal one process",
                "replicas stay equal",
                "bytes of dp a step",
                "gradients leave as their stage ends",
            },
        ),
        ((params(2, 1, 1), "sum_over_replicas"), {"gradients equal one process"}),
        ((params(2, 1, 1), "average_late"), {"gradients leave as their stage ends"}),
        ((params(2, 1, 1), "same_rows"), {"losses equal one process", "gradients equal one process"}),
        ((params(2, 1, 1), "drifting_replica"), {"replicas stay equal"}),
        ((params(1, 1, 2), "no_backward_sum"), {"gradients equal one process", "bytes of tp a step"}),
        (
            (params(1, 1, 2, sequence_parallel=True), "norms_stay_partial"),
            {"gradients equal one process", "bytes of tp a step"},
        ),
        ((params(1, 1, 2), "count_everything"), {"gradient norm equals one process"}),
        ((params(1, 2, 1), "count_everything"), {"gradient norm equals one process"}),
        (
            (params(1, 2, 1), "norm_of_one_rank"),
            {"gradient norm equals one process", "parameters equal one process", "bytes of model a step"},
        ),
        (
            (params(1, 2, 1), "copies_apart"),
            {"gradients equal one process", "tied copies stay equal", "bytes of embedding a step"},
        ),
        ((params(1, 2, 1), "another_order"), {"order is the planned one"}),
        ((params(1, 2, 1), "count_twice"), {"bytes of pp a step", "bytes of embedding a step"}),
        ((params(1, 2, 1), "stand_still"), {"parameters moved"}),
        ((params(1, 2, 1, pace_ms=PACE_MS), "dawdling_stage"), {"measured bubble is the simulated one"}),
    ],
    4: [
        (
            (params(2, 1, 2), "transposed_mesh"),
            {"groups of dp", "groups of tp", "groups of model", "places on the mesh"},
        ),
        ((params(2, 2, 1), "transposed_mesh"), {"groups of dp", "groups of pp", "places on the mesh"}),
        ((params(1, 2, 2), "wrong_pairs"), {"groups of embedding", "gradients equal one process"}),
    ],
}


@cache
def checks_of(world_size: int) -> list[list[Check]]:
    """Rank 0's checks of every case of this world size, from one launch."""
    broken = [case for case, _ in BROKEN.get(world_size, [])]
    runs = [*broken, *WHOLE[world_size].values()]
    first: list[list[Check]]
    first, *others = values(on_ranks(world_size, prove, runs, lab="3d"))
    assert not any(any(checks) for checks in others)
    return first


@pytest.mark.parametrize(
    ("world_size", "name"), [(size, name) for size, given in WHOLE.items() for name in given]
)
def test_every_mesh_equals_one_process(world_size: int, name: str) -> None:
    at = len(BROKEN.get(world_size, [])) + list(WHOLE[world_size]).index(name)
    checks = checks_of(world_size)[at]
    assert [check for check in checks if not check.passed] == []
    assert len(checks) >= 11


def test_axes_of_one_rank_move_nothing() -> None:
    """Each axis alone has the bytes of the simpler lab, and no check on the others."""
    moved = {
        name: {check.name for check in checks_of(2)[len(BROKEN[2]) + at] if check.name.startswith("bytes")}
        for at, name in enumerate(WHOLE[2])
    }
    assert moved["dp alone"] == {"bytes of dp a step"}
    assert moved["tp alone"] == {"bytes of tp a step", "bytes of model a step"}
    assert moved["pp alone, mlp"] == {"bytes of pp a step", "bytes of model a step"}
    assert "bytes of embedding a step" in moved["pp alone"]
    assert "bytes of embedding a step" not in moved["first and last stage on one rank"]


@pytest.mark.parametrize(
    ("world_size", "at"), [(size, at) for size in BROKEN for at in range(len(BROKEN[size]))]
)
def test_a_broken_piece_turns_its_checks_red(world_size: int, at: int) -> None:
    _, expected = BROKEN[world_size][at]
    # A name goes on after a comma where the machine missed the pace.
    red = {check.name.partition(",")[0] for check in checks_of(world_size)[at] if not check.passed}
    assert expected <= red


def test_every_mutant_is_used() -> None:
    used = {mutant for given in BROKEN.values() for (_, mutant), _ in given}
    there = {
        name
        for name, kind in vars(cases).items()
        if getattr(kind, "__annotations__", {}).get("return", "").startswith("AbstractContextManager")
    }
    assert used == there
