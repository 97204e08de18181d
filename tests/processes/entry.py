"""The entrypoint of the process tests: gloo ranks that end in every way that a test asks for.

It does what `labs.worker` does around a lab, with as little as possible in between: hello, ready, a loop of
all-reduces in which one rank may misbehave, end. Each rank leaves `pid.<rank>` in the run's folder, and
`child.<n>` for processes that it started.
"""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from launcher.emitter import Emitter, connect
from launcher.events import Check, End, Failure, FailureKind, Hello, Phase

FOREVER_S = 600.0


class CollectiveError(Exception):
    """A collective did not come about: another rank is gone or late."""

    def __init__(self, message: str, seq: int) -> None:
        super().__init__(message)
        self.seq = seq


def main(argument: dict[str, Any]) -> None:
    """Be one rank. `argument`: folder, do (an act), who (the rank that does it), pg_timeout_s, loops."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    folder = Path(argument["folder"])
    emitter = connect(rank)
    emitter.emit(
        Hello(
            t=time.monotonic_ns(),
            rank=rank,
            world_size=world_size,
            local_rank=int(os.environ["LOCAL_RANK"]),
            node="here",
            pid=os.getpid(),
            device="cpu",
            backend="gloo",
        )
    )
    (folder / f"pid.{rank}").write_text(str(os.getpid()))
    try:
        _work(argument, rank, folder, emitter)
    except SystemExit as leaving:
        _fail(emitter, rank, "early_exit", f"SystemExit: {leaving.code}")
    except CollectiveError as error:
        kind: FailureKind = "timeout" if "imed out" in str(error) else "exception"
        _fail(emitter, rank, kind, str(error), collective="all_reduce", seq=error.seq, victim=True)
    except Exception as error:
        _fail(emitter, rank, "exception", f"{type(error).__name__}: {error}")
    emitter.emit(Check(t=time.monotonic_ns(), rank=rank, name="summed", passed=True))
    emitter.emit(End(t=time.monotonic_ns(), rank=rank, status="passed", exit_code=0))
    emitter.close()


def _fail(emitter: Emitter, rank: int, kind: FailureKind, message: str, **more: Any) -> None:
    """Report, then leave at once."""
    told = traceback.format_exc()
    emitter.emit(
        Failure(t=time.monotonic_ns(), rank=rank, kind=kind, message=message, traceback=told, **more)
    )
    emitter.flush(1.0)
    os._exit(3)


def _work(argument: dict[str, Any], rank: int, folder: Path, emitter: Emitter) -> None:
    timeout = datetime.timedelta(seconds=argument.get("pg_timeout_s", 30))
    dist.init_process_group("gloo", timeout=timeout)
    dist.barrier()
    emitter.emit(Phase(t=time.monotonic_ns(), rank=rank, phase="ready"))
    sys.stdout.write(f"rank {rank} is ready\n")
    act = ACTS[argument.get("do", "nothing")]
    if rank == argument.get("who", 0) or argument.get("all", False):
        act(folder)
    value = torch.zeros(4)
    for loop in range(argument.get("loops", 3)):
        emitter.waiting("all_reduce", "world", loop)
        try:
            dist.all_reduce(value)
        except RuntimeError as error:
            raise CollectiveError(str(error), loop) from error
        emitter.arrived()
        if argument.get("pause_s"):
            time.sleep(argument["pause_s"])
    dist.destroy_process_group()


def _nothing(_folder: Path) -> None:
    pass


def _raise(_folder: Path) -> None:
    raise ValueError("this rank was asked to fail")


def _exit(_folder: Path) -> None:
    sys.exit(0)


def _vanish(_folder: Path) -> None:
    os._exit(0)


def _hang(_folder: Path) -> None:
    time.sleep(FOREVER_S)


def _ignore(_folder: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(FOREVER_S)


def _children(folder: Path) -> None:
    """Start one child by exec, one the same in a process group of its own, and one by fork."""
    command = [sys.executable, "-c", f"import time; time.sleep({FOREVER_S})"]
    (folder / "child.0").write_text(str(subprocess.Popen(command).pid))
    (folder / "child.1").write_text(str(subprocess.Popen(command, process_group=0).pid))
    forked = os.fork()
    if forked == 0:
        time.sleep(FOREVER_S)
        os._exit(0)
    (folder / "child.2").write_text(str(forked))
    time.sleep(FOREVER_S)


ACTS: dict[str, Callable[[Path], None]] = {
    "nothing": _nothing,
    "raise": _raise,
    "exit": _exit,
    "vanish": _vanish,
    "hang": _hang,
    "ignore": _ignore,
    "children": _children,
}

if __name__ == "__main__":
    folder, act, who = sys.argv[1:]
    main({"folder": folder, "do": act, "all": who == "all", "who": -1 if who == "all" else int(who)})
