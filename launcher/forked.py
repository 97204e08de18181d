"""Start a Python command by a fork of this process, where a fresh interpreter would import torch once more.

Importing torch takes two seconds, a fork ten milliseconds, and the pages of what is loaded stay shared. The
child is made as a fresh interpreter would find itself: no signal handler, no descriptor, no stdin and no
unwritten output of the parent's, and multiprocessing as at its import. What is left is the parent's memory,
its locks as they were: the child calls nothing of the parent.
"""

from __future__ import annotations

import contextlib
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import multiprocessing.util
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

_util: Any = multiprocessing.util
_spawn = _util.spawnv_passfds


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """Have multiprocessing start its helpers by a fork while the block runs."""
    _util.spawnv_passfds = fork_passing
    try:
        yield
    finally:
        _util.spawnv_passfds = _spawn


def fork_passing(_path: str, arguments: Sequence[str | bytes], descriptors: Iterable[int]) -> int:
    """Do what `multiprocessing.util.spawnv_passfds` does, for a `python ... -c COMMAND`; returns the pid.

    The child keeps `descriptors`, stdout and stderr, runs COMMAND and ends. Linux only.
    """
    for written in (sys.stdout, sys.stderr):  # or the child would write it once more
        written.flush()
    # A signal that comes between the fork and the reset would run the parent's handler in the child.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    with warnings.catch_warnings(action="ignore"):  # 3.12 and later warn of a parent's threads
        pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid
    code = 1
    try:
        _forget_parent({*descriptors, 0, 1, 2})
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _renew_multiprocessing()
        exec(arguments[-1], {"__name__": "__main__"})
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _forget_parent(kept: set[int]) -> None:
    """Give back what an exec would: signal handlers, descriptors, stdin."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:  # the descriptor of the listing itself
                continue
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # The parent's object stays alive beside it: a thread of the parent may have held its lock in a read.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115


def _renew_multiprocessing() -> None:
    """Set multiprocessing back: it forked in the middle of starting a helper, its lock held by this thread.

    A rank would wait for that lock without end when it starts a process by "forkserver", and would look for
    the resource tracker by a number that means another descriptor here, or none.
    """
    _util.spawnv_passfds = _spawn
    forkserver: Any = multiprocessing.forkserver
    tracker: Any = multiprocessing.resource_tracker
    forkserver._forkserver.__init__()
    tracker._resource_tracker.__init__()
