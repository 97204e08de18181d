"""The agent's end of its collector: opens a run's record, passes on what the agent learns, seals it.

The collector is a process of its own that outlives the agent for a moment, so that a record is completed
even when the agent is killed. A thread reads what it says. Should the collector be lost, the agent itself
writes the result, from what the record holds.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from launcher import collector_protocol as wire
from launcher import rundir
from launcher.control import Ending
from launcher.protocol import RunRequest
from launcher.record import Tail
from launcher.verdict import Verdict, write_result

OPEN_TIMEOUT_S = 10.0
SEAL_TIMEOUT_S = 15.0


class CollectorError(Exception):
    """The collector cannot serve the run; the message says why."""


class CollectorClient:
    """One collector process, used for many runs."""

    def __init__(self) -> None:
        self.on_failed: Callable[[int], None] = lambda rank: None
        self.on_lost: Callable[[], None] = lambda: None
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[wire.Answer | None] = queue.SimpleQueue()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the collector process.

        Raises:
            OSError: it cannot be started.
        """
        self._answers = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "launcher.collector"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        arguments = (self._process, self._answers)
        threading.Thread(target=self._read, args=arguments, name="collector", daemon=True).start()

    def open(self, request: RunRequest, requested_ns: int) -> dict[str, str]:
        """Open the run's record; returns the variables by which its ranks find the collector.

        Raises:
            CollectorError: the folder cannot be written, the address not be bound, or no answer came.
        """
        if self._process is None or self._process.poll() is not None:
            self.start()
        self._send(
            wire.Open(
                run_id=request.run_id,
                folder=request.folder,
                world_size=request.world_size,
                listen=request.listen,
                requested_ns=requested_ns,
            )
        )
        opened = self._answer(OPEN_TIMEOUT_S)
        if isinstance(opened, wire.Refused):
            raise CollectorError(opened.message)
        if not isinstance(opened, wire.Opened):
            raise CollectorError(
                "the collector ended or did not answer when the run's record was to be opened"
            )
        environment = {"WORLDSIZE_TELEMETRY": opened.address, "WORLDSIZE_RUN_ID": request.run_id}
        return {**environment, "WORLDSIZE_SECRET": opened.secret} if opened.secret else environment

    def ask_for_stacks(self) -> None:
        """Have all connected ranks send where they are."""
        self._send(wire.Stacks())

    def ending(self, ending: Ending) -> None:
        """Tell why the run is being ended: the agent may be killed before it can seal it."""
        if ending.status is not None and ending.exit_code is not None:
            self._send(wire.Ending(status=ending.status, exit_code=ending.exit_code, reason=ending.reason))

    def seal(self, request: RunRequest, requested_ns: int, codes: dict[int, int], ending: Ending) -> int:
        """Have the record drained and `result.json` written; returns the run's exit code.

        `codes` are the exit codes of ranks that ended by themselves.
        """
        self._send(wire.Exits(codes={str(rank): code for rank, code in codes.items()}))
        self._send(
            wire.Seal(
                status=ending.status,
                exit_code=ending.exit_code,
                reason=ending.reason,
                timed_out=ending.timed_out,
            )
        )
        sealed = self._answer(SEAL_TIMEOUT_S)
        if isinstance(sealed, wire.Sealed):
            return sealed.exit_code
        if self._process is not None:
            self._process.kill()  # stopped, or stuck on its disk: it must not write a second result later
        return result_from_record(Path(request.folder), requested_ns, codes, ending)

    def close(self) -> None:
        """Let the collector leave, and wait for it."""
        process = self._process
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(SEAL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _send(self, command: wire.Command) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        with self._lock, contextlib.suppress(OSError):  # a dead collector is noticed by its stdout
            process.stdin.write(wire.encode(command) + b"\n")
            process.stdin.flush()

    def _answer(self, timeout_s: float) -> wire.Answer | None:
        try:
            return self._answers.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def _read(self, process: subprocess.Popen[bytes], answers: queue.SimpleQueue[wire.Answer | None]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                answer = wire.decode_answer(line)
                if isinstance(answer, wire.RankFailed):
                    self.on_failed(answer.rank)
                else:
                    answers.put(answer)
        answers.put(None)
        self.on_lost()


def result_from_record(folder: Path, requested_ns: int, codes: dict[int, int], ending: Ending) -> int:
    """Write `result.json` from what the record holds, without a collector; returns the exit code.

    Should the disk refuse the result too, or the manifest be unreadable, the exit code alone tells.
    """
    verdict = Verdict(0)
    try:
        manifest = rundir.read_manifest(folder)
        verdict = Verdict(manifest.world_size)
        for event in Tail(folder / rundir.EVENTS).read():
            verdict.add(event)
        verdict.evidence.exit_codes.update(codes)
        verdict.evidence.timed_out = ending.timed_out
        verdict.evidence.agent_lost = ending.agent_lost
        now_ns = time.monotonic_ns()
        result = verdict.result(
            manifest, folder, requested_ns, now_ns, ending.status, ending.exit_code, ending.reason
        )
        write_result(folder, result)
    except (OSError, msgspec.DecodeError):
        return 2
    return result.exit_code
