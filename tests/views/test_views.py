"""The view models: events in, one frozen snapshot out, with a defined first frame."""

from __future__ import annotations

import msgspec
import pytest

from launcher.events import (
    Check,
    Failure,
    Log,
    Phase,
    Scalar,
    Shard,
    Span,
    Tensor,
)
from tests.app.recording import MS, dp_events, failed_events, manifest_of, result_of
from workbench.views.buffers import BuffersView
from workbench.views.checks import ChecksView
from workbench.views.communication import CommunicationView
from workbench.views.failure import FailureView
from workbench.views.log import CAPACITY, LogView
from workbench.views.loss import LossView
from workbench.views.ranks import RanksView
from workbench.views.registry import VIEWS
from workbench.views.run import RunView
from workbench.views.series import Series, thin
from workbench.views.shards import ShardsView
from workbench.views.timeline import Bar, TimelineView, cells

MANIFEST = manifest_of("dp", 4)


@pytest.mark.parametrize("name", sorted(VIEWS))
class TestEveryView:
    def test_the_first_snapshot_needs_no_event(self, name: str) -> None:
        view = VIEWS[name](MANIFEST)
        assert isinstance(view.snapshot(), msgspec.Struct)

    def test_the_same_object_until_something_changed(self, name: str) -> None:
        view = VIEWS[name](MANIFEST)
        for event in dp_events(MANIFEST, steps=3):
            view.feed(event)
        snapshot = view.snapshot()
        assert view.snapshot() is snapshot
        for _ in range(3):
            view.feed(Log(t=1, rank=-1, stream="stdout", line=""))
        if name != "log":
            assert view.snapshot() is snapshot

    def test_a_whole_run_folds_and_ends(self, name: str) -> None:
        view = VIEWS[name](MANIFEST)
        events = dp_events(MANIFEST)
        for event in events:
            view.feed(event)
        view.finish(result_of(MANIFEST, events))
        assert msgspec.json.encode(view.snapshot())


class TestLoss:
    def test_the_mean_is_of_all_ranks_at_a_step(self) -> None:
        view = LossView(MANIFEST)
        for rank in range(4):
            assert view.snapshot().mean == ()
            view.feed(Scalar(t=1, rank=rank, name="loss", value=float(rank), step=0))
        assert view.snapshot().mean == ((0, 1.5),)

    def test_a_stage_without_a_loss_is_named_and_the_mean_goes_on(self) -> None:
        view = LossView(MANIFEST)
        for step in range(20):
            view.feed(Scalar(t=1, rank=3, name="loss", value=1.0, step=step))
        snapshot = view.snapshot()
        assert snapshot.silent == (0, 1, 2)
        assert snapshot.last_mean == 1.0

    def test_memory_is_bounded_and_the_newest_value_exact(self) -> None:
        series = Series(capacity=64)
        for step in range(100_000):
            series.add(step, float(step))
        points = series.points()
        assert len(points) <= 65
        assert points[-1] == pytest.approx((99_999, 99_999), rel=0.05)
        assert series.first == 0.0
        assert series.last == 99_999.0
        assert list(points) == sorted(points)

    def test_thinning_keeps_the_extremes_of_each_column(self) -> None:
        points = [(float(i), 100.0 if i == 777 else float(i % 7)) for i in range(1000)]
        kept = thin(points, 50)
        assert len(kept) <= 100
        assert (777.0, 100.0) in kept


class TestRanks:
    def hashes(self, *digests: str) -> RanksView:
        view = RanksView(MANIFEST)
        for rank, digest in enumerate(digests):
            view.feed(
                Tensor(
                    t=1,
                    rank=rank,
                    name="parameters",
                    moment="after",
                    shape=(4,),
                    dtype="float32",
                    hash=digest,
                    step=7,
                )
            )
        return view

    def test_equal_hashes_of_all_ranks(self) -> None:
        snapshot = self.hashes("a", "a", "a", "a").snapshot()
        assert (snapshot.sync, snapshot.sync_step) == ("equal", 7)

    def test_the_rank_that_differs_is_marked(self) -> None:
        snapshot = self.hashes("a", "a", "b", "a").snapshot()
        assert snapshot.sync == "differs"
        assert [row.sync for row in snapshot.rows] == ["equal", "equal", "differs", "equal"]

    def test_nothing_is_said_before_all_have_told(self) -> None:
        assert self.hashes("a", "a", "a").snapshot().sync == "unknown"

    def test_other_tensors_are_not_compared(self) -> None:
        view = RanksView(MANIFEST)
        for rank in range(4):
            view.feed(
                Tensor(
                    t=1,
                    rank=rank,
                    name="all_reduce",
                    moment="after",
                    shape=(),
                    dtype="float32",
                    hash=str(rank),
                    step=1,
                )
            )
        assert view.snapshot().sync == "unknown"

    def test_a_waiting_rank_names_its_collective(self) -> None:
        view = RanksView(MANIFEST)
        view.feed(Phase(t=1, rank=2, phase="waiting", name="all_reduce", group="world", seq=12))
        assert view.snapshot().rows[2].detail == "all_reduce #12 in world"

    def test_the_result_marks_the_failed_rank_and_those_that_were_stopped(self) -> None:
        view = RanksView(MANIFEST)
        events, failure = failed_events(MANIFEST)
        for event in events:
            view.feed(event)
        view.finish(result_of(MANIFEST, events, failure))
        rows = view.snapshot().rows
        assert rows[3].phase == "failed"
        assert rows[0].stopped


class TestFailure:
    def test_a_victim_gives_way_to_the_rank_that_failed(self) -> None:
        view = FailureView(MANIFEST)
        view.feed(Failure(t=1, rank=0, kind="exception", message="connection closed", victim=True))
        view.feed(Failure(t=2, rank=2, kind="exception", message="ZeroDivisionError"))
        shown = view.snapshot().failure
        assert shown is not None
        assert shown.rank == 2
        assert shown.victims == [0]

    def test_the_result_has_the_last_word(self) -> None:
        events, failure = failed_events(MANIFEST)
        view = FailureView(MANIFEST)
        view.feed(Failure(t=1, rank=0, kind="exception", message="?"))
        view.finish(result_of(MANIFEST, events, failure))
        assert view.snapshot().failure == failure


class TestChecks:
    def test_a_name_that_failed_once_has_failed(self) -> None:
        view = ChecksView(MANIFEST)
        for passed, measured in ((True, 1), (False, 2), (True, 3)):
            view.feed(Check(t=1, rank=0, name="equal", passed=passed, measured=measured))
        (row,) = view.snapshot().rows
        assert not row.passed
        assert row.measured == 2


class TestCommunication:
    def test_calls_bytes_and_time_by_group(self) -> None:
        view = CommunicationView(MANIFEST)
        for rank in range(4):
            for seq in range(3):
                view.feed(
                    Span(
                        t=0,
                        t1=2 * MS,
                        rank=rank,
                        lane="comm",
                        name="all_reduce",
                        bytes=100,
                        group="world",
                        seq=seq,
                    )
                )
        view.feed(Span(t=0, t1=MS, rank=0, lane="compute", name="forward"))
        (row,) = view.snapshot().rows
        assert (row.calls, row.fewest_calls, row.bytes_rank, row.num_ranks) == (3, 3, 300, 4)
        assert row.mean_s == pytest.approx(0.002)
        assert row.total_s == pytest.approx(0.006)

    def test_who_waits_is_forgotten_once_it_goes_on(self) -> None:
        view = CommunicationView(MANIFEST)
        view.feed(Phase(t=1, rank=1, phase="waiting", name="barrier", seq=4))
        assert [pending.rank for pending in view.snapshot().pending] == [1]
        view.feed(Phase(t=2, rank=1, phase="running"))
        assert view.snapshot().pending == ()


class TestTimeline:
    def test_only_the_newest_whole_steps(self) -> None:
        view = TimelineView(MANIFEST)
        for event in dp_events(MANIFEST, steps=10, end=False):
            view.feed(event)
        snapshot = view.snapshot()
        assert (snapshot.first_step, snapshot.last_step) == (8, 9)
        assert all(len(row.bars) == 8 for row in snapshot.rows)

    def test_any_kept_step_can_be_turned_to(self) -> None:
        view = TimelineView(MANIFEST)
        for event in dp_events(MANIFEST, steps=10, end=False):
            view.feed(event)
        snapshot = view.snapshot()
        earlier = snapshot.window(3, 1)
        assert (snapshot.oldest_step, earlier.first_step, earlier.last_step) == (1, 3, 3)
        assert {bar.step for row in earlier.rows for bar in row.bars} == {3}
        assert earlier.t1 < snapshot.t0
        assert len(snapshot.window(9, 99).rows[0].bars) == 36
        assert snapshot.window(50, 1).t1 == 0

    def test_what_was_hidden_is_told_beside_any_steps(self) -> None:
        view = TimelineView(MANIFEST)
        for event in dp_events(MANIFEST, steps=10, end=False):
            view.feed(event)
        assert view.snapshot().hidden is None
        view.feed(Scalar(t=1, rank=0, name="hidden_communication", value=0.25))
        assert view.snapshot().hidden == view.snapshot().window(3, 1).hidden == 0.25

    def test_runs_of_equal_cells_fill_the_width(self) -> None:
        bars = (Bar(0, 50, "compute", "forward"), Bar(40, 100, "comm", "all_reduce"))
        runs = cells(bars, 0, 100, 20)
        assert [(run.width, run.lane) for run in runs] == [(10, "compute"), (10, "comm")]
        assert sum(run.width for run in cells(bars, 0, 200, 37)) == 37

    def test_a_short_span_is_still_seen(self) -> None:
        runs = cells((Bar(500, 501, "comm", "send"),), 0, 1000, 10)
        assert [(run.width, run.lane) for run in runs] == [(5, None), (1, "comm"), (4, None)]


class TestShards:
    def shard(self, rank: int, start: int, stop: int, name: str = "w") -> Shard:
        return Shard(
            t=1,
            rank=rank,
            tensor=name,
            kind="parameter",
            global_shape=(8, 4),
            slices=((start, stop), (0, 4)),
            bytes=16,
        )

    def test_tensors_spread_alike_are_one_group(self) -> None:
        view = ShardsView(MANIFEST)
        for name in ("a", "b", "c"):
            for rank in range(4):
                view.feed(self.shard(rank, 2 * rank, 2 * rank + 2, name))
        view.feed(self.shard(0, 0, 8, "whole"))
        cut, whole = view.snapshot().groups
        assert cut.names == ("a", "b", "c")
        assert (cut.dim, cut.bytes_rank) == (0, 48)
        assert (whole.dim, whole.names) == (-1, ("whole",))


class TestBuffers:
    def test_values_and_origin_before_and_after(self) -> None:
        view = BuffersView(MANIFEST)
        for moment, values, origin in (("before", [1.0], None), ("after", [4.0], [-1])):
            view.feed(
                Tensor(
                    t=1,
                    rank=2,
                    name="all_reduce",
                    moment=moment,  # type: ignore[arg-type]
                    shape=(1,),
                    dtype="float32",
                    values=values,
                    origin=origin,
                )
            )
        (block,) = view.snapshot().blocks
        (row,) = block.rows
        assert row.before is not None
        assert row.before.origin == (2,)
        assert row.after is not None
        assert row.after.origin == (-1,)


class TestLog:
    def test_the_oldest_lines_go_and_are_counted(self) -> None:
        view = LogView(MANIFEST)
        for place in range(CAPACITY + 5):
            view.feed(Log(t=1, rank=0, stream="stdout", line=f"line {place}"))
        snapshot = view.snapshot()
        assert len(snapshot.lines) == CAPACITY
        assert snapshot.older == 5

    def test_control_sequences_do_not_reach_the_screen(self) -> None:
        view = LogView(MANIFEST)
        view.feed(
            Log(t=1, rank=0, stream="stderr", line="\x1b[31mred\x1b[0m\tx\x07 50%\rdone\x1b]0;title\x07")
        )
        assert view.snapshot().lines[0].text == "done"


class TestRun:
    def test_progress_is_that_of_the_slowest_rank(self) -> None:
        view = RunView(MANIFEST)
        for rank in range(4):
            view.feed(Phase(t=0, rank=rank, phase="running", step=1, total_steps=10))
        for rank in range(4):
            view.feed(Phase(t=5 * 10**9, rank=rank, phase="running", step=6 - rank, total_steps=10))
        snapshot = view.snapshot()
        assert (snapshot.step, snapshot.total_steps) == (3, 10)
        assert snapshot.left_s == pytest.approx(20.0)

    def test_a_failed_check_is_named_in_the_verdict(self) -> None:
        view = RunView(MANIFEST)
        check = Check(t=1, rank=0, name="replicas start equal", passed=False)
        view.feed(check)
        view.finish(result_of(MANIFEST, [check]))
        assert view.snapshot().verdict == "failed: 1 check of 1: replicas start equal"
