"""The agent's end of its collector: opens a run's record, passes on what the agent learns, seals it.

The collector is a process of its own that outlives the agent for a moment, so that a record is completed
even when the agent is killed. A thread reads what it says.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from launcher.control import Ending
from launcher.protocol import RunRequest

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
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the collector process."""
        self._answers = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "launcher.collector"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        threading.Thread(
            target=self._read, args=(self._process, self._answers), name="collector", daemon=True
        ).start()

    def open(self, request: RunRequest, requested: float) -> dict[str, str]:
        """Open the run's record; returns the variables by which its ranks find the collector.

        Raises:
            CollectorError: the folder cannot be written, the address not be bound, or no answer came.
        """
        if self._process is None or self._process.poll() is not None:
            self.start()
        self._send(
            {
                "op": "open",
                "run_id": request.run_id,
                "folder": request.folder,
                "world_size": request.world_size,
                "listen": request.listen,
            }
        )
        opened = self._answer("opened", OPEN_TIMEOUT_S)
        if opened is None:
            raise CollectorError("the collector did not open the run's record")
        environment = {"WORLDSIZE_TELEMETRY": opened["address"], "WORLDSIZE_RUN_ID": request.run_id}
        if opened.get("secret"):
            environment["WORLDSIZE_SECRET"] = opened["secret"]
        return environment

    def ask_for_stacks(self) -> None:
        """Have all connected ranks send where they are."""
        self._send({"op": "stacks"})

    def seal(self, codes: dict[int, int], ending: Ending) -> int:
        """Have the record drained and `result.json` written; returns the run's exit code."""
        self._send({"op": "exits", "codes": {str(rank): code for rank, code in codes.items()}})
        self._send(
            {"op": "seal", "status": ending.status, "exit_code": ending.exit_code, "reason": ending.reason}
        )
        sealed = self._answer("sealed", SEAL_TIMEOUT_S)
        return 2 if sealed is None else int(sealed["exit_code"])

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

    def _send(self, message: dict[str, Any]) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        with self._lock, contextlib.suppress(OSError):  # a dead collector is noticed by its stdout
            process.stdin.write(msgspec.json.encode(message) + b"\n")
            process.stdin.flush()

    def _answer(self, kind: str, timeout_s: float) -> dict[str, Any] | None:
        try:
            answer = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            return None
        return answer if answer is not None and answer.get("reply") == kind else None

    def _read(
        self, process: subprocess.Popen[bytes], answers: queue.SimpleQueue[dict[str, Any] | None]
    ) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            message = msgspec.json.decode(line)
            if message["reply"] == "failed":
                self.on_failed(message["rank"])
            else:
                answers.put(message)
        answers.put(None)
        self.on_lost()
