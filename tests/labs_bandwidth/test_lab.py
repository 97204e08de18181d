"""The bandwidth lab on real gloo ranks: right on every op, and red where it is broken."""

from __future__ import annotations

import csv
import itertools
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from labs.bandwidth import theory, timing
from labs.bandwidth.ops import PLACEMENTS, Case, Job
from labs.bandwidth.sizes import ELEMENT_BYTES
from labs.comms import REDUCE_OPS
from labs.context import Context
from launcher.events import Log, Scalar, Span
from tests.labs_bandwidth import mutants
from tests.ranks import Run, on_ranks, run_lab, values

SHORT = {"min_bytes": "1K", "max_bytes": "256K", "factor": 16, "iters": 10, "warmup": 1}


def _scalars(run: Run) -> dict[tuple[str, int], float]:
    return {(scalar.name, scalar.step): scalar.value for scalar in run.of(Scalar)}


def _table(run: Run) -> list[str]:
    return [log.line for log in run.of(Log)]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the module's common run writes its table."""
    return tmp_path_factory.mktemp("table") / "sweep.csv"


@pytest.fixture(scope="module")
def short(output: Path) -> Run:
    """One all-reduce sweep of three sizes on two ranks, looked at by many tests."""
    return run_lab("bandwidth", 2, {"output": str(output), **SHORT})


class TestWholeLab:
    @pytest.mark.parametrize("world_size", [2, 3])
    def test_every_op_passes_every_check(self, world_size: int) -> None:
        run = run_lab("bandwidth", world_size, {"op": "all", **SHORT})
        assert not run.failures
        assert run.red == set()
        for op in theory.OPS:
            named = {name.removeprefix(f"{op}: ") for name in run.checks if name.startswith(f"{op}: ")}
            assert named == {
                "results are right",
                "S counts what the buffers hold",
                "busbw is the rate of the busiest link",
                "the clock waits for the data",
                "t = alpha + S/beta fits",
            }

    def test_record_holds_every_quantity_of_every_size(self, short: Run) -> None:
        scalars = _scalars(short)
        for index, size in enumerate((1 << 10, 1 << 14, 1 << 18)):
            for placement in ("out_of_place", "in_place"):
                at = f"all_reduce/{placement}"
                assert scalars[f"{at}/size", index] == size
                low, middle, high = (scalars[f"{at}/{name}", index] for name in ("min", "median", "p99"))
                assert 0 < low <= middle <= high
                assert scalars[f"{at}/algbw", index] == pytest.approx(size / middle / 1e3)
                assert scalars[f"{at}/busbw", index] == pytest.approx(scalars[f"{at}/algbw", index])
                assert scalars[f"{at}/wrong", index] == 0

    def test_table_has_a_line_a_size_and_the_footer(self, short: Run) -> None:
        lines = _table(short)
        assert [line.split()[0] for line in lines if not line.startswith("#")] == ["1024", "16384", "262144"]
        assert any(line.startswith("# Avg bus bandwidth") for line in lines)
        assert any(line.startswith("# Fit") for line in lines)

    def test_a_size_is_one_span_and_one_sequence_number(self, short: Run) -> None:
        spans = [span for span in short.of(Span) if span.name == "all_reduce in_place"]
        for rank in (0, 1):
            mine = [span for span in spans if span.rank == rank]
            assert [span.bytes for span in mine] == [1 << 10, 1 << 14, 1 << 18]
            assert [span.seq for span in mine] == sorted({span.seq for span in mine})

    def test_csv_file(self, short: Run, output: Path) -> None:
        rows = list(csv.DictReader(output.read_text().splitlines()))
        assert [int(row["size_bytes"]) for row in rows] == [1 << 10] * 2 + [1 << 14] * 2 + [1 << 18] * 2
        assert [file.name for file in output.parent.iterdir()] == [output.name]

    def test_json_file_sum_of_pieces_and_both_formulas(self, tmp_path: Path) -> None:
        path = tmp_path / "sweep.json"
        run = run_lab("bandwidth", 3, {"op": "reduce_scatter", "output": str(path), **SHORT})
        scalars = _scalars(run)
        # 3 ranks do not divide 1024 bytes of float32 into whole pieces: 255 elements are left.
        assert scalars["reduce_scatter/out_of_place/size", 0] == 1020
        right = scalars["reduce_scatter.busbw_last", -1]
        assert scalars["reduce_scatter.busbw_last_if_s_were_one_piece", -1] == pytest.approx(right / 3)
        assert scalars["reduce_scatter.busbw_last_gib", -1] == pytest.approx(right * 1e9 / 2**30)
        assert scalars["memcpy", -1] > 0
        assert [row["size_bytes"] for row in json.loads(path.read_text())["rows"]][:2] == [1020, 1020]

    def test_without_check_nothing_is_verified_and_nothing_claimed(self) -> None:
        run = run_lab("bandwidth", 2, {"check": False, **SHORT})
        assert not any("results are right" in name for name in run.checks)
        assert "# Results not verified" in _table(run)
        assert not any(name.endswith("/wrong") for name, _ in _scalars(run))

    def test_sizes_that_do_not_fit_are_refused_before_anything_is_allocated(self) -> None:
        run = run_lab("bandwidth", 2, {"min_bytes": "64G", "max_bytes": "64G"})
        assert {failure.rank for failure in run.failures} == {0, 1}
        assert "--max-bytes 64G needs" in run.failures[0].message


class TestResults:
    def test_every_type_and_reduction_is_exact_at_every_root(self) -> None:
        for wrong in values(on_ranks(3, wrong_by_case, lab="bandwidth")):
            assert wrong
            assert {case: count for case, count in wrong.items() if count} == {}

    def test_untouched_results_are_all_wrong(self) -> None:
        assert values(on_ranks(2, count_untouched, lab="bandwidth")) == [600, 600]


def wrong_by_case(ctx: Context) -> dict[tuple[str, ...], int]:
    """Wrong elements of this rank for every type, reduction, op and placement."""
    wrong: dict[tuple[str, ...], int] = {}
    for dtype, name in itertools.product(ELEMENT_BYTES, REDUCE_OPS):
        if name == "avg" and "int" in dtype:
            continue
        job = Job(ctx.rank, ctx.world_size, ctx.device, dtype, name, root=2 if name == "sum" else 0)
        for op, placement in itertools.product(theory.OPS, PLACEMENTS):
            if placement == "in_place" and op in theory.OUT_OF_PLACE_ONLY:
                continue
            case = Case(op, placement, 100 * ctx.world_size, job)
            case.call()
            wrong[dtype, name, op, placement] = case.count_wrong()
    return wrong


def count_untouched(ctx: Context) -> int:
    """Wrong elements where no call was made."""
    return Case("all_reduce", "out_of_place", 600, Job(ctx.rank, ctx.world_size, ctx.device)).count_wrong()


class TestBroken:
    """Each break turns the check that is meant for it red, and is a result, not an exception."""

    @pytest.mark.parametrize(
        ("broken", "op", "check"),
        [
            (mutants.factor_of_one, "all_reduce", "busbw is the rate of the busiest link"),
            (mutants.only_one_piece, "reduce_scatter", "S counts what the buffers hold"),
            (mutants.clock_without_waiting, "all_reduce", "the clock waits for the data"),
            (mutants.clock_that_stops_early, "all_reduce", "the clock waits for the data"),
            (mutants.nothing_moves, "broadcast", "results are right"),
            (mutants.one_element_off_on_rank_1, "all_to_all", "results are right"),
            (mutants.ranks_that_swap_pieces, "all_gather", "results are right"),
            (mutants.no_straight_line, "scatter", "t = alpha + S/beta fits"),
        ],
    )
    def test_is_noticed(self, broken: Callable[[], None], op: str, check: str) -> None:
        large: dict[str, Any] = {**SHORT, "max_bytes": "4M", "op": op}
        run = run_lab("bandwidth", 3, large, broken=broken)
        assert not run.failures
        assert f"{op}: {check}" in run.red


class TestTiming:
    def test_an_iteration_is_as_long_as_its_slowest_rank(self) -> None:
        for times in values(on_ranks(2, time_a_late_rank, lab="bandwidth")):
            assert all(t >= 0.03 for t in times)

    def test_waiting_for_a_late_rank_is_not_part_of_the_time(self) -> None:
        for times in values(on_ranks(2, time_after_a_late_arrival, lab="bandwidth")):
            assert sorted(times)[len(times) // 2] < 0.03

    def test_an_honest_clock_covers_the_call(self) -> None:
        for share in values(on_ranks(2, cover_a_slow_call, lab="bandwidth")):
            assert share >= 1.0


def time_a_late_rank(ctx: Context) -> list[float]:
    """Rank 1 takes 30 ms longer inside each call; rank 0 broadcasts and does not wait for it."""

    def call() -> None:
        dist.broadcast(torch.ones(4), src=0)
        time.sleep(0.03 * ctx.rank)

    return timing.measure(call, ctx.device, iters=5, warmup=1)


def time_after_a_late_arrival(ctx: Context) -> list[float]:
    """Rank 1 comes 30 ms late to each barrier."""
    barrier = timing.barrier

    def late(device: torch.device) -> None:
        time.sleep(0.03 * ctx.rank)
        barrier(device)

    timing.barrier = late
    return timing.measure(lambda: dist.all_reduce(torch.ones(4)), ctx.device, iters=9, warmup=1)


def cover_a_slow_call(ctx: Context) -> float:
    """Rank 1 alone needs 30 ms a call."""
    return timing.covered(lambda: time.sleep(0.03 * ctx.rank), ctx.device, iters=3)


def interrupt_in_the_second_size() -> None:
    """Every rank ends as by Ctrl-C once the first size has been told."""
    from labs.bandwidth import lab

    row = lab.Sweep._row

    def interrupted(sweep: lab.Sweep, *arguments: Any) -> Any:
        if sweep.done == 2:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
        return row(sweep, *arguments)

    lab.Sweep._row = interrupted  # type: ignore[assignment, method-assign]


def test_an_interrupted_sweep_keeps_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "sweep.csv"
    run = run_lab("bandwidth", 2, {"output": str(path), **SHORT}, broken=interrupt_in_the_second_size)
    scalars = _scalars(run)
    assert scalars["all_reduce/out_of_place/size", 0] == 1024
    assert ("all_reduce/out_of_place/size", 1) not in scalars
    assert scalars["all_reduce.busbw_avg", -1] > 0
    assert len(path.read_text().splitlines()) == 3
