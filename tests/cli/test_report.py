"""The verdict as text, from canned results: the table, a failed check, a failure told once, the last line."""

from __future__ import annotations

from pathlib import Path

import msgspec

from launcher.events import Log
from launcher.record import read_record
from launcher.rundir import EVENTS, CheckResult, FailureResult, Result
from workbench import headless, report

RUNS = Path(__file__).parents[1] / "data" / "runs"

PASSED = CheckResult(
    name="replicas start equal", passed=True, measured=1, expected=1, shows="the broadcast works"
)
FAILED = CheckResult(
    name="bytes",
    passed=False,
    measured=12.3456789,
    expected=10,
    tolerance=0.001,
    unit="B",
    shows="traffic is as theory says",
)
RESULT = Result(
    run_id="dp-1",
    lab="dp",
    params={},
    world_size=4,
    backend="gloo",
    device="cpu",
    launcher="warm",
    status="passed",
    exit_code=0,
    wall_s=1.234,
    ready_s=0.5,
    checks=[PASSED],
    metrics={"final_loss": 0.125},
    failure=None,
    events=10,
    dropped=0,
    record="events.jsonl",
)
FAILURE = FailureResult(
    rank=2,
    kind="exception",
    message="ValueError: bad batch",
    collective="all_reduce",
    traceback="Traceback (most recent call last):\n  File x\nValueError: bad batch\n",
    advice="look at the batch",
    victims=[0, 1, 3],
)


def changed(**fields: object) -> Result:
    return msgspec.structs.replace(RESULT, **fields)


def test_a_run_that_passed() -> None:
    lines = report.render(RESULT).splitlines()
    assert lines[0] == "dp: 4 ranks, gloo on cpu, 1.23 s, ready after 0.50 s"
    assert "passed  replicas start equal  1         1" in lines
    assert "  final_loss  0.125" in lines
    assert lines[-1] == "passed: 1 of 1 checks passed; record events.jsonl"
    assert "the broadcast works" not in "\n".join(lines), "only a failed check needs explaining"


def test_a_failed_check_says_what_it_shows() -> None:
    text = report.render(changed(checks=[PASSED, FAILED], status="failed", exit_code=1))
    row = next(line for line in text.splitlines() if line.startswith("FAILED"))
    assert row.split() == ["FAILED", "bytes", "12.3457", "B", "10", "B", "0.001"]
    assert "    traffic is as theory says" in text.splitlines()
    assert text.splitlines()[-1].startswith("failed: 1 of 2 checks passed")


def test_a_failure_is_told_once_with_its_victims_as_numbers() -> None:
    text = report.render(changed(failure=FAILURE, status="error", exit_code=3, reason="a rank failed"))
    assert text.count("Traceback") == 1
    assert "rank 2 failed first (exception in all_reduce): ValueError: bad batch" in text
    assert "What to try: look at the batch" in text
    assert "Ended with it: ranks 0, 1, 3" in text
    assert text.splitlines()[-1] == "error: 1 of 1 checks passed (a rank failed); record events.jsonl"


def test_dropped_events_pacing_and_ranks_that_never_were_ready_are_told() -> None:
    text = report.render(changed(dropped=7, paced_ms=20.0, ready_s=None, world_size=1))
    assert text.splitlines()[0] == "dp: 1 rank, gloo on cpu, paced 20 ms, 1.23 s"
    assert "7 events dropped" in text.splitlines()[-1]


def test_a_failure_of_no_rank() -> None:
    failure = FailureResult(rank=-1, kind="environment", message="no space")
    assert "the run could not go on (environment): no space" in report.render(changed(failure=failure))


def test_long_values_are_cut_and_words_for_booleans() -> None:
    check = CheckResult(name="x", passed=True, measured="a" * 100, expected=True)
    row = report.render(changed(checks=[check])).splitlines()[3]
    assert len(row) < 120
    assert "..." in row
    assert row.split()[-1] == "yes"


def test_a_sweep_without_the_app_has_the_table_that_its_users_know() -> None:
    told = list(headless.told_by_rank_0(RUNS / "bandwidth"))
    assert told[0].startswith("# ")
    assert any("out-of-place" in line and "in-place" in line for line in told)
    sizes = [int(line.split()[0]) for line in told if not line.startswith("#")]
    assert len(sizes) > 3
    assert sizes == sorted(sizes)
    assert told[-2].startswith("# Avg bus bandwidth")


def test_only_the_lines_of_rank_0_stand_above_a_verdict() -> None:
    record = RUNS / "mesh"
    own = [e.line for e in read_record(record / EVENTS) if isinstance(e, Log) and e.rank == 0]
    assert own
    assert list(headless.told_by_rank_0(record)) == own
