"""Makespans, bubbles and peaks against the tables of the papers, and orders against torch's runtime."""

from __future__ import annotations

import time
import warnings
from itertools import pairwise

import pytest

from labs.parallel.schedule_actions import Action, parse_row
from labs.parallel.schedule_simulator import Costs, critical_path, simulate
from labs.parallel.schedules import NAMES, build

SIZES = ((2, 4), (4, 8), (4, 12), (8, 16))
MAKESPANS: dict[tuple[str, int], tuple[float, ...]] = {
    ("gpipe", 1): (15, 33, 45, 69),
    ("1f1b", 1): (15, 33, 45, 69),
    ("interleaved", 2): (13.5, 28.5, 40.5, 58.5),
    ("looped_bfs", 2): (13.5, 28.5, 40.5, 58.5),
    ("interleaved", 4): (12.75, 26.25, 38.25, 53.25),
    ("interleaved_zb", 2): (12.5, 25.5, 37.5, 51.5),
    ("zbv", 2): (12.5, 25.5, 37.5, 51.5),
    ("dualpipev", 2): (12.5, 25.5, 37.5, 51.5),
}
PEAKS: dict[tuple[str, int], tuple[float, ...]] = {
    ("naive", 1): (1, 1, 1, 1),
    ("gpipe", 1): (8, 8, 8, 8),
    ("1f1b", 1): (4, 3, 2, 1),
    ("interleaved", 2): (5.5, 4.5, 3.5, 2.5),
    ("interleaved", 4): (4.75, 4.25, 3.75, 3.25),
    ("looped_bfs", 2): (8, 8, 8, 8),
    ("zb_h1", 1): (4, 4, 4, 4),
    ("interleaved_zb", 2): (4, 4, 4, 4),
    ("zbv", 2): (4, 4, 4, 4),
    ("dualpipev", 2): (4.5, 4.5, 4.5, 4.5),
}
UNEQUAL = Costs(forward=1.0, input_gradient=1.25, weight_gradient=0.75)


@pytest.mark.parametrize(("name", "chunks"), MAKESPANS)
def test_makespans_without_communication(name: str, chunks: int) -> None:
    measured = tuple(simulate(build(name, p, m, chunks)).makespan for p, m in SIZES)
    assert measured == pytest.approx(MAKESPANS[name, chunks], abs=1e-9)


@pytest.mark.parametrize(("name", "chunks"), PEAKS)
def test_peak_activations_of_four_ranks_and_eight_micro_batches(name: str, chunks: int) -> None:
    assert simulate(build(name, 4, 8, chunks)).peaks == PEAKS[name, chunks]


@pytest.mark.parametrize(("p", "m"), SIZES)
@pytest.mark.parametrize(
    ("name", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("interleaved", 4), ("looped_bfs", 2)]
)
def test_the_bubble_is_p_minus_1_backwards_and_forwards_over_v(
    name: str, chunks: int, p: int, m: int
) -> None:
    """(p-1)(F+B)/v of idle time on every rank, whatever the ratio of F and B."""
    full = UNEQUAL.forward + UNEQUAL.input_gradient + UNEQUAL.weight_gradient
    simulation = simulate(build(name, p, m, chunks), UNEQUAL)
    assert simulation.makespan - m * full == pytest.approx((p - 1) * full / chunks)
    assert simulation.bubbles.idle_over_ideal == pytest.approx((p - 1) / (chunks * m))
    assert simulation.bubbles.idle_over_total == pytest.approx((p - 1) / (chunks * m + p - 1))


@pytest.mark.parametrize("p", [2, 4, 8])
def test_naive_keeps_one_rank_at_work(p: int) -> None:
    simulation = simulate(build("naive", p, 1), UNEQUAL)
    assert simulation.makespan - 3.0 == pytest.approx((p - 1) * 3.0)
    assert simulation.bubbles.idle_over_ideal == pytest.approx(p - 1)


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_zb_h1_has_a_third_of_the_bubble_of_1f1b(p: int, m: int) -> None:
    """(p-1)(F+I-W) against (p-1)(F+I+W), at no more memory than rank 0 of 1F1B."""
    h1, plain = simulate(build("zb_h1", p, m)), simulate(build("1f1b", p, m))
    assert h1.bubbles.idle_over_ideal == pytest.approx(plain.bubbles.idle_over_ideal / 3)
    costs = Costs(forward=1.0, input_gradient=1.0, weight_gradient=0.8)
    assert simulate(build("zb_h1", p, m), costs).makespan == pytest.approx(2.8 * m + (p - 1) * 1.2)


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_zbv_has_no_bubble_by_its_own_measure_and_some_by_the_others(p: int, m: int) -> None:
    bubbles = simulate(build("zbv", p, m)).bubbles
    assert bubbles.zero_bubble == pytest.approx(0)
    assert bubbles.idle_over_ideal > 0


def test_1f1b_and_gpipe_differ_in_memory_only() -> None:
    one, all_first = simulate(build("1f1b", 4, 8)), simulate(build("gpipe", 4, 8))
    assert one.makespan == all_first.makespan
    assert one.bubbles == all_first.bubbles
    assert max(one.peaks) < max(all_first.peaks)


def test_communication_delays_what_waits_for_it() -> None:
    """Two ranks, one micro-batch: there and back are two transfers."""
    simulation = simulate(build("1f1b", 2, 1), Costs(communication=0.5))
    assert simulation.rows[1][0].start == 1.5
    assert simulation.makespan == 6 + 2 * 0.5


def test_a_v_turns_round_on_one_rank_without_communication() -> None:
    rows = simulate(build("zbv", 2, 4), Costs(communication=5.0)).rows
    ends = {timed.action: timed.end for row in rows for timed in row}
    starts = {timed.action: timed.start for row in rows for timed in row}
    assert starts[Action(2, "F", 0)] == ends[Action(1, "F", 0)]


@pytest.mark.parametrize("name", NAMES)
def test_the_critical_path_is_gapless_and_as_long_as_the_makespan(name: str) -> None:
    schedule = build(name, 4, 8)
    simulation = simulate(schedule)
    path = critical_path(schedule, simulation)
    assert path[0].start == 0
    assert path[-1].end == simulation.makespan
    assert all(before.end == after.start for before, after in pairwise(path))


@pytest.mark.parametrize("name", NAMES)
def test_a_big_pipeline_is_simulated_in_two_seconds(name: str) -> None:
    schedule = build(name, 64, 512)
    start = time.process_time()
    simulate(schedule)
    assert time.process_time() - start < 2.0


TORCH = {
    "looped_bfs": "LoopedBFS",
    "interleaved": "Interleaved1F1B",
    "interleaved_zb": "InterleavedZeroBubble",
    "zbv": "ZBVZeroBubble",
    "dualpipev": "DualPipeV",
}


@pytest.mark.parametrize(("p", "m"), [(1, 4), (2, 4), (3, 6), (4, 8), (4, 12), (8, 16)])
@pytest.mark.parametrize("name", TORCH)
def test_the_order_is_that_of_torchs_runtime(name: str, p: int, m: int) -> None:
    visualizer = pytest.importorskip("torch.distributed.pipelining._schedule_visualizer")
    for chunks in (2,) if name in ("zbv", "dualpipev") else (2, 3, 4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = visualizer.get_schedule_ops(TORCH[name], p, m, chunks)
        rows = tuple(parse_row(" ".join(str(action) for action in row if action)) for row in theirs)
        assert build(name, p, m, chunks).rows == rows


@pytest.mark.parametrize("m", [1, 3, 5])
def test_zbv_with_few_micro_batches_is_torchs_too(m: int) -> None:
    visualizer = pytest.importorskip("torch.distributed.pipelining._schedule_visualizer")
    theirs = visualizer.get_schedule_ops("ZBVZeroBubble", 4, m, 2)
    rows = tuple(parse_row(" ".join(str(action) for action in row if action)) for row in theirs)
    assert build("zbv", 4, m).rows == rows


class RecordingStage:
    """Stands in for torch's PipelineStage and writes down what a runtime asks it to compute."""

    is_last = False
    has_backward = True

    def __init__(self, index: int, num_stages: int) -> None:
        self.stage_index, self.num_stages = index, num_stages
        self.group_rank, self.group_size = index, num_stages
        self.group = self.submod = self.device = None
        self.done: list[Action] = []

    def forward_one_chunk(self, micro_batch: int, *_: object, **__: object) -> None:
        self.done.append(Action(self.stage_index, "F", micro_batch))

    def backward_one_chunk(self, micro_batch: int, **_: object) -> None:
        self.done.append(Action(self.stage_index, "B", micro_batch))

    def __getattr__(self, name: str) -> object:
        """Receives and sends are empty lists of operations, everything else does nothing."""
        return lambda *_, **__: [] if name.startswith("get_") else None


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 4), (8, 16)])
@pytest.mark.parametrize(("name", "theirs"), [("gpipe", "ScheduleGPipe"), ("1f1b", "Schedule1F1B")])
def test_the_order_is_what_torchs_runtime_executes(name: str, theirs: str, p: int, m: int) -> None:
    """For these two torch prints another order than it runs (wrong on 1F1B's last rank); so run it."""
    pipelining = pytest.importorskip("torch.distributed.pipelining")
    for rank, row in enumerate(build(name, p, m).rows):
        stage = RecordingStage(rank, p)
        runtime = getattr(pipelining, theirs)(stage, m, loss_fn=None)
        runtime._stage_forward_initialized = runtime._stage_backward_initialized = True
        runtime._has_backward = True
        runtime._initialize_stage = lambda *_: None
        runtime._step_microbatches([()] * m, [{}] * m)
        assert tuple(stage.done) == row
