"""Start a Python command by a fork of this process, where a fresh interpreter would import torch once more.

Importing torch takes two seconds, a fork ten milliseconds, and the pages of what is loaded stay shared. The
child is made as a fresh interpreter would find itself: no signal handler, no descriptor and no stdin of the
parent's. What is left is the parent's memory, its locks as they were: the child calls nothing of the parent.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterable, Sequence


def fork_passing(_path: str, arguments: Sequence[str | bytes], descriptors: Iterable[int]) -> int:
    """Do what `multiprocessing.util.spawnv_passfds` does, for a `python ... -c COMMAND`; returns the pid.

    The child keeps `descriptors`, stdout and stderr, runs COMMAND and ends. Linux only.
    """
    # A signal that comes between the fork and the reset would run the parent's handler in the child.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid
    code = 1
    try:
        _forget_parent({*descriptors, 0, 1, 2})
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
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
