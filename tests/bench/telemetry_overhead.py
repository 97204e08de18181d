"""Step time of `dp` with telemetry on and off, in one run.

    python -m tests.bench.telemetry_overhead [--ranks 2 4] [--turns 30]

The same ranks train by turns with an emitter that sends to a real collector and with one that has no socket,
so that whatever else the machine does meets both alike; who begins changes from turn to turn. The median
step of each is printed, and their ratio. Budget: less than 1% more. The CPU time of the rank, all its threads
together, tells the same on a machine that is busy.
"""

from __future__ import annotations

import argparse
import copy
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
from labs.data_parallel.spec import DataParallelParams
from labs.data_parallel.subjects import RandomRows
from labs.data_parallel.training import train
from labs.models import DeepMLP
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
    """The steps of this rank with telemetry on and off."""
    params = DataParallelParams(steps=WARM_UP + STEPS, dim=128, batch=128)
    sending = connect(ctx.rank, environment)
    ways = {"off": watched(ctx, Emitter(ctx.rank)), "on": watched(ctx, sending)}
    sending.emit(hello(ctx, {}))
    module = DeepMLP(params.dim, params.layers, seed=1)
    replicas = {name: replicate(copy.deepcopy(module), way.comms, params) for name, way in ways.items()}
    found: dict[str, list[Step]] = {"off": [], "on": []}
    for turn in range(WARM_UP + turns):
        for name in ("off", "on") if turn % 2 else ("on", "off"):
            way = ways[name]
            dist.barrier()
            proof = Comms(way.recorder, name="proof", ledger=way.comms.ledger)
            train(way, params, RandomRows(way, params), replicas[name], proof)
            steps = way.take()
            if turn >= WARM_UP:
                found[name] += steps[WARM_UP:]
    sending.close()
    assert sending.dropped == 0
    return found


def overhead(ranks: int, turns: int) -> float:
    """Print a line for so many ranks and return the ratio of the median steps, on to off."""
    with tempfile.TemporaryDirectory() as temp:
        collector = CollectorProcess(Path(temp) / "run")
        collector.open(ranks)
        found = values(on_ranks(ranks, measure, collector.environment(), turns, limit_s=500.0))[0]
        events = collector.seal().events
        collector.close()
    off, on = (
        Step(*(statistics.median(column) for column in zip(*found[way], strict=True)))
        for way in ("off", "on")
    )
    wall, cpu = on.wall / off.wall, on.cpu / off.cpu
    sys.stdout.write(
        f"{ranks:>5}{off.wall:>10.2f}{on.wall:>10.2f}{wall - 1:>+10.1%}"
        f"{off.cpu:>12.2f}{on.cpu:>10.2f}{cpu - 1:>+10.1%}{events:>12,}\n"
    )
    return wall


def main() -> None:
    """Print the table; exit code 1 where the budget is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--turns", type=int, default=30, help=f"turns of {STEPS} steps each way")
    options = parser.parse_args()
    sys.stdout.write(
        f"dp, 4 layers of 128, 128 rows, median ms a step ({idle_share():.0%} of the cores idle before)\n"
    )
    sys.stdout.write(f"{'ranks':>5}{'off':>10}{'on':>10}{'more':>10}")
    sys.stdout.write(f"{'CPU off':>12}{'on':>10}{'more':>10}{'events':>12}\n")
    ratios = [overhead(ranks, options.turns) for ranks in options.ranks]
    sys.exit(1 if max(ratios) > BUDGET else 0)


if __name__ == "__main__":
    main()
