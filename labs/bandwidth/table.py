"""The table that users of nccl-tests know, as text, and its rows as CSV and JSON. Loads no torch."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import msgspec

from labs.bandwidth.fit import Fit, Summary
from labs.bandwidth.theory import GB


class Measured(msgspec.Struct, frozen=True):
    """One placement of one size: the summary of its times, the two bandwidths (bytes a second), the errors.

    `wrong` counts the elements of all ranks that differ from the definition; None where not verified.
    """

    times: Summary
    algbw: float
    busbw: float
    wrong: int | None


class Row(msgspec.Struct, frozen=True):
    """One line of the table: S in bytes, elements, and the two placements; in-place may not exist."""

    op: str
    size: int
    count: int
    dtype: str
    redop: str
    root: int
    out_of_place: Measured
    in_place: Measured | None


_PLACEMENT = f"{'time':>8}{'algbw':>8}{'busbw':>8}{'#wrong':>7}{'min':>8}{'p99':>8}"
_UNITS = f"{'(us)':>8}{'(GB/s)':>8}{'(GB/s)':>8}{'':>7}{'(us)':>8}{'(us)':>8}"
_LEFT = f"{'size':>11}{'count':>11}{'type':>9}{'redop':>8}{'root':>5}"
_LEFT_UNITS = f"{'(B)':>11}{'(elements)':>11}{'':>9}{'':>8}{'':>5}"
_ABSENT = f"{'N/A':>8}{'N/A':>8}{'N/A':>8}{'N/A':>7}{'N/A':>8}{'N/A':>8}"


def header(op: str, formula: str, factor: float, world_size: int) -> list[str]:
    """Return the lines above an op's rows: what S and the factor are, and the columns with their units.

    `time` is the median of the iterations, each as long as its slowest rank.
    """
    width = len(_PLACEMENT)
    title = f"# {op}: {world_size} ranks, algbw = S/t, busbw = algbw x {formula} = algbw x {factor:.4g}"
    places = f"#{'':{len(_LEFT)}}{'out-of-place':^{width}}{'in-place':^{width}}"
    return [title, places.rstrip(), f"#{_LEFT}{_PLACEMENT}{_PLACEMENT}", f"#{_LEFT_UNITS}{_UNITS}{_UNITS}"]


def line(row: Row) -> str:
    """Return one row in the columns of `header`."""
    left = f"{row.size:>11}{row.count:>11}{row.dtype:>9}{row.redop:>8}{row.root:>5}"
    in_place = _placement(row.in_place) if row.in_place else _ABSENT
    return f" {left}{_placement(row.out_of_place)}{in_place}"


def footer(rows: Sequence[Row], fitted: Fit | None) -> list[str]:
    """Return the lines below: errors, the average bus bandwidth over rows and placements, and the fit."""
    wrong = [m.wrong for m in measured(rows) if m.wrong is not None]
    bad = sum(wrong)
    lines = [
        f"# Out of bounds values : {bad} {'FAILED' if bad else 'OK'}" if wrong else "# Results not verified",
        f"# Avg bus bandwidth    : {average_busbw(rows) / GB:.6g}",
    ]
    if fitted is None:
        return [*lines, "# Fit                  : too few sizes, or time did not grow with size"]
    return [*lines, f"# Fit t = alpha + S/beta: {describe(fitted)}"]


def describe(fitted: Fit) -> str:
    """Return the fit in words: alpha in microseconds, beta in GB/s, each with its standard error."""
    return (
        f"alpha {fitted.alpha * 1e6:.4g} us ({_percent(fitted.alpha_error)}), "
        f"beta {fitted.beta / GB:.4g} GB/s ({_percent(fitted.beta_error)}), "
        f"error {fitted.error:.1%}, half of the time is latency at {fitted.half_size:,.0f} B"
    )


def measured(rows: Sequence[Row]) -> list[Measured]:
    """Return every placement of every row."""
    return [m for row in rows for m in (row.out_of_place, row.in_place) if m is not None]


def average_busbw(rows: Sequence[Row]) -> float:
    """Return the mean busbw (bytes a second) over sizes and placements, as nccl-tests' footer does."""
    rates = [m.busbw for m in measured(rows)]
    return sum(rates) / len(rates) if rates else 0.0


def records(rows: Sequence[Row]) -> list[dict[str, str | int | float | None]]:
    """Return one flat record a size and placement, units in the names, for CSV and JSON."""
    return [
        {
            "op": row.op,
            "placement": placement,
            "size_bytes": row.size,
            "count": row.count,
            "dtype": row.dtype,
            "redop": row.redop,
            "root": row.root,
            "iterations": m.times.count,
            "time_min_us": m.times.minimum * 1e6,
            "time_median_us": m.times.median * 1e6,
            "time_p99_us": m.times.p99 * 1e6,
            "algbw_gb_s": m.algbw / GB,
            "busbw_gb_s": m.busbw / GB,
            "wrong": m.wrong,
        }
        for row in rows
        for placement, m in (("out_of_place", row.out_of_place), ("in_place", row.in_place))
        if m is not None
    ]


def as_csv(rows: Sequence[Row]) -> str:
    """Return the records as CSV with a header line; empty text where there is no row."""
    flat = records(rows)
    if not flat:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def as_json(rows: Sequence[Row], fits: dict[str, Fit]) -> str:
    """Return the records and the fit of every op as one JSON object."""
    whole = {
        "rows": records(rows),
        "fits": {
            op: {
                "alpha_us": fitted.alpha * 1e6,
                "beta_gb_s": fitted.beta / GB,
                "error": fitted.error,
                "alpha_error": fitted.alpha_error,
                "beta_error": fitted.beta_error,
                "half_size_bytes": fitted.half_size,
            }
            for op, fitted in fits.items()
        },
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"


def _placement(m: Measured) -> str:
    wrong = "-" if m.wrong is None else str(m.wrong)
    times = m.times
    return (
        f"{_short(times.median * 1e6):>8}{_short(m.algbw / GB):>8}{_short(m.busbw / GB):>8}{wrong:>7}"
        f"{_short(times.minimum * 1e6):>8}{_short(times.p99 * 1e6):>8}"
    )


def _short(value: float) -> str:
    """Few figures and no exponent, so that a column stays a column."""
    for limit, digits in ((0.1, 5), (10, 3), (100, 2), (1000, 1)):
        if value < limit:
            return f"{value:.{digits}f}"
    return f"{value:.0f}"


def _percent(error: float) -> str:
    return "not determined" if error == float("inf") else f"+-{error:.1%}"
