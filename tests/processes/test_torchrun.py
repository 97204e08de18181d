"""What torchrun tells of the ranks that failed, read from what it prints."""

from __future__ import annotations

from launcher.torchrun import exit_codes

HEAD = """torch/distributed/elastic/multiprocessing/api.py:1] Sending process 7 closing signal SIGTERM
torch/distributed/elastic/multiprocessing/api.py:2] failed (exitcode: -9) local_rank: 1 (pid: 8)
============================================================
labs.worker FAILED
------------------------------------------------------------
Failures:
"""


def entry(rank: int, code: int, signal_name: str = "") -> str:
    """One failure as torchrun prints it."""
    return f"""[{rank}]:
  time      : 2026-11-29_21:00:00
  host      : node0
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code} (pid: 4{rank}) {signal_name}
  error_file: <N/A>
  traceback : To enable traceback see: the documentation
"""


def test_the_rank_that_was_killed_is_named_with_its_signal() -> None:
    report = (
        f"{HEAD}  <NO_OTHER_FAILURES>\nRoot Cause (first observed failure):\n{entry(1, -9, '(SIGKILL)')}==="
    )
    assert exit_codes(report) == {1: -9}


def test_ranks_that_torchrun_ended_are_no_failures() -> None:
    assert exit_codes(HEAD + entry(0, -15, "(SIGTERM)") + entry(2, 3) + entry(3, -11)) == {2: 3, 3: -11}
    assert exit_codes(HEAD + entry(0, -15, "(SIGTERM)")) == {0: -15}, "alone, it tells how it went"


def test_a_command_that_did_not_start_tells_of_no_rank() -> None:
    assert exit_codes("usage: torchrun [-h]\ntorchrun: error: rank : 3\n") == {}
