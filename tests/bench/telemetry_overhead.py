"""Step time of `dp` with telemetry on and off, in one run.

    python -m tests.bench.telemetry_overhead [--ranks 2 4] [--turns 40]

The same ranks train the same model of the lab's default size, paced as the lab paces it, by turns with an
emitter that sends to a real collector, with one that has no socket, and with another such one. Each turn
gives one ratio of its median steps; printed are the median ratio of all turns and its standard error, for on
against off and, as the noise of the machine, off against off. The CPU time of the rank, all its threads
together, tells the same on a machine that is busy. Budget: less than 1% more, which is missed where the ratio
is above it by more than twice the error.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch.distributed as dist

from labs.comms import Comms
from labs.context import Context, hello
from labs.data_parallel.lab import replicate
from labs.data_parallel.pace import Pace
from labs.data_parallel.spec import DataParallelParams
from labs.data_parallel.subjects import RandomRows
from labs.data_parallel.training import train
from labs.models import DeepMLP
from labs.pacing import cores, resolve
from labs.recorder import Recorder
from launcher.emitter import Emitter, connect
from tests.bench.launch import idle_share
from tests.ranks import on_ranks, values
from tests.telemetry.harness import CollectorProcess

BUDGET = 1.01
STEPS = 12
WARM_UP = 2
"""Turns, and steps of each turn, that are not counted."""


class Step(NamedTuple):
    """What one step took: milliseconds of the clock, and of the CPU over all threads of this rank."""

    wall: float
    cpu: float


@dataclass
class Watched(Context):
    """A context that notes when each step begins."""

    moments: list[Step] = field(default_factory=list)

    def step(self, step: int, total: int) -> None:
        """Note the moment, then do what a context does."""
        self.note()
        super().step(step, total)

    def note(self) -> None:
        """Take both clocks."""
        self.moments.append(Step(time.perf_counter() * 1e3, time.process_time() * 1e3))

    def take(self) -> list[Step]:
        """Return what the steps since the last call took; the last of them ends now."""
        self.note()
        moments, self.moments = self.moments, []
        return [Step(b.wall - a.wall, b.cpu - a.cpu) for a, b in itertools.pairwise(moments)]


def watched(ctx: Context, emit: Emitter) -> Watched:
    """The same rank with another emitter, and with communicators that count for themselves."""
    recorder = Recorder(emit, ctx.device)
    own = {**vars(ctx), "emit": emit, "recorder": recorder, "comms": Comms(recorder)}
    return Watched(**own)


def measure(ctx: Context, environment: dict[str, str], turns: int) -> dict[str, list[Step]]:
    """The median step of this rank, turn by turn, with telemetry off, on, and off again."""
    params = DataParallelParams(steps=WARM_UP + STEPS)
    sending = connect(ctx.rank, environment)
    sending.emit(hello(ctx, {}))
    emitters = {"off": Emitter(ctx.rank), "on": sending, "again": Emitter(ctx.rank)}
    ways = {name: watched(ctx, emitter) for name, emitter in emitters.items()}
    # One module for all: two copies of one size already differ by some percent (where in memory they lie).
    module = DeepMLP(params.dim, params.layers, seed=1)
    Pace(list(module.layers), resolve(params.pace_ms, ctx.world_size, cores(), ctx.device.type))
    found: dict[str, list[Step]] = {name: [] for name in ways}
    orders = list(itertools.permutations(ways))
    for turn in range(WARM_UP + turns):
        for name in orders[turn % len(orders)]:
            way = ways[name]
            dist.barrier()
            proof = Comms(way.recorder, name="proof", ledger=way.comms.ledger)
            replica = replicate(module, way.comms, params)
            train(way, params, RandomRows(way, params), replica, proof)
            steps = way.take()
            if turn >= WARM_UP:
                found[name].append(median(steps[WARM_UP:]))
    sending.close()
    assert sending.dropped == 0
    return found


def median(steps: list[Step]) -> Step:
    """The medians of both clocks."""
    return Step(*(statistics.median(column) for column in zip(*steps, strict=True)))


class Ratio(NamedTuple):
    """The median ratio of all turns, and the standard error of it (that of a median: 1.25 of a mean's)."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value - 1:+.1%} ±{self.error:.1%}"


def ratio(above: list[float], below: list[float]) -> Ratio:
    """Compare turn by turn: what slows the machine for a while slows both."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    return Ratio(statistics.median(ratios), 1.25 * statistics.stdev(ratios) / len(ratios) ** 0.5)


def overhead(ranks: int, turns: int) -> Ratio:
    """Print a line for each clock; return the ratio by the wall's."""
    with tempfile.TemporaryDirectory() as temp:
        collector = CollectorProcess(Path(temp) / "run")
        collector.open(ranks)
        found = values(on_ranks(ranks, measure, collector.environment(), turns, limit_s=500.0))[0]
        events = collector.seal().events
        collector.close()
    ratios = []
    for place, clock in enumerate(Step._fields):
        off, on, again = ([step[place] for step in found[way]] for way in ("off", "on", "again"))
        ratios.append(ratio(on, off))
        sys.stdout.write(
            f"{ranks:>5} {clock:<5}{statistics.median(off):>8.2f}{statistics.median(on):>8.2f}"
            f"{ratios[-1]!s:>14}{ratio(again, off)!s:>14}{events:>10,}\n"
        )
    return ratios[0]


def main() -> None:
    """Print the table; exit code 1 where the budget is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--turns", type=int, default=60, help=f"turns of {STEPS} steps each way")
    options = parser.parse_args()
    sys.stdout.write(f"dp at its default size, ms a step ({idle_share():.0%} of the cores idle before)\n")
    sys.stdout.write(f"ranks clock{'off':>8}{'on':>8}{'more':>14}{'noise':>14}{'events':>10}\n")
    ratios = [overhead(ranks, options.turns) for ranks in options.ranks]
    sys.exit(1 if any(found.value - 2 * found.error > BUDGET for found in ratios) else 0)


if __name__ == "__main__":
    main()
