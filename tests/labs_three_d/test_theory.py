"""Combinations that the 3D lab refuses, and its formulas at sizes one can check by hand."""

from __future__ import annotations

import re
from unittest.mock import Mock

import pytest

from labs.mesh.theory import coordinates
from labs.model_sizes import hidden_width
from labs.parallel.schedule_actions import Schedule
from labs.parallel.schedule_simulator import Costs, simulate
from labs.parallel.schedules import build
from labs.params import ParameterError, parse
from labs.pipeline_parallel.timing import judge_bubble
from labs.tensor_parallel import theory as tensor
from labs.three_d import theory
from labs.three_d.proofs import MOST_MISSED, Evidence, pipelines
from labs.three_d.spec import SPEC
from labs.three_d.theory import Job


def job(**given: object) -> Job:
    """2 x 2 x 2, a transformer of 4 layers of width 32, 4 micro-batches of 2 sequences of 16 bytes."""
    defaults: dict[str, object] = {
        "shape": (2, 2, 2),
        "chunks": 1,
        "placement": "loop",
        "model": "lm",
        "layers": 4,
        "dim": 32,
        "hidden": hidden_width(32),
        "context": 16,
        "micro_batch_size": 2,
        "micro_batches": 4,
    }
    return Job(**{**defaults, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "world_size", "words"),
    [
        (
            {},
            4,
            "--dp: 2 x --pp 2 x --tp 2 make 8 places for 4 ranks; "
            "give --nproc 8, or for 4 ranks --dp 1 --pp 2 --tp 2",
        ),
        ({"dp": "3"}, 8, "--dp: 3 x --pp 2 x --tp 2 make 12 places for 8 ranks; give --nproc 12, or for 8"),
        ({"layers": "5"}, 8, "--layers: 5 layers do not divide into 2 stages; 4 or 6 would fit"),
        (
            {"layers": "6", "model": "mlp"},
            8,
            "--layers: 6 layers do not divide into column-row pairs in 2 stages; 4 or 8 would fit",
        ),
        ({"layers": "20", "model": "mlp"}, 8, "--layers: 20 layers of the mlp, each of which hands on"),
        ({"heads": "3", "dim": "36"}, 8, "--heads: 3 heads do not divide among --tp 2; 2 or 4 would fit"),
        ({"dim": "36"}, 8, "--dim: 36 does not divide into 4 heads of even width; 40 would fit"),
        (
            {"schedule": "interleaved", "micro_batches": "3"},
            8,
            "--micro-batches: interleaved needs a multiple of the 2 ranks, not 3; 2 or 4 would fit",
        ),
        (
            {"schedule": "dualpipev", "micro_batches": "3"},
            8,
            "--micro-batches: dualpipev needs at least as many as there are stages, not 3; 4 or more",
        ),
        ({"chunks": "2"}, 8, "--chunks: 1f1b has exactly 1 chunk a rank, not 2"),
        ({"ranks_per_node": "3"}, 8, "--ranks-per-node: 3 does not divide 8 ranks; give a divisor"),
        (
            {"context": "15", "sequence_parallel": True},
            8,
            "--context: 15 bytes do not divide among --tp 2; 14 or 16 would fit",
        ),
        (
            {"dp": "4", "tp": "1", "sequence_parallel": True},
            8,
            "--sequence-parallel: --tp 1 splits nothing; give --tp 2 or more with it",
        ),
        ({"model": "mlp", "sequence_parallel": True}, 8, "--sequence-parallel: the mlp has no sequence"),
        ({"model": "mlp", "dim": "33"}, 8, "--dim: 33 columns do not divide among --tp 2; 32 or 34"),
        (
            {"dp": "1", "pp": "1", "tp": "6", "heads": "6", "dim": "36"},
            6,
            "--tp: 6 does not divide the 256 bytes",
        ),
        (
            {"dp": "1", "pp": "1", "tp": "16", "heads": "16", "dim": "32"},
            16,
            "--dim: 32 gives 88 hidden features, which --tp 16 does not divide; 1536 would fit",
        ),
        ({"dp": "1", "tp": "3"}, 6, "--tp: 3 does not divide the 256 bytes; give a power of 2"),
        ({"pace_ms": "-0.5"}, 8, "--pace-ms: -0.5 is no time"),
        ({"tp": "0"}, 8, "--tp: 0 is out of bounds; allowed: a whole number >= 1"),
        ({"steps": "0"}, 8, "--steps: 0 is out of bounds"),
    ],
)
def test_bad_input_is_one_line_that_says_what_fits(
    given: dict[str, str | bool], world_size: int, words: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        parse(SPEC, given, world_size)
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("world_size", range(1, 65))
def test_the_mesh_that_is_advised_fits(world_size: int) -> None:
    """Whatever the number of ranks, following the advice passes."""
    if world_size == 8:
        return
    with pytest.raises(ParameterError) as caught:
        parse(SPEC, {}, world_size)
    advised = re.search(r"--dp (\d+) --pp (\d+) --tp (\d+)", str(caught.value))
    assert advised is not None
    dp, pp, tp = advised.groups()
    parse(SPEC, {"dp": dp, "pp": pp, "tp": tp}, world_size)


def test_bytes_of_the_default_by_hand() -> None:
    activation = 2 * 16 * 32 * 4
    layer = (4 * 32 * 32 + 3 * 32 * 88) // 2 + 2 * 32
    first, last = (theory.step_bytes(job(), place) for place in (0, 1))
    assert first["dp"] == 4 * (2 * layer + 256 * 32 // 2)
    assert last["dp"] == 4 * (2 * layer + 256 * 32 // 2 + 32)
    assert first["pp"] == last["pp"] == 4 * activation
    assert first["tp"] == 4 * (2 * 4 + 1) * activation
    assert last["tp"] == 4 * ((2 * 4 + 1) * activation + 3 * 32 * 4)
    assert first["embedding"] == 256 * 32 // 2 * 4
    assert first["model"] == 4
    assert theory.total_bytes(job())["pp"] == 8 * 4 * activation


def test_axes_alone_are_the_simpler_labs() -> None:
    alone = job(shape=(1, 1, 2), layers=2, micro_batches=1)
    assert theory.step_bytes(alone, 0)["tp"] == tensor.language_model(32, 32, 2, False).total()
    pairs = job(shape=(1, 1, 2), model="mlp", micro_batches=1)
    assert theory.step_bytes(pairs, 0)["tp"] == tensor.paired_mlp(2, 32, 4).total()
    sliced = job(shape=(1, 1, 2), layers=2, micro_batches=1, sequence=True)
    assert theory.step_bytes(sliced, 0)["tp"] == tensor.language_model(32, 32, 2, True).total()
    assert set(theory.step_bytes(job(shape=(8, 1, 1)), 0)) == {"dp"}
    assert set(theory.step_bytes(job(shape=(1, 1, 1)), 0)) == set()


def test_a_v_placement_has_no_copies_and_counts_the_table_once() -> None:
    v = job(chunks=2, placement="v")
    assert not v.copies_apart
    assert "embedding" not in theory.groups(v)
    assert theory.rank_parameters(v, 0) - theory.rank_parameters(v, 1) == 256 * 32 // 2 + 32


def test_sequence_parallel_halves_what_crosses_between_stages() -> None:
    assert 2 * theory.step_bytes(job(sequence=True), 0)["pp"] == theory.step_bytes(job(), 0)["pp"]


@pytest.mark.parametrize(
    ("ranks_per_node", "crossing"),
    [
        (8, set()),
        (4, {"dp"}),
        (2, {"dp", "pp", "embedding", "model"}),
        (1, {"dp", "pp", "tp", "embedding", "model"}),
    ],
)
def test_the_outer_axes_cross_nodes_first(ranks_per_node: int, crossing: set[str]) -> None:
    links = theory.links(job(), ranks_per_node)
    assert {name for name, crosses in links.items() if crosses} == crossing


def test_the_warning_names_the_share_and_the_way_out() -> None:
    line = theory.warning(2, 1, theory.total_bytes(job()))
    assert re.search(r"a tp group of 2 ranks crosses nodes of 1: \d+% of all bytes", line)
    assert "give --tp a divisor of 1" in line


def test_gradients_are_complete_behind_the_last_backward_of_a_stage() -> None:
    assert theory.last_backwards(build("1f1b", 2, 4).rows[0]) == {"0B3"}
    assert theory.last_backwards(build("interleaved", 2, 4, 2).rows[1]) == {"1B3", "3B3"}
    assert theory.last_backwards(build("zbv", 2, 4).rows[0]) == {"0W3", "3W3"}


def timed(schedule: Schedule, costs: Costs, dawdling: bool = False) -> list[Evidence]:
    """What 2 x 2 x 2 ranks found out that took `costs`; one rank may start each action late, by 2 ms."""
    rows = simulate(schedule, costs).rows
    found = []
    for rank in range(8):
        place = coordinates(rank, (2, 2, 2))
        late = [2e-3 * index if dawdling and rank == 4 else 0.0 for index in range(len(rows[place[1]]))]
        trace = [
            (str(t.action), int((t.start + wait) * 1e9), int((t.end + wait) * 1e9))
            for t, wait in zip(rows[place[1]], late, strict=True)
        ]
        found.append(Evidence((place[0], place[1], place[2]), traces=[trace, trace]))
    return found[::-1]


def told(ctx: Mock) -> list[tuple[str, bool]]:
    return [(call.args[0], call.args[1]) for call in ctx.check.call_args_list]


def test_the_bubble_of_each_pipeline_is_judged_where_the_pace_was_kept() -> None:
    schedule, costs, name = (
        build("1f1b", 2, 4),
        Costs(0.02, 0.02, 0.02),
        "measured bubble is the simulated one",
    )
    whole, late, busy = Mock(), Mock(), Mock()
    judge_bubble(whole, schedule, costs, pipelines(timed(schedule, costs)), MOST_MISSED)
    assert told(whole) == [(name, True)]
    judge_bubble(late, schedule, costs, pipelines(timed(schedule, costs, dawdling=True)), MOST_MISSED)
    assert told(late) == [(name, False)]
    slow = Costs(0.03, 0.03, 0.03)
    judge_bubble(busy, schedule, costs, pipelines(timed(schedule, slow)), MOST_MISSED)
    assert told(busy) == []
    assert busy.say.call_args.args[0].startswith("the bubble is not judged: actions were off by 50%")
