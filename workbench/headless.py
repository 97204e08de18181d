"""A run without the app: asks an agent for it, follows it, prints its verdict, returns its exit code.

Progress goes to stderr, the verdict to stdout. Signals become messages in the same queue as the agent's
replies, so that one loop sees everything in order. Loads neither torch nor textual.
"""

from __future__ import annotations

import contextlib
import queue
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import msgspec

from labs.params import LabSpec, ParameterError
from launcher.client import AgentClient, Lost
from launcher.collector_client import result_from_record
from launcher.control import Ending
from launcher.events import Log, decode
from launcher.protocol import Finished, Refused, Reply, Started, Warm
from launcher.record import Tail
from launcher.rundir import EVENTS, Result, read_result, to_json
from workbench import report, session
from workbench.console import complain, say
from workbench.machine import Machine
from workbench.progress import Progress

POLL_S = 0.1
RESULT_S = 5.0
KILL_S = 3.0
"""How long the agent may take to end a run at once before it is killed itself."""
AGENT_LOG = "agent.log"
LAST_WORDS = " Its last words: "
PASSED, FAILED = 0, 1
ENVIRONMENT = 2
WORKER_FAILED = 3
SPAN, LOG = b'"event":"span"', b'"event":"log"'
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt(msgspec.Struct, frozen=True):
    """A signal to this process."""

    number: int

    @property
    def name(self) -> str:
        return signal.Signals(self.number).name

    @property
    def exit_code(self) -> int:
        return 128 + self.number

    @property
    def reason(self) -> str:
        return f"the workbench got {self.name}"


Message = Reply | Lost | Interrupt
Inbox = queue.SimpleQueue[Message]


@contextlib.contextmanager
def signals_into(inbox: Inbox) -> Iterator[None]:
    """Turn the ending signals into messages while the block runs; those that are ignored (nohup) stay so."""

    def put(number: int, _frame: FrameType | None) -> None:
        inbox.put(Interrupt(number))  # SimpleQueue.put is safe in a signal handler

    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, put) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Headless:
    """One run, followed to its end."""

    def __init__(
        self,
        prepared: session.Prepared,
        client: AgentClient,
        inbox: Inbox,
        quiet: bool,
        until_started: bool = False,
    ) -> None:
        """With `until_started` the run is left to itself once its ranks are being started."""
        self._run_id = prepared.manifest.run_id
        self._folder = prepared.folder
        self._request = prepared.request
        self._client = client
        self._inbox = inbox
        self._until_started = until_started
        self._tail = Tail(prepared.folder / EVENTS)
        self._requested_ns = 0
        self._interrupt: Interrupt | None = None
        self._kill_at = float("inf")
        self._progress: Progress | None = None
        if not quiet:
            self._progress = Progress(sys.stderr, prepared.manifest.lab, prepared.manifest.world_size)

    def follow(self) -> int:
        """Request the run and return the exit code that the agent reports, once all of it is over."""
        self._requested_ns = time.monotonic_ns()
        self._client.request(self._request)
        try:
            while True:
                self._show()
                try:
                    message = self._inbox.get(timeout=POLL_S)
                except queue.Empty:
                    message = None
                code = self._react(message)
                if code is not None:
                    self._show()
                    return code
        finally:
            if self._progress is not None:
                self._progress.close()

    def _react(self, message: Message | None) -> int | None:
        """Act on a message; returns the exit code when it was the last."""
        match message:
            case Interrupt():
                self._stop(message)
            case Finished(run_id=run_id) if run_id == self._run_id:
                return message.exit_code
            case Started() if self._until_started and self._interrupt is None:
                return 0
            case Warm() if self._progress is not None:
                self._progress.warm()
            case Refused():
                return self._conclude(message.message, ENVIRONMENT)
            case Lost():
                return self._lost(message.message, unfit=message.unfit)
            case _:
                pass
        if time.monotonic() >= self._kill_at:
            self._client.kill()
            return self._lost("The launcher agent did not end the run and was killed.")
        return None

    def _lost(self, message: str, *, unfit: bool = False) -> int:
        """The agent is gone. Its collector, if it is still there, writes the result."""
        said, _, last_words = message.partition(LAST_WORDS)
        if last_words:
            with contextlib.suppress(OSError):
                (self._folder / AGENT_LOG).write_text(last_words)
                said += f" Its last words are in {self._folder / AGENT_LOG}"
        if unfit and self._interrupt is None:
            return self._conclude(said, ENVIRONMENT)
        result = wait_for_result(self._folder)
        if self._interrupt is None:
            if result is None:
                return self._conclude(said, WORKER_FAILED, agent_lost=True)
            complain(said)
            return WORKER_FAILED
        complain(said)
        if result is None or result.exit_code != self._interrupt.exit_code:
            # An agent that was killed for not listening had told its collector nothing of the interruption.
            self._write(Ending("interrupted", self._interrupt.exit_code, self._interrupt.reason))
        return self._interrupt.exit_code

    def _conclude(self, message: str, exit_code: int, *, agent_lost: bool = False) -> int:
        """Write the result that nobody else will write any more."""
        complain(message)
        self._write(Ending("error", exit_code, message, agent_lost=agent_lost))
        return exit_code

    def _write(self, ending: Ending) -> None:
        result_from_record(self._folder, self._requested_ns, {}, ending)

    def _stop(self, interrupt: Interrupt) -> None:
        """The first signal ends the run in order; the second ends its processes at once."""
        again = self._interrupt is not None
        self._interrupt = self._interrupt or interrupt
        if again:
            self._kill_at = min(self._kill_at, time.monotonic() + KILL_S)
        elif self._progress is not None:
            self._progress.note(f"{interrupt.name}: ending the run; once more ends it at once")
        self._client.stop(self._run_id, self._interrupt.reason, self._interrupt.exit_code)

    def _show(self) -> None:
        if self._progress is None:
            return
        events = []
        for line in self._tail.read_lines():
            if (
                SPAN in line
            ):  # nearly all lines are spans, and progress needs none: leave the cores to the ranks
                continue
            with contextlib.suppress(msgspec.DecodeError):
                events.append(decode(line))
        self._progress.add(events)


def wait_for_result(folder: Path, timeout_s: float = RESULT_S) -> Result | None:
    """Return the run's result; its collector may still be writing it when the agent is gone."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = read_result(folder)
        if result is not None or time.monotonic() >= deadline:
            return result
        time.sleep(0.02)


def run(
    spec: LabSpec,
    params: msgspec.Struct,
    options: session.RunOptions,
    machine: Machine,
    *,
    as_json: bool = False,
    quiet: bool = False,
    gantt: bool = False,
) -> int:
    """Run a lab to its end and print the verdict; returns the exit code of the command.

    With `gantt` the schedule as text comes first; then rank 0's lines, where they are part of the result.

    Raises:
        ParameterError: the run cannot work here; nothing was started and no folder is left.
    """
    inbox: Inbox = queue.SimpleQueue()
    client = AgentClient(inbox.put)
    with signals_into(inbox):
        prepared = session.prepare(spec, params, options, machine)
        try:
            prepared = with_agent(prepared, client)
            code = Headless(prepared, client, inbox, quiet).follow()
            if gantt:
                _show_schedule(prepared)
            if spec.tells and not as_json:
                _show_told(prepared.folder)
            if not show_result(prepared, as_json) and code in (PASSED, FAILED):
                code = ENVIRONMENT  # nobody can read what passed
        finally:
            client.close()
    return code


def with_agent(prepared: session.Prepared, client: AgentClient) -> session.Prepared:
    """Start the agent and name it in the run's manifest.

    Raises:
        ParameterError: it cannot be started; the run's folder is removed.
    """
    try:
        client.start()
    except OSError as error:
        shutil.rmtree(prepared.folder, ignore_errors=True)
        raise ParameterError("launcher agent", f"cannot be started: {error}") from None
    return session.adopt(prepared, client.identity)


def _show_schedule(prepared: session.Prepared) -> None:
    """Print the schedule; of a run that ended before it told one, say so beside its verdict."""
    from workbench.exports import text

    try:
        say(text.schedule(prepared.folder, sys.stdout.encoding) + "\n")
    except ParameterError as error:
        complain(str(error))


def _show_told(folder: Path) -> None:
    """Print rank 0's lines, also those of a run that was interrupted: a table keeps the rows it has."""
    told = list(told_by_rank_0(folder))
    if told:
        say("\n".join(told) + "\n")


def told_by_rank_0(folder: Path) -> Iterator[str]:
    """Yield the lines of rank 0's output in the run's record."""
    tail = Tail(folder / EVENTS)
    while lines := tail.read_lines():
        for line in lines:
            if LOG not in line:
                continue
            with contextlib.suppress(msgspec.DecodeError):
                event = decode(line)
                if isinstance(event, Log) and event.rank == 0 and event.stream == "stdout":
                    yield event.line


def show_result(prepared: session.Prepared, as_json: bool) -> bool:
    """Print the verdict of a run that is over; False where there is none."""
    result = read_result(prepared.folder)
    if result is not None:
        say(to_json(result).decode().rstrip() if as_json else report.render(result))
    elif prepared.folder.exists():
        complain(f"the run has no result; its record is in {prepared.folder}")
    else:
        complain(f"the run has no result: its folder was removed while it ran: {prepared.folder}")
    return result is not None
