"""Real gloo ranks for tests: call a function, or run a whole lab, and see what each rank returned and told.

Ranks are forked from one warm forkserver, as in a real run, and meet in a TCPStore that this process holds on
a port the system chose. What a rank emits goes to its own file at once, so it survives `os._exit`.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch._C._distributed_c10d import TCPStore

from labs import worker
from labs.catalog import package_of
from labs.context import Context
from launcher import emitter, events
from launcher.emitter import Emitter
from launcher.events import AnyEvent, Check, Failure

LIMIT_S = 60.0
GROUP_TIMEOUT_S = 10.0
E = TypeVar("E", bound=events.Event)
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["launcher.preload", "labs.preload", "pytest", "tests.ranks", "launcher.preloaded"]
)


class RecordingEmitter(Emitter):
    """An emitter whose reader is a file: one line an event, written before `emit` returns."""

    def __init__(self, rank: int, path: Path) -> None:
        super().__init__(rank)
        self._file = path.open("ab", buffering=0)

    @property
    def connected(self) -> bool:
        """Always: the file takes everything."""
        return True

    def emit(self, event: AnyEvent) -> None:
        """Write one event."""
        self._file.write(events.encode(event))

    def span(self, lane: events.Lane, name: str, t0: int, t1: int, **fields: Any) -> None:
        """Write a span."""
        self.emit(events.Span(t=t0, rank=self.rank, t1=t1, lane=lane, name=name, **fields))


@dataclass
class Rank:
    """What one rank came to: its exit code (negative: a signal), what it returned, what it emitted."""

    exit_code: int
    value: Any = None
    events: list[AnyEvent] = field(default_factory=list)


@dataclass
class Run:
    """All ranks of a run, by rank."""

    ranks: list[Rank]

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one kind, rank after rank."""
        return [event for rank in self.ranks for event in rank.events if isinstance(event, kind)]

    @property
    def checks(self) -> dict[str, Check]:
        """The checks by name; where several ranks emitted one, a failed one wins."""
        found: dict[str, Check] = {}
        for check in self.of(Check):
            if check.name not in found or not check.passed:
                found[check.name] = check
        return found

    @property
    def red(self) -> set[str]:
        """Names of the checks that failed."""
        return {name for name, check in self.checks.items() if not check.passed}

    @property
    def failures(self) -> list[Failure]:
        """Why ranks ended early."""
        return self.of(Failure)


def on_ranks(
    world_size: int,
    function: Callable[..., Any],
    *arguments: Any,
    lab: str = "dp",
    limit_s: float = LIMIT_S,
    timeout_s: float = GROUP_TIMEOUT_S,
) -> Run:
    """Call `function(ctx, *arguments)` on every rank, with a context as a lab gets it.

    `function` lies at the top of a module; what it returns must pickle. The ranks are real workers: a way out
    before the end becomes a failure event, and the alignment check follows at the end.

    Raises:
        AssertionError: a rank was still running after `limit_s`.
    """
    return _run(world_size, limit_s, lab, {}, timeout_s, 0, function, arguments)


def run_lab(
    lab: str,
    world_size: int,
    params: dict[str, Any] | None = None,
    *,
    broken: Callable[[], None] | None = None,
    seed: int = 0,
    limit_s: float = LIMIT_S,
    timeout_s: float = GROUP_TIMEOUT_S,
) -> Run:
    """Run a lab on real ranks; `broken` is called in each rank first, to break an algorithm (mutation tests).

    Raises:
        AssertionError: a rank was still running after `limit_s`.
    """
    return _run(world_size, limit_s, lab, params or {}, timeout_s, seed, broken, None)


def values(run: Run) -> list[Any]:
    """Return what the ranks returned.

    Raises:
        AssertionError: one of them failed; its traceback is the message.
    """
    assert not run.failures, "\n".join(f"rank {f.rank}: {f.traceback or f.message}" for f in run.failures)
    assert [rank.exit_code for rank in run.ranks] == [0] * len(run.ranks)
    return [rank.value for rank in run.ranks]


def with_comms(world_size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Call `function(comms, *arguments)` on every rank, with the world's communicator; return the results.

    Raises:
        AssertionError: a rank failed (its traceback is the message) or did not return in time.
    """
    return values(on_ranks(world_size, _comms_first, function, *arguments, timeout_s=30.0))


def _comms_first(ctx: Context, function: Callable[..., Any], *arguments: Any) -> Any:
    return function(ctx.comms, *arguments)


def _run(
    world_size: int,
    limit_s: float,
    lab: str,
    params: dict[str, Any],
    timeout_s: float,
    seed: int,
    function: Callable[..., Any] | None,
    arguments: Sequence[Any] | None,
) -> Run:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    argument = {"lab": lab, "params": params, "seed": seed, "pg_timeout_s": timeout_s}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started = [
            _context.Process(
                target=_rank,
                args=(rank, world_size, store.port, folder, argument, function, arguments),
                daemon=True,
            )
            for rank in range(world_size)
        ]
        for process in started:
            process.start()
        late = _wait(started, limit_s)
        run = Run([_result(folder, rank, process.exitcode) for rank, process in enumerate(started)])
    assert not late, f"ranks {late} were still running after {limit_s} s; failures: {run.failures}"
    return run


def _wait(started: Sequence[Any], limit_s: float) -> list[int]:
    """Wait for all to end; kill and return those that did not."""
    deadline = time.monotonic() + limit_s
    open_ends = {process.sentinel for process in started}
    while open_ends and time.monotonic() < deadline:
        open_ends -= set(wait(list(open_ends), timeout=deadline - time.monotonic()))
    late = [rank for rank, process in enumerate(started) if process.sentinel in open_ends]
    for process in started:
        process.kill()
        process.join()
    return late


def _result(folder: Path, rank: int, exit_code: int | None) -> Rank:
    told, value = folder / f"events{rank}", folder / f"value{rank}"
    lines = told.read_bytes().splitlines() if told.exists() else []
    assert exit_code is not None
    return Rank(
        exit_code,
        pickle.loads(value.read_bytes()) if value.exists() else None,
        [events.decode(line) for line in lines],
    )


def _rank(
    rank: int,
    world_size: int,
    port: int,
    folder: Path,
    argument: dict[str, Any],
    function: Callable[..., Any] | None,
    arguments: Sequence[Any] | None,
) -> None:
    """One rank, in its own process: the environment that torchrun sets, then the worker itself."""
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world_size),
        LOCAL_WORLD_SIZE=str(world_size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
        GLOO_SOCKET_IFNAME=loopback,
    )
    torch.set_num_threads(1)
    try:
        recording = RecordingEmitter(rank, folder / f"events{rank}")
        emitter.connect = lambda rank, environment=os.environ: recording
        if arguments is not None:
            assert function is not None
            _instead_of_a_lab(argument["lab"], function, arguments, folder / f"value{rank}")
        elif function is not None:
            function()
        worker.main(argument)
    except BaseException:
        traceback.print_exc()
        os._exit(99)
    os._exit(0)


def _instead_of_a_lab(lab: str, function: Callable[..., Any], arguments: Sequence[Any], value: Path) -> None:
    """Let the worker find `function` where it looks for the lab's module."""

    def run(ctx: Context, _params: Any) -> None:
        value.write_bytes(pickle.dumps(function(ctx, *arguments)))

    name = f"{package_of(lab)}.lab"
    sys.modules[name] = ModuleType(name)
    vars(sys.modules[name])["run"] = run
