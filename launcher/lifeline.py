"""Nothing outlives its parent: signals on a parent's death, process identity, and ending process trees.

A process is named by pid *and* start time, so that a number given out again is never hit. On Linux the
kernel does the first part of the work (`PR_SET_PDEATHSIG`, `PR_SET_CHILD_SUBREAPER`); on macOS what is
left is that every process notices its pipe or socket reaching EOF. This module loads neither torch nor
anything heavy: the forkserver imports it first, before its parent has time to die unnoticed.

Run as a program it is a wrapper: `python -m launcher.lifeline PARENT_PID COMMAND...` ties the command to
the life of the parent and becomes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from launcher.rundir import ProcessId

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ORPHANED = 78
"""Exit code of a process that found its parent already gone."""

_server_pid = 0


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}, {value}): {os.strerror(error)}")


def die_with(parent: int) -> None:
    """Have the kernel kill this process (SIGKILL) when the thread that started it ends.

    Leaves at once, with exit code `ORPHANED`, when `parent` is not the parent any more: it died before
    the signal was armed. A fork clears the signal, an exec keeps it.
    """
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(ORPHANED)


def arm_server(parent: int) -> None:
    """Tie the forkserver to the agent, and remember it as the parent of the ranks that it will fork."""
    global _server_pid
    die_with(parent)
    _server_pid = os.getpid()


def arm_rank() -> None:
    """Tie a rank to the forkserver it was forked from, and what it forks itself to the rank.

    The rank becomes the leader of a process group, by which the processes that it starts are found even
    when it is dead itself. In a process that no armed forkserver forked, only the group is made.
    """
    with contextlib.suppress(PermissionError):  # a session leader (under torchrun) has its group already
        os.setpgid(0, 0)
    if _server_pid:
        die_with(_server_pid)
        _arm_forks()


def _arm_forks() -> None:
    """Tie every process that this one forks (data loader workers) to its own parent.

    Only what the main thread forks: the kernel's signal comes when the forking *thread* ends.
    """
    parent = 0

    def before() -> None:
        nonlocal parent
        parent = os.getpid() if threading.current_thread() is threading.main_thread() else 0

    def in_child() -> None:
        if parent:
            die_with(parent)

    os.register_at_fork(before=before, after_in_child=in_child)


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent dies, so that it can find them."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _stat_fields(pid: int) -> list[str] | None:
    """Fields 3 and later of `/proc/PID/stat` (the command in field 2 may hold spaces and brackets)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def identify(pid: int) -> ProcessId | None:
    """Return the identity of a living process, None where there is none of that number.

    `started` is in seconds: since boot on Linux (it does not move when the wall clock is set), else since
    the epoch. A zombie counts as gone.
    """
    if sys.platform == "linux":
        fields = _stat_fields(pid)
        if fields is None or fields[0] in "ZX":
            return None
        return ProcessId(pid, int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return ProcessId(pid, process.create_time())
    except psutil.Error:
        return None


def alive(process: ProcessId) -> bool:
    """Whether exactly this process still runs."""
    return identify(process.pid) == process


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Send a signal to exactly this process; False where it is gone or not ours."""
    if not alive(process):
        return False
    try:
        os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _relations() -> dict[int, tuple[int, int]]:
    """Parent and process group of every process that can be seen."""
    found: dict[int, tuple[int, int]] = {}
    if sys.platform == "linux":
        for name in os.listdir("/proc"):
            if name.isdigit() and (fields := _stat_fields(int(name))) is not None:
                found[int(name)] = (int(fields[1]), int(fields[2]))
        return found
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
            found[process.pid] = (process.ppid(), os.getpgid(process.pid))
    return found


def family(roots: Iterable[int], groups: Iterable[int] = ()) -> list[ProcessId]:
    """Return the living descendants of `roots` (without the roots) and the members of process groups."""
    relations = _relations()
    wanted = set(groups)
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in relations.items():
        children.setdefault(parent, []).append(pid)
    found = {pid for pid, (_, group) in relations.items() if group in wanted}
    pending = [*roots, *found]
    while pending:
        fresh = [pid for pid in children.get(pending.pop(), ()) if pid not in found]
        found.update(fresh)
        pending += fresh
    return [process for pid in sorted(found) if (process := identify(pid)) is not None]


def reap(children: Iterable[int]) -> None:
    """Collect the zombies among this process's children, adopted ones too, except `children`.

    Those listed belong to a `Popen` that wants their exit code itself.
    """
    kept = set(children)
    me = os.getpid()
    for pid, (parent, _) in _relations().items():
        if parent == me and pid not in kept and identify(pid) is None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def kill_ranks(ranks: Iterable[ProcessId]) -> None:
    """SIGKILL to ranks, to what they started, and to what is left of their process groups.

    For the collector too, which is the last one alive when the agent was killed. The group of a rank is
    its pid; that number is not given out again while the group has a member.
    """
    known = list(ranks)
    pids = [rank.pid for rank in known]
    victims = [process for process in family(pids, pids) if process.pid != os.getpid()]
    for process in [*(rank for rank in known if rank not in victims), *victims]:
        send(process, signal.SIGKILL)


def main(arguments: list[str]) -> None:
    """Tie this process to `arguments[0]` (a pid) and become the command that follows."""
    die_with(int(arguments[0]))
    os.execvp(arguments[1], arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
