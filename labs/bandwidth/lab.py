"""The bandwidth lab: every collective asked for, at every size, timed, verified and told as it comes.

Reads: `spec.Params`. The measurement itself is `timing.py`, the calls are `ops.py`, the words `report.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import torch
import torch.distributed as dist

from labs.bandwidth import theory
from labs.bandwidth.fit import scatter, summarise
from labs.bandwidth.links import peak_of, read_topology
from labs.bandwidth.ops import Case, Job, Placement
from labs.bandwidth.report import Report
from labs.bandwidth.sizes import ELEMENT_BYTES, format_size, whole_elements
from labs.bandwidth.spec import Params, ops_of, sizes_of
from labs.bandwidth.table import Measured, Row
from labs.bandwidth.theory import CUT_IN_PIECES, GB, OUT_OF_PLACE_ONLY, REDUCING, ROOTED, Op
from labs.bandwidth.timing import barrier, copy_rate, covered, measure
from labs.context import Context, hello

FIT_TOLERANCE, FIT_LIMIT = 0.5, 0.8
"""What the fit may miss on a calm machine, and on any: a fit of nothing at all misses 1."""
COVERED = {"cpu": 0.99, "cuda": 0.25}
"""Least share of a call's own time that an honest clock reports; on a GPU launching is not part of it."""
PROBES = 5


class Sweep:
    """One run: what is common to all sizes, and what the sizes left behind for the checks."""

    def __init__(self, ctx: Context, params: Params) -> None:
        self.ctx, self.params = ctx, params
        self.job = Job(
            ctx.rank,
            ctx.world_size,
            ctx.device,
            params.dtype,
            params.reduce_op,
            min(params.root, ctx.world_size - 1),
        )
        self.report = Report(ctx, params.output) if ctx.rank == 0 else None
        self.done = 0

    def op(self, op: Op, sizes: list[int], total: int) -> None:
        """Measure one op at all sizes, then prove that its numbers mean what they say."""
        if self.report:
            self.report.start(op)
        element, mismatch, wrong = ELEMENT_BYTES[self.params.dtype], 0, 0
        for size in sizes:
            self.ctx.step(self.done, total)
            self.done += 1
            pieces = self.ctx.world_size if op in CUT_IN_PIECES else 1
            elements = whole_elements(size, pieces, element)
            counted = theory.total_bytes(op, elements // pieces * element, self.ctx.world_size)
            row, held = self._row(op, elements, counted)
            mismatch = max(mismatch, abs(held - counted))
            wrong += sum(m.wrong or 0 for m in (row.out_of_place, row.in_place) if m)
            if self.report:
                self.report.add(op, row)
        share = self._covered(op, elements)
        if self.report:
            self.report.finish(op)
            self._checks(op, mismatch, wrong, share)

    def _row(self, op: Op, elements: int, size: int) -> tuple[Row, int]:
        """Return the row of one size, and S as the buffers of all ranks hold it."""
        out, held = self._placement(op, "out_of_place", elements, size)
        within = None if op in OUT_OF_PLACE_ONLY else self._placement(op, "in_place", elements, size)[0]
        redop = self.params.reduce_op if op in REDUCING else "none"
        root = self.job.root if op in ROOTED else -1
        return Row(op, size, elements, self.params.dtype, redop, root, out, within), held

    def _placement(self, op: Op, placement: Placement, elements: int, size: int) -> tuple[Measured, int]:
        case = Case(op, placement, elements, self.job)
        with self._together(f"{op} {placement}", size):
            times = summarise(measure(case.call, self.ctx.device, self.params.iters, self.params.warmup))
            wrong = self._verify(case) if self.params.check else None
            held = torch.tensor(case.moved_bytes, device=self.ctx.device)
            dist.all_reduce(held, op=dist.ReduceOp.MAX)
        rate = theory.algbw(size, times.median)
        bus = theory.busbw(op, size, times.median, self.ctx.world_size)
        return Measured(times, rate, bus, wrong), int(held.item())

    @contextmanager
    def _together(self, name: str, size: int) -> Iterator[None]:
        """Count a whole block of calls as one collective of the record: one span, one sequence number.

        The calls inside go past `ctx.comms`, whose spans would be part of what they measure.
        """
        comms = self.ctx.comms
        seq = comms.ledger.sequence[comms.name]
        comms.ledger.sequence[comms.name] += 1
        with self.ctx.span("comm", name, bytes=size, group=comms.name, seq=seq), comms.pending(name, seq):
            yield

    def _verify(self, case: Case) -> int:
        """Run the op once more on a known pattern and return the wrong elements of all ranks together."""
        case.reset()
        barrier(self.ctx.device)
        case.call()
        wrong = torch.tensor(case.count_wrong(), device=self.ctx.device)
        dist.all_reduce(wrong)
        return int(wrong.item())

    def _covered(self, op: Op, elements: int) -> float:
        case = Case(op, "out_of_place", elements, self.job)
        with self._together(f"{op} probes", case.moved_bytes):
            return covered(case.call, self.ctx.device, PROBES)

    def _checks(self, op: Op, mismatch: int, wrong: int, share: float) -> None:
        assert self.report is not None
        check, rows, n = self.ctx.check, self.report.rows[op], self.ctx.world_size
        last = rows[-1]
        seconds = last.out_of_place.times.median
        if self.params.check:
            check(
                f"{op}: results are right",
                wrong == 0,
                measured=wrong,
                expected=0,
                unit="elements",
                shows="every element of every rank equals the definition, at every size, in and out of place",
            )
        check(
            f"{op}: S counts what the buffers hold",
            mismatch == 0,
            measured=mismatch,
            expected=0,
            unit="B",
            shows="S is the larger of what the op takes in and gives out: a total where pieces move",
        )
        moved, counted = last.out_of_place.busbw * seconds, theory.busiest_port_bytes(op, last.size, n)
        check(
            f"{op}: busbw is the rate of the busiest link",
            abs(moved - counted) <= 1e-6 * counted,
            measured=moved,
            expected=counted,
            tolerance=1e-6 * counted,
            unit="B",
            shows="busbw times t is the bytes through the busiest rank's link, counted transfer by transfer",
        )
        check(
            f"{op}: the clock waits for the data",
            share >= COVERED[self.ctx.device.type],
            measured=share,
            expected=1.0,
            tolerance=1 - COVERED[self.ctx.device.type],
            shows="the clock reports no less than the call takes when it is made to finish",
        )
        self._check_fit(op)

    def _check_fit(self, op: Op) -> None:
        assert self.report is not None
        rows = self.report.rows[op]
        fitted = self.report.fit_of(op)
        if fitted is None:
            return
        restless = scatter([row.out_of_place.times for row in rows])
        tolerance = min(max(FIT_TOLERANCE, restless), FIT_LIMIT)
        self.ctx.check(
            f"{op}: t = alpha + S/beta fits",
            fitted.error <= tolerance,
            measured=fitted.error,
            expected=0.0,
            tolerance=tolerance,
            shows="a latency and a rate explain the best times of all sizes, within the times' own scatter",
        )


def run(ctx: Context, params: Params) -> None:
    """Measure every op of `params` at every size; rank 0 tells table, scalars, metrics and checks.

    Raises:
        MemoryError: the largest size does not fit this node's free memory.
    """
    sizes, ops = sizes_of(params), ops_of(params)
    refuse_too_large(ctx, sizes[-1])
    sweep = Sweep(ctx, params)
    _node(ctx, sweep.report)
    for op in ops:
        sweep.op(op, sizes, len(ops) * len(sizes))


def _node(ctx: Context, report: Report | None) -> None:
    """Tell what this node could do at best: rank 0 copies within its memory, and reads the links."""
    uuids: list[str | None] = [None] * ctx.world_size
    dist.all_gather_object(uuids, hello(ctx, {}).gpu)
    if report:
        ctx.metric("memcpy", copy_rate(ctx.device) / GB, "GB/s")
        topology = read_topology()
        report.topology(topology)
        peak = peak_of(topology, [uuid for uuid in uuids if uuid])
        if peak is not None:
            ctx.metric("link_peak", peak / GB, "GB/s")
    ctx.comms.barrier()


def refuse_too_large(ctx: Context, largest: int) -> None:
    """Send and receive buffer and the expected result live at once; on a CPU all ranks share the memory.

    Raises:
        MemoryError: they would not fit into what is free.
    """
    need = 3 * largest
    if ctx.device.type == "cuda":
        free, holders = torch.cuda.mem_get_info(ctx.device)[0], 1
    else:
        free, holders = psutil.virtual_memory().available, ctx.world_size
    if need * holders > free:
        raise MemoryError(
            f"--max-bytes {format_size(largest)} needs {need * holders / GB:.1f} GB of buffers, "
            f"{free / GB:.1f} GB are free: use a smaller --max-bytes or fewer ranks"
        )
