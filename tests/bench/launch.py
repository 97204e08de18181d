"""How long from a request until all ranks have passed their first barrier, and how much memory they take.

    python -m tests.bench.launch [--ranks 8] [--runs 7]

In one go, with the same entrypoint: from a cold agent (its start included), from a warm one (median), and
under plain `torchrun`. Memory is the proportional set size (PSS), in which a shared page counts by shares.
Budgets on 2 idle cores with 8 ranks: 2.5 s cold, 0.5 s warm.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from launcher import lifeline
from launcher.events import Phase
from launcher.protocol import Started, Warm
from launcher.record import Tail
from launcher.rundir import EVENTS
from tests.processes.harness import Run, Runner

COLD_BUDGET_S = 2.5
WARM_BUDGET_S = 0.5


class Launch(NamedTuple):
    """One launch: seconds until all ranks were ready, MB of the ranks and of what launched them."""

    ready_s: float
    ranks_mb: float
    launcher_mb: float


def pss_mb(pids: list[int]) -> float:
    """Proportional set size of processes together, in MB (1e6 bytes); 0 where the system does not tell."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * 1024 / 1e6


def measure(run: Run, since_ns: int) -> Launch:
    """Wait until all ranks of a run are ready, look at the memory, and end the run."""
    run.all_ready()
    ranks = [run.rank(number).pid for number in range(run.request.world_size)]
    others = [process.pid for process in lifeline.family([run.runner.client.pid]) if process.pid not in ranks]
    memory = pss_mb(ranks), pss_mb([run.runner.client.pid, *others])
    run.runner.client.stop(run.request.run_id, "measured", 130)
    run.finished()
    ready = [event.t for event in Tail(run.folder / EVENTS).read() if is_ready(event)]
    return Launch((max(ready) - since_ns) / 1e9, *memory)


def is_ready(event: object) -> bool:
    """Whether the event says that a rank has passed its first barrier."""
    return isinstance(event, Phase) and event.phase == "ready"


def launch_cold(folder: Path, ranks: int) -> Launch:
    """Start an agent and request a run at once, as `workbench --run` does."""
    since = time.monotonic_ns()
    runner = Runner(folder)
    try:
        run = runner.prepare(ranks, do="hang", all=True)
        runner.client.request(run.request)
        runner.next(Warm)
        runner.next(Started)
        return measure(run, since)
    finally:
        runner.client.close()


def launch_warm(runner: Runner, ranks: int) -> Launch:
    """Request a run of an agent that is warm."""
    run = runner.prepare(ranks, do="hang", all=True)
    since = time.monotonic_ns()
    runner.request(run.request)
    return measure(run, since)


def launch_torchrun(runner: Runner, ranks: int) -> Launch:
    """Have the agent run the plain `torchrun` command with the same entrypoint."""
    run = runner.prepare(ranks, do="hang", all=True)
    command = ["torchrun", "--standalone", "--nproc-per-node", str(ranks), "-m", "tests.processes.entry"]
    words = [*command, str(run.folder), "hang", "all"]
    since = time.monotonic_ns()
    runner.request(msgspec.structs.replace(run.request, launcher="torchrun", command=words))
    return measure(run, since)


def idle_share(seconds: float = 1.0) -> float:
    """Share of the cores that was idle just now: the figures mean little on a busy machine."""
    import psutil

    return 1 - psutil.cpu_percent(interval=seconds) / 100


def main() -> None:
    """Print the table; exit code 1 where a budget is missed on an idle machine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--runs", type=int, default=7, help="warm launches")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temp:
        folder = Path(temp)
        idle = idle_share()
        colds = [launch_cold(folder, options.ranks) for _ in range(3)]
        runner = Runner(folder)
        runner.warm()
        warms = [launch_warm(runner, options.ranks) for _ in range(options.runs)]
        plain = launch_torchrun(runner, options.ranks)
        runner.client.close()
    rows = {"cold agent": typical(colds), "warm agent": typical(warms), "plain torchrun": plain}
    show(rows, options.ranks, idle)
    missed = rows["cold agent"].ready_s > COLD_BUDGET_S or rows["warm agent"].ready_s > WARM_BUDGET_S
    sys.exit(1 if missed else 0)


def typical(launches: list[Launch]) -> Launch:
    """The medians, column by column."""
    return Launch(*(statistics.median(column) for column in zip(*launches, strict=True)))


def show(rows: dict[str, Launch], ranks: int, idle: float) -> None:
    """Print one line a way of launching, with its time as a share of torchrun's."""
    out = sys.stdout.write
    out(f"{ranks} gloo ranks, until all have passed the first barrier ({idle:.0%} of the cores idle)\n")
    out(f"{'':<16}{'ready s':>9}{'of torchrun':>13}{'ranks MB':>10}{'launcher MB':>13}\n")
    for name, row in rows.items():
        share = row.ready_s / rows["plain torchrun"].ready_s
        out(f"{name:<16}{row.ready_s:>9.2f}{share:>13.0%}{row.ranks_mb:>10.0f}{row.launcher_mb:>13.0f}\n")


if __name__ == "__main__":
    main()
