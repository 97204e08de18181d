"""The bandwidth and topology views fold what the lab tells, and their panes draw it at both sizes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from launcher.events import Hello, Scalar
from tests.manifests import manifest
from workbench.panes.bandwidth import BandwidthPane
from workbench.panes.topology import TopologyPane
from workbench.views.bandwidth import BandwidthView
from workbench.views.topology import TopologyView

SIZES = tuple(1 << power for power in range(10, 25))


def _scalar(name: str, value: float, step: int = 0) -> Scalar:
    return Scalar(t=0, rank=0, name=name, value=value, step=step)


def _sweep(op: str = "all_reduce", wrong: float | None = 0) -> Iterator[Scalar]:
    for step, size in enumerate(SIZES):
        for placement in ("out_of_place", "in_place"):
            us = 800 + size / 500
            rates = {"algbw": size / us / 1e3, "busbw": 1.5 * size / us / 1e3}
            for name, value in ({"size": size, "min": us - 1, "median": us, "p99": us * 2} | rates).items():
                yield _scalar(f"{op}/{placement}/{name}", value, step)
            if wrong is not None:
                yield _scalar(f"{op}/{placement}/wrong", wrong, step)
        if step >= 2:
            for name, value in {"alpha": 800.0, "beta": 0.5, "error": 0.01, "beta_error": 0.1}.items():
                yield _scalar(f"{op}/fit/{name}", value, step)


def _view(*ops: str, wrong: float | None = 0) -> BandwidthView:
    view = BandwidthView(manifest("bandwidth", 4))
    for op in ops:
        for scalar in _sweep(op, wrong):
            view.feed(scalar)
    return view


def _text(
    pane: BandwidthPane | TopologyPane, view: BandwidthView | TopologyView, width: int, height: int
) -> list[str]:
    lines = pane.lines(view.snapshot(), width, height)  # type: ignore[arg-type]
    return ["".join(segment.text for segment in line) for line in lines]


class TestBandwidthView:
    def test_first_snapshot_is_empty(self) -> None:
        assert _view().snapshot().ops == ()

    def test_sizes_come_in_order_with_all_quantities(self) -> None:
        (curve,) = _view("all_reduce").snapshot().ops
        assert [point.size for point in curve.out_of_place] == list(SIZES)
        assert len(curve.in_place) == len(SIZES)
        assert curve.factor == pytest.approx(1.5)
        assert curve.wrong == 0

    def test_a_size_is_not_there_before_its_last_quantity(self) -> None:
        view = BandwidthView(manifest("bandwidth", 4))
        for scalar in list(_sweep())[:5]:
            view.feed(scalar)
        assert view.snapshot().ops[0].out_of_place == ()

    def test_the_fit_is_the_newest_and_gives_the_regimes(self) -> None:
        (curve,) = _view("all_reduce").snapshot().ops
        assert curve.fit is not None
        assert curve.fit.half_size == pytest.approx(400_000)
        assert curve.fit.alpha_error is None
        assert curve.fitted_busbw(400_000) == pytest.approx(1.5 * 0.5 / 2)

    def test_fitted_curve_goes_through_the_points_it_was_made_from(self) -> None:
        (curve,) = _view("all_reduce").snapshot().ops
        for point in curve.out_of_place:
            assert curve.fitted_busbw(point.size) == pytest.approx(point.busbw)

    def test_nothing_visible_changed_is_the_same_object(self) -> None:
        view = _view("all_reduce")
        before = view.snapshot()
        view.feed(_scalar("loss", 1.0, 3))
        assert view.snapshot() is before

    def test_peaks_are_metrics(self) -> None:
        view = _view("all_reduce")
        view.feed(_scalar("link_peak", 450.0, -1))
        view.feed(_scalar("memcpy", 3.0, -1))
        assert (view.snapshot().link_peak, view.snapshot().memcpy) == (450.0, 3.0)


class TestBandwidthPane:
    @pytest.mark.parametrize(("width", "height"), [(76, 18), (116, 34), (40, 8)])
    @pytest.mark.parametrize("ascii_only", [False, True])
    def test_fits_its_place(self, width: int, height: int, ascii_only: bool) -> None:
        text = _text(BandwidthPane(ascii_only=ascii_only), _view("all_reduce"), width, height)
        assert len(text) <= max(height, 9)
        if ascii_only:
            assert "".join(text).isascii()

    def test_says_the_regimes_and_their_border(self) -> None:
        text = "\n".join(_text(BandwidthPane(), _view("all_reduce"), 76, 18))
        assert "t = 800 us (not determined) + S / 0.5 GB/s ±10%" in text
        assert "latency below 391K" in text

    def test_wrong_elements_are_said_in_words(self) -> None:
        text = "\n".join(_text(BandwidthPane(), _view("all_reduce", wrong=2), 76, 18))
        assert "60 wrong elements" in text

    def test_unverified_is_said(self) -> None:
        assert "not verified" in "\n".join(_text(BandwidthPane(), _view("all_reduce", wrong=None), 76, 18))

    def test_one_size_is_a_plot_too(self) -> None:
        view = BandwidthView(manifest("bandwidth", 4))
        for scalar in list(_sweep())[:14]:
            view.feed(scalar)
        assert any("1K" in line for line in _text(BandwidthPane(), view, 76, 18))

    def test_follows_the_newest_op_until_one_is_chosen(self) -> None:
        pane, view = BandwidthPane(), _view("all_reduce", "broadcast", "reduce")
        pane.shown = view.snapshot()
        assert pane.curve(view.snapshot()).op == "reduce"  # type: ignore[union-attr]
        pane.action_choose(-1)
        assert pane.curve(view.snapshot()).op == "broadcast"  # type: ignore[union-attr]
        pane.action_choose(-1)
        pane.action_choose(-1)
        assert pane.curve(view.snapshot()).op == "all_reduce"  # type: ignore[union-attr]
        pane.action_choose(1)
        pane.action_choose(1)
        assert pane.curve(view.snapshot()).op == "reduce"  # type: ignore[union-attr]

    def test_reached_share_of_the_peak_and_nvls(self) -> None:
        view = _view("all_reduce")
        view.feed(_scalar("link_peak", 0.6, -1))
        assert "(the switch reduces: NVLS)" in "\n".join(_text(BandwidthPane(), view, 76, 18))

    def test_a_curve_far_below_the_peak_has_the_plot_for_itself(self) -> None:
        view = _view("all_reduce")
        view.feed(_scalar("link_peak", 450.0, -1))
        text = "\n".join(_text(BandwidthPane(), view, 76, 18))
        assert "link peak 450 GB/s, reached 0%, above the plot" in text
        assert "450.0" not in text.partition("out of place")[0]


class TestTopology:
    def _cpu(self, nodes: tuple[str, ...] = ("host",) * 4) -> TopologyView:
        view = TopologyView(manifest("bandwidth", len(nodes)))
        for rank, node in enumerate(nodes):
            view.feed(
                Hello(
                    t=0,
                    rank=rank,
                    world_size=len(nodes),
                    local_rank=rank,
                    node=node,
                    pid=1,
                    device="cpu",
                    backend="gloo",
                )
            )
        return view

    def test_waits_for_the_ranks(self) -> None:
        view = TopologyView(manifest("bandwidth", 4))
        assert "waiting for the ranks" in "\n".join(_text(TopologyPane(), view, 36, 10))

    def test_a_cpu_node_has_its_loopback_and_its_copy_rate(self) -> None:
        view = self._cpu()
        view.feed(_scalar("memcpy", 3.02, -1))
        text = " ".join(_text(TopologyPane(), view, 36, 10))
        assert "loopback" in text
        assert "memory copy 3.02 GB/s" in text

    def test_several_nodes_are_grouped(self) -> None:
        snapshot = self._cpu(("a", "a", "b", "b")).snapshot()
        assert snapshot.nodes == ("a", "b")

    def test_gpu_matrix_is_symmetric(self) -> None:
        view = self._cpu()
        for a, b, links in ((0, 1, 18), (0, 2, 0), (1, 2, 0)):
            view.feed(_scalar(f"topology/gpu{a}-gpu{b}/nvlinks", links))
            view.feed(_scalar(f"topology/gpu{a}-gpu{b}/path/SYS", 1))
            view.feed(_scalar(f"topology/gpu{a}-gpu{b}/peak", 450 if links else 63))
        text = _text(TopologyPane(), view, 60, 12)
        assert text[0].split() == ["GPU0", "GPU1", "GPU2"]
        assert [line.split()[1:] for line in text[1:4]] == [
            ["X", "NV18", "SYS"],
            ["NV18", "X", "SYS"],
            ["SYS", "SYS", "X"],
        ]
        assert "63 to 450 GB/s" in "\n".join(text)

    def test_what_the_driver_does_not_tell_is_a_question_mark(self) -> None:
        view = self._cpu()
        view.feed(_scalar("topology/gpu0-gpu1/nvlinks", 0))
        assert _text(TopologyPane(), view, 60, 12)[1].split() == ["GPU0", "X", "?"]
