"""Whether a process has gone, asked in the moment in which it goes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from launcher import lifeline
from launcher.rundir import ProcessId

CLOSES_FIRST = "import os, sys, time; os.close(1); sys.stdin.read(); time.sleep(0.05)"


@pytest.mark.timeout(30)
def test_a_process_that_has_closed_its_pipes_is_waited_for() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CLOSES_FIRST], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        identity = lifeline.identify(process.pid)
        assert identity is not None
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.read() == b""  # all that its parent hears: it may be gone, and is not
        assert not lifeline.gone_within(identity, 0.01)
        process.stdin.close()
        assert lifeline.gone_within(identity, 20)
    assert lifeline.gone_within(ProcessId(os.getpid(), 0.0), 0)  # another of that number
