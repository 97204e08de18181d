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
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from launcher.rundir import ProcessId

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
AGENT_PID = "WORLDSIZE_AGENT_PID"
"""Variable by which the agent's forkserver and collector know that this very process is their agent."""
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


def gone_within(process: ProcessId, seconds: float) -> bool:
    """Wait at most so long for this process to go; returns whether it has gone."""
    deadline = time.monotonic() + seconds
    while alive(process):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.005)
    return True


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Send a signal to exactly this process; False where it is gone or not ours."""
    if not alive(process):
        return False
    try:
        os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


class _Place(NamedTuple):
    """Where a process hangs: its parent, its process group, its session."""

    parent: int
    group: int
    session: int


def _places() -> dict[int, _Place]:
    """The place of every process that can be seen."""
    found: dict[int, _Place] = {}
    if sys.platform == "linux":
        for name in os.listdir("/proc"):
            if name.isdigit() and (fields := _stat_fields(int(name))) is not None:
                found[int(name)] = _Place(int(fields[1]), int(fields[2]), int(fields[3]))
        return found
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
            pid = process.pid
            found[pid] = _Place(process.ppid(), os.getpgid(pid), os.getsid(pid))
    return found


def family(roots: Iterable[int], groups: Iterable[int] = ()) -> list[ProcessId]:
    """Return the living descendants of `roots` (without the roots) and the members of `groups`.

    `groups` are numbers of process groups or sessions; what descends from a member belongs to it too.
    """
    places = _places()
    wanted = set(groups)
    children: dict[int, list[int]] = {}
    for pid, place in places.items():
        children.setdefault(place.parent, []).append(pid)
    found = {pid for pid, place in places.items() if place.group in wanted or place.session in wanted}
    pending = [*roots, *found]
    while pending:
        fresh = [pid for pid in children.get(pending.pop(), ()) if pid not in found]
        found.update(fresh)
        pending += fresh
    return [process for pid in sorted(found) if (process := identify(pid)) is not None]


class Heir:
    """What the collector needs in order to end a run whose agent was killed.

    The kernel kills the forkserver and the ranks with the agent, but not what ranks have started, and not
    the ranks of `torchrun`. They are found by the agent's session and by the ranks' process groups; what ran
    in the session before the run is spared. In a collector that no agent has started it does nothing.
    """

    def __init__(self) -> None:
        """Note what belongs to the agent already; call when a run is opened."""
        parent = os.getppid()
        self._agent = parent if os.environ.get(AGENT_PID) == str(parent) else 0
        # Started by hand, the agent shares a shell's session with processes that are not its own.
        self._session = [parent] if self._agent and os.getsid(0) == parent else []
        self._spared = set(family([], self._session))
        self._ranks: list[int] = []

    def watch(self, connection: socket.socket) -> None:
        """Remember the process at the other end of a unix socket, if it is one of the agent's."""
        pid = peer_pid(connection)
        if self._agent and pid and self._agent in ancestors(pid):
            self._ranks.append(pid)

    def end(self) -> None:
        """SIGKILL to all that the run has left."""
        for process in family(self._ranks, [*self._ranks, *self._session]):
            if process not in self._spared and process.pid != os.getpid():
                send(process, signal.SIGKILL)


def peer_pid(connection: socket.socket) -> int:
    """Pid of the process that connected this unix socket, as the kernel knows it; 0 where it does not."""
    if connection.family != socket.AF_UNIX or sys.platform != "linux":
        return 0
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


def ancestors(pid: int) -> list[int]:
    """Return the pids of the parents of a process, the nearest first."""
    places = _places()
    found: list[int] = []
    while (place := places.get(pid)) is not None and place.parent not in found:
        found.append(pid := place.parent)
    return found


def reap(children: Iterable[int]) -> None:
    """Collect the zombies among this process's children, adopted ones too, except `children`.

    Those listed belong to a `Popen` that wants their exit code itself.
    """
    kept = set(children)
    me = os.getpid()
    for pid, place in _places().items():
        if place.parent == me and pid not in kept and identify(pid) is None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def main(arguments: list[str]) -> None:
    """Tie this process to `arguments[0]` (a pid) and become the command that follows."""
    die_with(int(arguments[0]))
    os.execvp(arguments[1], arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
