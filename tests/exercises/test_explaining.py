"""Differences and verdicts by themselves: which place is named, and what a pattern means. No process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from labs.exercise_board import Standing
from labs.exercise_compare import first_difference
from labs.exercise_verdict import Report, Told, explain
from labs.exercises import Exercise, Verdict, exercise_of
from launcher.rundir import RESULT, FailureResult, Result
from launcher.rundir import to_json as as_json
from workbench.exercises import conclude, prepare
from workbench.watch import reflow, render, to_json

BASE = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(
    ("expected", "got", "index", "pattern"),
    [
        (BASE, BASE * 4, "[0, 0]", "all of it is 4 times too large (W, the number of ranks)"),
        (BASE, BASE / 4, "[0, 0]", "all of it is 4 times too small (W, the number of ranks)"),
        (BASE, -BASE, "[0, 0]", "all of it has the wrong sign"),
        (BASE, BASE * 3, "[0, 0]", "all of it is 3 times what it should be"),
        (BASE, BASE * 0, "[0, 0]", "all of it is zero"),
        (BASE, BASE * float("nan"), "[0, 0]", "there are NaNs in it"),
        (BASE, torch.tensor([[1.0, 2.0], [3.0, 9.0]]), "[1, 1]", "3 of 4 elements are right"),
        (BASE, BASE + 1, "[0, 0]", "no element is right"),
        (BASE, BASE.double(), "", "the element types differ"),
        (BASE, BASE[0], "", "the shapes differ"),
        (BASE, None, "", "nothing was returned"),
        (BASE, [1.0], "", "a list was returned"),
        (["0F0", "0B0"], ["0F0", "0F1"], "[1]", ""),
        (["0F0", "0B0"], ["0F0"], "[1]", "1 entries in place of 2"),
        (["0F0"], ["0F0", "0F1"], "[1]", "2 entries in place of 1"),
        ([[0, 4], [1, 5]], [[0, 4], [1, 6]], "[1][1]", ""),
        ({"a": 1.0}, {"a": 4.0}, "['a']", "all of it is 4 times too large (W, the number of ranks)"),
        ({"a": 1}, {}, "['a']", ""),
        ({"a": 1}, {"a": 1, "b": 2}, "['b']", ""),
        (1, True, "", ""),
        (2.0, float("nan"), "", ""),
    ],
)
def test_the_first_difference(expected: Any, got: Any, index: str, pattern: str) -> None:
    found = first_difference({"fine": 1, "it": expected}, {"fine": 1, "it": got}, 4)
    assert found is not None
    assert (found.order, found.item, found.index, found.pattern) == (1, "it", index, pattern)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (BASE, BASE * (1 + 1e-6)),
        (1.0, 1.0000001),
        (2.0, torch.tensor(2.0)),
        ([1, (2,)], (1, [2])),
        (None, None),
    ],
)
def test_rounding_and_kinds_of_sequence_are_no_difference(expected: Any, got: Any) -> None:
    assert first_difference({"it": expected}, {"it": got}) is None


def told(order: int, item: str = "it") -> Report:
    """A rank that differs in some item."""
    return Report(
        kind="differs", difference=Told(order, item, "[2]", "1", "4", "all of it is 4 times too large")
    )


FINE = Report(kind="passed")


def waits(what: str, *peers: int) -> Standing:
    """A rank that waits."""
    return Standing(status="waiting", waits=what, peers=list(peers), line="mine.py:7")


OVER = Standing(status="returned")


def stuck(*standings: Standing) -> Verdict:
    """The verdict of a deadlock in which ranks stand so."""
    report = Report(kind="stuck", standings=list(standings))
    reports = [report if each.status == "waiting" else FINE for each in standings]
    return explain("x", "case", reports, "")


def test_the_earliest_item_counts_then_the_lowest_rank() -> None:
    verdict = explain("x", "case", [FINE, told(1, "second"), told(0), told(0)], "Look again.")
    assert (verdict.rank, verdict.item, verdict.index, verdict.expected, verdict.got) == (
        2,
        "it",
        "[2]",
        "1",
        "4",
    )
    assert verdict.message == "rank 2: it at [2]: expected 1, got 4; ranks 1 and 3 differ too"
    assert verdict.meaning == "All of it is 4 times too large. Look again."


def test_a_rank_of_its_own_comes_before_its_victims() -> None:
    victim = Report(kind="stuck", standings=[waits("recv from rank 1", 1), OVER])
    raised = Report(kind="exception", text="IndexError: 99", line="mine.py:3", traceback="...")
    verdict = explain("x", "case", [victim, raised], "")
    assert (verdict.kind, verdict.rank, verdict.line) == ("exception", 1, "mine.py:3")
    assert "Only rank 1 raised" in verdict.meaning


def test_the_rank_that_runs_is_late_and_not_those_that_wait_for_it() -> None:
    waiting = Report(kind="late", text="barrier number 0 of group world", line="mine.py:9")
    verdict = explain("x", "case", [waiting, Report(kind="late", line="mine.py:4"), waiting], "")
    assert (verdict.rank, verdict.line) == (1, "mine.py:4")


def test_a_rank_that_does_not_report_is_named() -> None:
    verdict = explain("x", "case", [FINE, None, None], "")
    assert (verdict.kind, verdict.rank) == ("worker", 1)
    assert "ranks 1 and 2 did not report" in verdict.message


def test_who_never_came_is_named_and_not_the_circle() -> None:
    verdict = stuck(waits("recv from rank 1", 1), waits("recv from rank 2", 2), OVER)
    assert verdict.rank == 1
    assert "rank 1 waits in recv from rank 2, which never sent: it has come to its end" in verdict.message


@pytest.mark.parametrize(
    ("standings", "meaning"),
    [
        ((waits("send to rank 1", 1), waits("send to rank 0", 0)), "Every rank sends before it receives"),
        ((waits("recv from rank 1", 1), waits("recv from rank 0", 0)), "nobody ever sends"),
        ((waits("recv from rank 1", 1), waits("barrier number 0 of group world", 0)), "different orders"),
        ((waits("barrier number 0 of group world", 1), OVER), "Every rank of a group must call a collective"),
        ((waits("send to rank 1", 1), OVER), "one step too short"),
    ],
)
def test_what_a_deadlock_means(standings: tuple[Standing, ...], meaning: str) -> None:
    assert meaning in stuck(*standings).meaning


EXERCISE: Exercise = exercise_of("ring-all-reduce")


def test_the_verdict_as_text_says_where_and_what_next() -> None:
    verdict = explain("ring-all-reduce", "8 elements", [FINE, told(0, "the result")], "Look again.")
    text = render(EXERCISE, Path("mine.py"), verdict)
    assert "not passed" in text
    assert "on 8 elements, rank 1: the result at [2]: expected 1, got 4" in text
    assert "workbench --exercise ring-all-reduce --hint 1, 2 or 3" in text


def test_a_traceback_begins_at_the_learners_file() -> None:
    trace = 'Traceback:\n  File "/ours.py", line 1\n  File "mine.py", line 3, in f\nIndexError: 99'
    verdict = Verdict(exercise="x", kind="exception", message="raised", rank=1, traceback=trace)
    text = render(EXERCISE, Path("mine.py"), verdict)
    assert "ours.py" not in text
    assert "| IndexError: 99" in text


def test_json_has_the_exit_code() -> None:
    verdict = Verdict(exercise="x", kind="late", message="")
    assert '"exit_code": 3' in to_json(verdict)
    assert '"passed": false' in to_json(verdict)


def test_text_is_filled_and_code_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    code = "    a = [1,\n         2]"
    text = f"one two three four\nfive six seven\n\n{code}\n\n- first item that is long\n- second"
    assert reflow(text).splitlines() == [
        "one two three four five six",
        "seven",
        "",
        "    a = [1,",
        "         2]",
        "",
        "- first item that is long",
        "- second",
    ]


def ended(failure: FailureResult | None, **fields: Any) -> Result:
    """The result of a run in which no rank could write a verdict."""
    return Result(
        run_id="check",
        lab="x",
        params={},
        world_size=4,
        backend="gloo",
        device="cpu",
        launcher="warm",
        status="error",
        exit_code=3,
        wall_s=1.0,
        ready_s=None,
        checks=[],
        metrics={},
        failure=failure,
        events=0,
        dropped=0,
        record="",
        **fields,
    )


def without_a_verdict(result: Result | None) -> Verdict:
    """What is said of a check that left this result, and what its ranks printed."""
    prepared = prepare("ring-all-reduce", Path("/home/me/mine.py"), limit_s=2.0)
    folder = Path(prepared.request.folder)
    if result is not None:
        (folder / RESULT).write_bytes(as_json(result))
    (folder / "rank2.log").write_text("one\ntwo\n" * 50)
    verdict = conclude(prepared)
    assert not folder.exists()
    assert verdict.printed[:2] == ["rank 2: one", "rank 2: two"]
    assert len(verdict.printed) == 10
    return verdict


def test_ranks_that_were_ended_from_outside_are_late_with_their_line() -> None:
    stack = 'Stack:\n  File "/home/me/mine.py", line 4, in f\n  File "/home/me/mine.py", line 9, in g\n'
    failure = FailureResult(rank=3, kind="timeout", message="the time limit has passed", traceback=stack)
    verdict = without_a_verdict(ended(failure))
    assert (verdict.kind, verdict.exit_code, verdict.rank, verdict.line) == ("late", 3, 3, "mine.py:9")
    assert "within 2 s" in verdict.message


def test_a_rank_that_was_killed_is_told_as_that() -> None:
    failure = FailureResult(rank=1, kind="signal", message="rank 1 was killed by SIGSEGV")
    verdict = without_a_verdict(ended(failure))
    assert (verdict.kind, verdict.exit_code, verdict.message) == ("worker", 3, "rank 1 was killed by SIGSEGV")


def test_a_check_that_left_nothing_at_all_is_no_pass() -> None:
    assert without_a_verdict(None).exit_code == 3
    assert without_a_verdict(ended(None, reason="the recorder ended")).message == "the recorder ended"
