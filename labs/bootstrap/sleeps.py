"""Ten sleeps three ways, measured: one after another, in threads, in processes. Loads no torch."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

from labs.bootstrap.theory import Worker

_SLEEPER = "import select, sys; select.select([sys.stdin], [], [], float(sys.argv[1]))"
"""A process that sleeps, but leaves at once when its parent, at the other end of its stdin, is gone."""


def measure(how: Worker, jobs: int, sleep: float) -> float:
    """Return the seconds that `jobs` sleeps of `sleep` seconds take, starting and joining included."""
    start = time.perf_counter()
    {"sequential": _sequential, "threads": _threads, "processes": _processes}[how](jobs, sleep)
    return time.perf_counter() - start


def _sequential(jobs: int, sleep: float) -> None:
    for _ in range(jobs):
        time.sleep(sleep)


def _threads(jobs: int, sleep: float) -> None:
    sleepers = [threading.Thread(target=time.sleep, args=(sleep,)) for _ in range(jobs)]
    for sleeper in sleepers:
        sleeper.start()
    for sleeper in sleepers:
        sleeper.join()


def _processes(jobs: int, sleep: float) -> None:
    command = [sys.executable, "-I", "-S", "-c", _SLEEPER, str(sleep)]
    sleepers = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(jobs)]
    for sleeper in sleepers:
        # Not communicate(): closing stdin would wake the sleeper.
        sleeper.wait()
        if sleeper.stdin is not None:
            sleeper.stdin.close()
