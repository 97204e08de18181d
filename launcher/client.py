"""The workbench's end of an agent: starts it, sends requests, hands replies on, and sees it gone.

No torch here. The agent runs in a session of its own, so that ctrl-C in the terminal reaches only the
workbench, which then decides. Its stderr goes to a file without a name: nothing to remove afterwards.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from launcher.channel import temporary_root
from launcher.lifeline import alive, family, identify, send
from launcher.protocol import (
    DetachRequest,
    QuitRequest,
    Reply,
    Request,
    RunRequest,
    StopRequest,
    Warm,
    decode_reply,
    encode,
)
from launcher.rundir import ProcessId

TEMP_PREFIX = "worldsize-"
OWNER = "agent.json"
LOG_TAIL_BYTES = 2000


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """The agent ended without having been asked to; `message` says how, with its last words."""

    message: str
    unfit: bool = False
    """Whether it could not even start: what is wrong is this machine's Python or torch, not the run."""


def agent_environment(extra: Mapping[str, str], temp: str) -> dict[str, str]:
    """Return the environment of an agent: temporary files in `temp`, this checkout importable."""
    environment = {**os.environ, **extra, "TMPDIR": temp}
    root = str(Path(__file__).resolve().parent.parent)
    installed = {
        str(Path(folder).resolve()) for folder in [*site.getsitepackages(), site.getusersitepackages()]
    }
    if root not in installed:
        inherited = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([root, *([inherited] if inherited else [])])
    return environment


def sweep_temp() -> None:
    """Remove the temporary folders of agents that were killed together with their workbench."""
    for folder in Path(temporary_root()).glob(f"{TEMP_PREFIX}*"):
        try:
            owner = msgspec.json.decode((folder / OWNER).read_bytes(), type=ProcessId)
        except (OSError, msgspec.DecodeError):
            continue  # another user's, or an agent that is being started
        if not alive(owner):
            shutil.rmtree(folder, ignore_errors=True)


class AgentClient:
    """One agent. `on_message` is called from the reader thread with each reply, and once with `Lost`."""

    def __init__(
        self,
        on_message: Callable[[Reply | Lost], None],
        preload: str = "labs.preload",
        detached: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.warm = False
        self._on_message = on_message
        self._preload = preload
        self._detached = detached
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._identity: ProcessId | None = None
        self._log = -1
        self._temp = ""
        self._asked = False
        self._leaving = False
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """The agent's process id; 0 before `start`."""
        return self._process.pid if self._process is not None else 0

    @property
    def identity(self) -> ProcessId | None:
        """The agent as pid and start time, for the manifest's `owner`; None before `start`."""
        return self._identity

    def start(self) -> None:
        """Start the agent; it warms up by itself and then sends `Warm`.

        Raises:
            OSError: the process cannot be started.
        """
        sweep_temp()
        self._temp = tempfile.mkdtemp(prefix=TEMP_PREFIX, dir=temporary_root())
        command = [sys.executable, "-P", "-m", "launcher.agent", "--temp", self._temp]
        command += ["--preload", self._preload] if self._preload else []
        command += ["--detached"] if self._detached else []
        with tempfile.TemporaryFile() as log:
            self._log = os.dup(log.fileno())
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=agent_environment(self._environment, self._temp),
                start_new_session=True,
            )
        self._identity = identify(self._process.pid)
        if self._identity is not None:
            (Path(self._temp) / OWNER).write_bytes(msgspec.json.encode(self._identity))
        self._reader = threading.Thread(target=self._read, name="agent-replies", daemon=True)
        self._reader.start()

    def request(self, request: RunRequest) -> None:
        """Ask for a run; `Started`, then `Finished` or `Refused` will come."""
        self._asked = True
        self._send(request)

    def stop(self, run_id: str, reason: str, exit_code: int) -> None:
        """End the run in progress; asked a second time, its ranks are killed at once."""
        self._send(StopRequest(run_id=run_id, reason=reason, exit_code=exit_code))

    def detach(self) -> None:
        """Let the agent outlive this process: it finishes its run, then leaves."""
        self._detached = True
        self._send(DetachRequest())

    def close(self, timeout_s: float = 5.0) -> None:
        """Leave the agent: ask it to quit and wait, or, when detached, only let go of it.

        An agent that has not left after `timeout_s` is killed. Does nothing the second time.
        """
        if self._process is None or self._leaving:
            return
        if not self.warm and not self._asked:
            self.kill()  # still importing torch, nothing to lose
            return
        self._leaving = True
        if not self._detached:
            self._send(QuitRequest())
        self._close_input()
        if self._detached:
            return
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self._join()

    def kill(self) -> None:
        """SIGKILL to the agent and to all that it started, at once; its collector writes the result."""
        self._leaving = True
        if self._process is None or self._identity is None:
            return
        below = family([self.pid], [self.pid])
        send(self._identity, signal.SIGKILL)
        for process in below:  # a stopped collector would not see that it is alone
            send(process, signal.SIGCONT)
        self._process.wait()
        self._join()

    def stderr_tail(self) -> str:
        """Return the end of what the agent and its helpers wrote to stderr."""
        if self._log < 0:
            return ""
        size = os.fstat(self._log).st_size
        start = max(0, size - LOG_TAIL_BYTES)
        return os.pread(self._log, LOG_TAIL_BYTES, start).decode(errors="replace").strip()

    def _send(self, request: Request) -> None:
        with self._lock:
            if self._process is None or self._process.stdin is None or self._process.stdin.closed:
                return
            with contextlib.suppress(OSError):  # the agent is gone: `Lost` is on its way
                self._process.stdin.write(encode(request) + b"\n")
                self._process.stdin.flush()

    def _close_input(self) -> None:
        with self._lock:
            if self._process is not None and self._process.stdin is not None:
                with contextlib.suppress(OSError):
                    self._process.stdin.close()

    def _read(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        with process.stdout as replies:
            for line in replies:
                try:
                    reply = decode_reply(line)
                except msgspec.DecodeError:
                    continue  # printed by the interpreter's own start, before the agent's first line
                if isinstance(reply, Warm):
                    self.warm = True
                self._on_message(reply)
        code = process.wait()
        unfit = code > 0 and not self.warm
        self.warm = False
        self._close_input()
        shutil.rmtree(self._temp, ignore_errors=True)
        if not self._leaving:
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            last = self.stderr_tail()
            if unfit:
                how = f"could not start: {last.rpartition(chr(10))[2] or how}"
            said = f"The launcher agent {how}.{f' Its last words: {last}' if last else ''}"
            self._on_message(Lost(message=said, unfit=unfit))

    def _join(self) -> None:
        if self._reader is not None and self._reader is not threading.current_thread():
            self._reader.join(2.0)
        if self._log >= 0:
            os.close(self._log)
            self._log = -1
