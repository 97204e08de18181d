"""The plain `torchrun` command as a launcher: run as a child of the agent, its logs and its last words read.

Beside `launcher.agent`, which calls torchrun's elastic agent itself, this is the command that a person types.
Loads no torch.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from launcher.control import RunControl
from launcher.rank import log_path

LOGS_INTERVAL_S = 0.1
FAILURE = re.compile(r"^ *rank +: (\d+) \(local_rank: \d+\)\n *exitcode +: (-?\d+) \(pid: ", re.MULTILINE)
"""Two lines of an entry in torchrun's table of failures."""


def command_line(command: Sequence[str], logs: Path) -> list[str]:
    """Return `command` (`torchrun` first) as this interpreter's own torchrun, one log file a rank."""
    wrapper = [sys.executable, "-P", "-m", "launcher.lifeline", str(os.getpid())]
    own = [sys.executable, "-m", "torch.distributed.run", "--log-dir", str(logs), "--redirects", "3"]
    return [*wrapper, *own, *command[1:]]


def collect_logs(logs: Path, folder: Path, *, finished: bool) -> None:
    """Give torchrun's log files the names that they have in every run's folder.

    While it runs by links, so that they can be followed under those names; at the end they are moved.
    """
    for stream in ("stdout", "stderr"):
        for log in logs.glob(f"*/attempt_0/*/{stream}.log"):
            target = log_path(folder, int(log.parent.name), stream)
            if finished:
                log.replace(target)
            elif not target.is_symlink():
                target.symlink_to(log)
    if finished:
        shutil.rmtree(logs, ignore_errors=True)


def run(control: RunControl, environment: dict[str, str]) -> dict[int, int]:
    """Run the request's `torchrun` command as a child until it has ended.

    Returns the exit codes, by rank, that torchrun tells of.
    """
    folder = Path(control.request.folder)
    logs, report = folder / "torchrun", folder / "torchrun.log"
    with report.open("wb") as output:
        process = subprocess.Popen(
            command_line(control.request.command, logs),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **environment},
            process_group=0,
        )
        control.launched([process.pid])
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LOGS_INTERVAL_S)
                break
            collect_logs(logs, folder, finished=False)
    collect_logs(logs, folder, finished=True)
    return exit_codes(report.read_text(errors="replace"))


def exit_codes(report: str) -> dict[int, int]:
    """Return the exit codes by rank (negative ones are signals) from the table that torchrun prints.

    It lists the ranks that had failed when it looked; then it ends the others, by SIGTERM. One that is
    listed with that signal beside another failure went the same way: how it went says nothing about it.
    """
    found = {int(rank): int(code) for rank, code in FAILURE.findall(report)}
    own = {rank: code for rank, code in found.items() if code != -signal.SIGTERM}
    return own or found
