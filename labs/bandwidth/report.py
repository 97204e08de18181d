"""What rank 0 says while the sweep runs: the table's lines, one scalar a quantity, the metrics, the file.

Scalars of the record, `step` is the index of the size: `OP/out_of_place/QUANTITY` and `OP/in_place/QUANTITY`
with size (B), min, median, p99 (us), algbw, busbw (GB/s) and wrong (elements); `OP/fit/alpha` (us),
`OP/fit/beta` (GB/s), `OP/fit/error`, `OP/fit/alpha_error`, `OP/fit/beta_error` (relative) as of that size.
`topology/GPU-GPU/...` tell the links. Metrics are sent again after every size: an interrupted run has them.
"""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path

from labs.bandwidth import table, theory
from labs.bandwidth.fit import Fit, fit
from labs.bandwidth.links import Topology
from labs.bandwidth.table import Measured, Row
from labs.bandwidth.theory import GB, GIB, Op
from labs.context import Context
from launcher.events import Log, Scalar


class Report:
    """Collects the rows of all ops and tells each as soon as it is measured. Used on rank 0 alone."""

    def __init__(self, ctx: Context, output: str) -> None:
        self.ctx = ctx
        self.output = Path(output).absolute() if output else None
        self.rows: dict[Op, list[Row]] = {}
        self.fits: dict[str, Fit] = {}

    def start(self, op: Op) -> None:
        """Begin an op's table."""
        self.rows[op] = []
        n = self.ctx.world_size
        for line in table.header(op, theory.factor_formula(op), theory.bus_factor(op, n), n):
            self.say(line)

    def add(self, op: Op, row: Row) -> None:
        """Tell one more size: its line, its scalars, the fit so far, the metrics so far, the file."""
        rows = self.rows[op]
        rows.append(row)
        index = len(rows) - 1
        self.say(table.line(row))
        self._placement(op, "out_of_place", index, row.size, row.out_of_place)
        if row.in_place is not None:
            self._placement(op, "in_place", index, row.size, row.in_place)
        fitted = self.fit_of(op)
        if fitted is not None and math.isfinite(fitted.beta):
            self.fits[op] = fitted
            self._fit(op, index, fitted)
        self._metrics(op, row)
        self._write()

    def finish(self, op: Op) -> None:
        """End an op's table with its footer."""
        for line in table.footer(self.rows[op], self.fits.get(op)):
            self.say(line)

    def fit_of(self, op: Op) -> Fit | None:
        """Return the fit of the out-of-place times so far: of each size the best, the least disturbed."""
        rows = self.rows[op]
        return fit([row.size for row in rows], [row.out_of_place.times.minimum for row in rows])

    def topology(self, topology: Topology) -> None:
        """Tell the links between the GPUs of this node, or why there is none."""
        if topology.note:
            self.say(f"# {topology.note}")
        for gpu in topology.gpus:
            if gpu.pcie_peak is not None:
                self.scalar(f"topology/gpu{gpu.index}/pcie", gpu.pcie_peak / GB, 0, "GB/s")
        for link in topology.links:
            pair = f"topology/gpu{link.a}-gpu{link.b}"
            self.scalar(f"{pair}/nvlinks", link.nvlinks, 0, "links")
            if link.path:
                self.scalar(f"{pair}/path/{link.path}", 1, 0)
            if link.peak is not None:
                self.scalar(f"{pair}/peak", link.peak / GB, 0, "GB/s")

    def say(self, line: str) -> None:
        """Send one line of the table as rank 0's output; where nobody records the run, print it."""
        if self.ctx.emit.connected:
            self.ctx.emit.emit(Log(t=time.monotonic_ns(), rank=self.ctx.rank, stream="stdout", line=line))
        else:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def scalar(self, name: str, value: float, step: int, unit: str = "") -> None:
        """Send one number that belongs to the size with index `step`."""
        self.ctx.emit.emit(
            Scalar(t=time.monotonic_ns(), rank=self.ctx.rank, name=name, value=value, step=step, unit=unit)
        )

    def _placement(self, op: Op, placement: str, index: int, size: int, m: Measured) -> None:
        for name, value, unit in (
            ("size", size, "B"),
            ("min", m.times.minimum * 1e6, "us"),
            ("median", m.times.median * 1e6, "us"),
            ("p99", m.times.p99 * 1e6, "us"),
            ("algbw", m.algbw / GB, "GB/s"),
            ("busbw", m.busbw / GB, "GB/s"),
        ):
            self.scalar(f"{op}/{placement}/{name}", value, index, unit)
        if m.wrong is not None:
            self.scalar(f"{op}/{placement}/wrong", m.wrong, index, "elements")

    def _fit(self, op: Op, index: int, fitted: Fit) -> None:
        for name, value, unit in (
            ("alpha", fitted.alpha * 1e6, "us"),
            ("beta", fitted.beta / GB, "GB/s"),
            ("error", fitted.error, ""),
            ("alpha_error", fitted.alpha_error, ""),
            ("beta_error", fitted.beta_error, ""),
        ):
            if math.isfinite(value):
                self.scalar(f"{op}/fit/{name}", value, index, unit)

    def _metrics(self, op: Op, row: Row) -> None:
        """Send the run's flat numbers, among them the same time read with both formulas of the guide."""
        rows, n = self.rows[op], self.ctx.world_size
        busbw = row.out_of_place.busbw
        one_piece = theory.busbw_of_one_piece(op, row.size, row.out_of_place.times.median, n)
        self.ctx.metric(f"{op}.busbw_avg", table.average_busbw(rows) / GB, "GB/s")
        self.ctx.metric(f"{op}.busbw_max", max(m.busbw for m in table.measured(rows)) / GB, "GB/s")
        self.ctx.metric(f"{op}.busbw_last", busbw / GB, "GB/s")
        self.ctx.metric(f"{op}.busbw_last_gib", busbw / GIB, "GiB/s")
        self.ctx.metric(f"{op}.busbw_last_if_s_were_one_piece", one_piece / GB, "GB/s")
        if op in self.fits:
            fitted = self.fits[op]
            self.ctx.metric(f"{op}.alpha", fitted.alpha * 1e6, "us")
            self.ctx.metric(f"{op}.beta", fitted.beta / GB, "GB/s")
            self.ctx.metric(f"{op}.fit_error", fitted.error)

    def _write(self) -> None:
        if self.output is None:
            return
        rows = [row for op_rows in self.rows.values() for row in op_rows]
        text = table.as_csv(rows) if self.output.suffix == ".csv" else table.as_json(rows, self.fits)
        partial = self.output.with_name(f".{self.output.name}.{os.getpid()}")
        partial.write_text(text, encoding="utf-8")
        partial.replace(self.output)
