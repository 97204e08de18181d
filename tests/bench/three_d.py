"""The 3d lab from 1 to 8 ranks, paced: how the time of a step falls as each axis grows, in one table.

    python -m tests.bench.three_d [PACE_MS]

Strong scaling: batch and model stay, ranks are added along one axis after another. A forward of the
whole model on a micro-batch is paced to PACE_MS (160) on one rank, that of a stage to its share of it, split
among its tp ranks. Beside the step stands what the schedule alone would take: the paced time and the bubble.
What is above it is communication, and ranks that wait for a core.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence

from labs.parallel.schedule_simulator import Costs, simulate
from labs.parallel.schedules import build
from labs.three_d.spec import ThreeDParams
from launcher.events import Span
from tests.ranks import Run, run_lab, values

MICRO_BATCHES = 8
"""Of the whole batch; replicas share them."""
STEPS = 4
MESHES = ((1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (2, 1, 2), (1, 2, 2), (2, 2, 2))
BACKWARD_RATIO = 2.0


def parameters(shape: tuple[int, int, int], pace_ms: float) -> ThreeDParams:
    """The same model and batch on a mesh (dp, pp, tp)."""
    dp, pp, tp = shape
    return ThreeDParams(
        dp=dp,
        pp=pp,
        tp=tp,
        layers=4,
        micro_batches=MICRO_BATCHES // dp,
        micro_batch_size=2,
        steps=STEPS,
        pace_ms=pace_ms / (pp * tp),
    )


def step_ms(run: Run) -> float:
    """The median step, the first left out: from its first action until the last rank has stepped."""
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for span in run.of(Span):
        if span.lane == "compute" and span.action:
            begins[span.step] = min(begins.get(span.step, span.t), span.t)
        if span.action or (span.name == "all_reduce" and span.group in ("dp", "embedding")):
            ends[span.step] = max(ends.get(span.step, span.t1), span.t1)
    return statistics.median((ends[step] - begins[step]) / 1e6 for step in sorted(begins)[1:])


def planned_ms(shape: tuple[int, int, int], pace_ms: float) -> float:
    """The makespan of the schedule alone."""
    given = parameters(shape, pace_ms)
    forward = given.pace_ms
    costs = Costs(forward, forward * BACKWARD_RATIO / 2, forward * BACKWARD_RATIO / 2)
    return simulate(build(given.schedule, given.pp, given.micro_batches), costs).makespan


def main(arguments: Sequence[str]) -> None:
    """Print a line a mesh."""
    pace_ms = float(arguments[0]) if arguments else 160.0
    alone = 0.0
    print(f"whole batch of {MICRO_BATCHES} micro-batches, forward paced to {pace_ms:g} ms on one rank")
    print("ranks  dp pp tp   step ms  schedule    over   speed-up  of ranks")
    for shape in MESHES:
        dp, pp, tp = shape
        ranks = dp * pp * tp
        run = run_lab("3d", ranks, _given(parameters(shape, pace_ms)), limit_s=300.0, timeout_s=60.0)
        values(run)
        assert not run.red, run.red
        took, planned = step_ms(run), planned_ms(shape, pace_ms)
        alone = alone or took
        speed, over = alone / took, took / planned
        sizes = f"{ranks:5}  {dp:2} {pp:2} {tp:2}"
        print(f"{sizes}  {took:8.0f}  {planned:8.0f}  {over:5.2f}x  {speed:8.2f}x  {speed / ranks:8.0%}")


def _given(params: ThreeDParams) -> dict[str, object]:
    return {name: getattr(params, name) for name in params.__struct_fields__}


if __name__ == "__main__":
    main(sys.argv[1:])
