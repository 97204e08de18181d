"""The conventions of nccl-tests, each against a second derivation, and the two published figures."""

from __future__ import annotations

import math

import pytest

from labs.bandwidth import theory
from labs.bandwidth.fit import fit, scatter, summarise
from labs.bandwidth.theory import GB, GIB, OPS, Op


@pytest.mark.parametrize("world_size", [2, 3, 4, 7, 8, 16])
@pytest.mark.parametrize("op", OPS)
def test_factor_equals_the_count_of_an_algorithm_transfer_by_transfer(op: Op, world_size: int) -> None:
    size = 1 << 20
    counted = theory.busiest_port_bytes(op, size, world_size)
    assert theory.bus_factor(op, world_size) * size == pytest.approx(counted)


@pytest.mark.parametrize(
    ("op", "size"),
    [
        ("all_reduce", 100),
        ("broadcast", 100),
        ("reduce", 100),
        ("send_recv", 100),
        ("reduce_scatter", 400),
        ("all_gather", 400),
        ("all_to_all", 400),
        ("gather", 400),
        ("scatter", 400),
    ],
)
def test_size_is_a_total_only_where_pieces_move(op: Op, size: int) -> None:
    assert theory.total_bytes(op, 100, 4) == size


def test_factor_formula_evaluates_to_the_factor() -> None:
    for op in OPS:
        formula = theory.factor_formula(op).replace("2(", "2*(")
        assert eval(formula, {"n": 6}) == pytest.approx(theory.bus_factor(op, 6))


def test_one_rank_moves_nothing_over_a_link() -> None:
    assert theory.bus_factor("all_reduce", 1) == 0
    assert theory.busiest_port_bytes("send_recv", 100, 1) == 0


class TestWrongFigures:
    """facts: 100 Mi fp32 on four H100, all-reduce 2.14 ms and reduce-scatter 4.06 ms."""

    size = 100 * (1 << 20) * 4

    def test_8_3_ms_would_be_76_gb_s(self) -> None:
        assert theory.busbw("all_reduce", self.size, 8.3e-3, 4) / GB == pytest.approx(75.8, abs=0.1)

    def test_the_recorded_time_gives_294_gb_s_or_274_gib_s(self) -> None:
        rate = theory.busbw("all_reduce", self.size, 2.14e-3, 4)
        assert rate / GB == pytest.approx(294, abs=0.5)
        assert rate / GIB == pytest.approx(274, abs=0.5)

    def test_reduce_scatter_counts_the_total_input(self) -> None:
        total = 4 * self.size
        assert theory.algbw(total, 4.06e-3) / GB == pytest.approx(413, abs=0.5)
        assert theory.busbw("reduce_scatter", total, 4.06e-3, 4) / GB == pytest.approx(310, abs=0.5)

    def test_the_output_alone_gives_the_published_72_to_75(self) -> None:
        wrong = theory.busbw_of_one_piece("reduce_scatter", 4 * self.size, 4.06e-3, 4)
        assert wrong / GB == pytest.approx(77.5, abs=0.1)
        assert 72 <= wrong / GIB <= 75

    def test_ops_of_one_buffer_have_no_second_reading(self) -> None:
        right = theory.busbw("broadcast", 1000, 1e-3, 4)
        assert theory.busbw_of_one_piece("broadcast", 1000, 1e-3, 4) == right


class TestPeaks:
    @pytest.mark.parametrize(
        ("line_rate", "links", "gb_s"),
        [(26_562, 18, 450), (25_000, 12, 300), (25_781, 6, 150), (20_000, 4, 80), (53_125, 18, 900)],
    )
    def test_nvlink_is_the_quoted_rate_of_each_generation(
        self, line_rate: int, links: int, gb_s: int
    ) -> None:
        assert theory.nvlink_peak(line_rate, links) == gb_s * GB

    def test_pcie_5_x16_is_63_gb_s_each_way(self) -> None:
        assert theory.pcie_peak(5, 16) == pytest.approx(63 * GB, rel=0.001)

    @pytest.mark.parametrize(("line_rate", "links"), [(26_562, 0), (0, 4)])
    def test_unknown_is_none(self, line_rate: int, links: int) -> None:
        assert theory.nvlink_peak(line_rate, links) is None

    @pytest.mark.parametrize(("generation", "width"), [(9, 16), (5, 0)])
    def test_unknown_pcie_is_none(self, generation: int, width: int) -> None:
        assert theory.pcie_peak(generation, width) is None


class TestFit:
    sizes = tuple(1 << power for power in range(10, 25))

    def test_recovers_alpha_and_beta_of_exact_times(self) -> None:
        fitted = fit(self.sizes, [50e-6 + size / 2e9 for size in self.sizes])
        assert fitted is not None
        assert fitted.alpha == pytest.approx(50e-6)
        assert fitted.beta == pytest.approx(2e9)
        assert fitted.error == pytest.approx(0, abs=1e-9)
        assert fitted.half_size == pytest.approx(100_000)
        assert fitted.seconds(100_000) == pytest.approx(100e-6)

    def test_errors_cover_the_truth_of_noisy_times(self) -> None:
        noise = (1.1, 0.9, 1.05, 0.95, 1.0)
        times = [(50e-6 + size / 2e9) * noise[i % 5] for i, size in enumerate(self.sizes)]
        fitted = fit(self.sizes, times)
        assert fitted is not None
        assert abs(fitted.alpha - 50e-6) / 50e-6 < 3 * fitted.alpha_error
        assert abs(fitted.beta - 2e9) / 2e9 < 3 * fitted.beta_error
        assert 0.03 < fitted.error < 0.12

    def test_latency_is_never_negative(self) -> None:
        fitted = fit([1000, 2000, 4000], [1.0, 2.3, 4.9])
        assert fitted is not None
        assert fitted.alpha == 0
        assert math.isinf(fitted.alpha_error)

    def test_needs_three_sizes(self) -> None:
        assert fit([8, 16], [1.0, 2.0]) is None

    def test_times_that_fall_with_size_show_only_a_latency(self) -> None:
        fitted = fit([1000, 2000, 4000], [3.0, 2.0, 1.0])
        assert fitted is not None
        assert math.isinf(fitted.beta)
        assert fitted.seconds(10**9) == fitted.alpha
        assert 1.0 < fitted.alpha < 3.0
        assert fitted.error > 0.3

    def test_scatter_is_how_far_medians_lie_above_the_best(self) -> None:
        assert scatter([summarise([1.0, 1.5, 2.0]), summarise([2.0, 3.0, 4.0])]) == pytest.approx(0.5)
        assert scatter([]) == 0.0


class TestSummary:
    def test_min_median_and_a_p99_that_was_measured(self) -> None:
        summary = summarise([float(x) for x in range(200, 0, -1)])
        assert (summary.minimum, summary.median, summary.p99, summary.count) == (1, 100.5, 198, 200)

    def test_one_iteration(self) -> None:
        summary = summarise([3.0])
        assert (summary.minimum, summary.median, summary.p99) == (3, 3, 3)

    def test_nothing_timed_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="no iteration"):
            summarise([])
