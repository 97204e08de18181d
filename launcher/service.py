"""The agent's control loop: requests in, runs one after another, replies out. No torch here.

A thread reads the requests, so that a stop arrives while the main thread is inside torchrun's elastic
agent; the main thread does the runs, since the elastic agent and the forkserver need it.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from launcher.collector_client import CollectorClient, CollectorError
from launcher.control import RunControl
from launcher.protocol import (
    STOP_SIGNAL,
    DetachRequest,
    Finished,
    QuitRequest,
    Refused,
    Reply,
    RunRequest,
    Started,
    StopRequest,
    decode_request,
    encode,
)

Launch = Callable[[RunControl, dict[str, str]], dict[int, int]]
"""Runs the ranks with the given telemetry environment until all are gone.

Returns the exit codes, by rank, of those that ended by themselves.
"""

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LEAVE = 130


class Service:
    """One agent's requests and replies."""

    def __init__(self, replies: BinaryIO, collector: CollectorClient, detached: bool = False) -> None:
        self._replies = replies
        self._collector = collector
        self._detached = detached
        self._leaving = False
        self._current: RunControl | None = None
        self._runs: queue.SimpleQueue[RunControl | None] = queue.SimpleQueue()
        self._signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._main_thread = threading.main_thread().ident or 0
        collector.on_failed = self._rank_failed
        collector.on_lost = self._collector_lost

    def reply(self, reply: Reply) -> None:
        """Write one reply; a workbench that is gone is not an error here."""
        with self._lock:
            try:
                self._replies.write(encode(reply) + b"\n")
                self._replies.flush()
            except OSError:
                self._replies = open(os.devnull, "wb")  # noqa: SIM115

    def listen(self, requests: BinaryIO) -> None:
        """Start the thread that reads requests until EOF, and take over the ending signals."""
        for number in (*SIGNALS, STOP_SIGNAL):
            signal.signal(number, lambda number, _frame: self._signals.put(number))
        threading.Thread(target=self._heed, name="signals", daemon=True).start()
        threading.Thread(target=self._read, args=(requests,), name="requests", daemon=True).start()

    @property
    def abandoned(self) -> bool:
        """Whether the agent was asked to quit, or its workbench is gone without having detached its run."""
        return self._leaving and not self._detached

    def serve(self, launch: Launch) -> None:
        """Do runs until asked to quit, or until the workbench is gone (main thread)."""
        while not self._leaving or self._current is not None:
            control = self._runs.get()
            if control is None:
                continue
            try:
                last = self._run(control, launch)
            finally:
                self._current = None
                if self._leaving:
                    self._runs.put(None)
            self.reply(last)  # after that the next request may be here already

    def _run(self, control: RunControl, launch: Launch) -> Reply:
        """Do one run from its record's opening to its sealing; returns what is to be said last."""
        request = control.request
        try:
            environment = self._collector.open(request, control.requested_ns)
        except CollectorError as error:
            return Refused(message=str(error), run_id=request.run_id)
        control.begin()
        self.reply(Started(run_id=request.run_id))
        try:
            codes = launch(control, environment)
        finally:
            control.finish()
        exit_code = self._collector.seal(request, control.requested_ns, codes, control.ending)
        return Finished(run_id=request.run_id, exit_code=exit_code)

    def _read(self, requests: BinaryIO) -> None:
        for line in requests:
            try:
                request = decode_request(line)
            except msgspec.DecodeError as error:
                self.reply(Refused(message=f"unreadable request: {error}"))
                continue
            if isinstance(request, RunRequest):
                self._accept(request)
            elif isinstance(request, StopRequest):
                self._stop(request)
            elif isinstance(request, DetachRequest):
                self._detached = True
            elif isinstance(request, QuitRequest):
                self._leave("the workbench quit", LEAVE)
                return
        if self._detached:
            self._leaving = True
            self._runs.put(None)
        else:
            self._leave("the workbench ended", 128 + signal.SIGHUP)

    def _accept(self, request: RunRequest) -> None:
        with self._lock:
            if self._current is not None:
                busy = self._current.request.run_id
                self.reply(Refused(message=f"run {busy} is still in progress", run_id=request.run_id))
            elif not Path(request.folder).is_dir():
                missing = f"the run's folder {request.folder} does not exist"
                self.reply(Refused(message=missing, run_id=request.run_id))
            else:
                self._current = RunControl(
                    request, self._collector.ask_for_stacks, self._break_launch, self._stuck
                )
                self._runs.put(self._current)

    def _stop(self, request: StopRequest) -> None:
        current = self._current
        if current is None or current.request.run_id != request.run_id:
            self.reply(Refused(message=f"run {request.run_id} is not in progress", run_id=request.run_id))
        else:
            self._end(current, request.reason, request.exit_code)

    def _end(self, current: RunControl, reason: str, exit_code: int) -> None:
        current.stop(reason, exit_code)
        self._collector.ending(current.ending)

    def _leave(self, reason: str, exit_code: int) -> None:
        self._leaving = True
        current = self._current
        if current is not None:
            self._end(current, reason, exit_code)
        self._runs.put(None)

    def _heed(self) -> None:
        """Act on signals. A handler runs inside whatever the main thread does, which may hold a lock."""
        while True:
            number = self._signals.get()
            current = self._current
            if number != STOP_SIGNAL:
                self._leave(f"the agent got {signal.Signals(number).name}", 128 + number)
            elif current is not None:  # the run ends as a terminated one, the agent serves on
                self._end(current, "stopped by workbench --stop", 128 + signal.SIGTERM)

    def _rank_failed(self, rank: int) -> None:
        current = self._current
        if current is not None:
            current.rank_failed(rank)

    def _collector_lost(self) -> None:
        current = self._current
        if current is not None:
            current.fail(2, "the recorder of the run ended before the run did")

    def _break_launch(self) -> None:
        """Raise in the main thread: all ranks are gone and the elastic agent still waits for them."""
        signal.pthread_kill(self._main_thread, signal.SIGQUIT)

    def _stuck(self) -> None:
        """Last way out: leave without the main thread; the collector writes the result."""
        os._exit(1)
