"""The table as nccl-tests' users know it, and the same rows as CSV and JSON."""

from __future__ import annotations

import csv
import io
import json

from labs.bandwidth import table
from labs.bandwidth.fit import fit, summarise
from labs.bandwidth.table import Measured, Row


def _row(size: int = 4096, *, in_place: bool = True, wrong: int | None = 0) -> Row:
    one = Measured(summarise([9e-5, 1e-4, 3e-4]), 41e6, 61e6, wrong)
    return Row("all_reduce", size, size // 4, "float32", "sum", -1, one, one if in_place else None)


def test_every_line_of_the_table_has_the_columns_of_the_header() -> None:
    head = table.header("all_reduce", "2(n-1)/n", 1.5, 4)
    lines = [table.line(_row()), table.line(_row(in_place=False)), table.line(_row(1 << 34, wrong=None))]
    assert {len(line) for line in lines} == {len(head[2])} == {len(head[3])}
    assert "algbw x 2(n-1)/n = algbw x 1.5" in head[0]


def test_line_holds_the_median_in_microseconds_and_gb_s() -> None:
    words = table.line(_row()).split()
    assert words[:8] == ["4096", "1024", "float32", "sum", "-1", "100.0", "0.04100", "0.06100"]
    assert words[8:11] == ["0", "90.00", "300.0"]


def test_an_op_without_in_place_says_so() -> None:
    assert table.line(_row(in_place=False)).split()[11:] == ["N/A"] * 6


def test_footer_averages_sizes_and_placements() -> None:
    rows = [_row(), _row(8192, in_place=False)]
    assert table.footer(rows, None) == [
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 0.061",
        "# Fit                  : too few sizes, or time did not grow with size",
    ]


def test_footer_counts_wrong_elements_and_says_failed() -> None:
    assert table.footer([_row(wrong=3)], None)[0] == "# Out of bounds values : 6 FAILED"


def test_footer_without_check_claims_nothing() -> None:
    assert table.footer([_row(wrong=None)], None)[0] == "# Results not verified"


def test_fit_is_told_with_its_errors() -> None:
    fitted = fit([1000, 2000, 4000, 8000], [1e-6, 2e-6, 4e-6, 8.2e-6])
    assert fitted is not None
    text = table.footer([_row()], fitted)[2]
    assert "alpha" in text
    assert "+-" in text
    assert "GB/s" in text


def test_csv_has_one_record_a_size_and_placement() -> None:
    records = list(csv.DictReader(io.StringIO(table.as_csv([_row(), _row(8192, in_place=False)]))))
    assert [(r["size_bytes"], r["placement"]) for r in records] == [
        ("4096", "out_of_place"),
        ("4096", "in_place"),
        ("8192", "out_of_place"),
    ]
    assert float(records[0]["time_median_us"]) == 100.0
    assert table.as_csv([]) == ""


def test_json_holds_rows_and_fits() -> None:
    fitted = fit([1000, 2000, 4000], [1.0, 2.3, 4.9])
    assert fitted is not None
    whole = json.loads(table.as_json([_row()], {"all_reduce": fitted}))
    assert whole["rows"][0]["busbw_gb_s"] == 0.061
    assert whole["fits"]["all_reduce"]["alpha_error"] is None
