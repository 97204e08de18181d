"""The progress of a run from canned events: what is said when, as lines and as a bar."""

from __future__ import annotations

import io

import pytest

from launcher.events import AnyEvent, Check, Failure, Hello, Log, Phase, PhaseName, Scalar
from workbench.progress import Progress, Tally


def phase(rank: int, name: PhaseName, step: int = -1, total: int = -1) -> Phase:
    return Phase(t=0, rank=rank, phase=name, step=step, total_steps=total)


def hello(rank: int) -> Hello:
    return Hello(t=0, rank=rank, world_size=2, local_rank=rank, node="n", pid=1, device="cpu", backend="gloo")


class Clock:
    """Time that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


STORY: list[tuple[list[AnyEvent], str]] = [
    ([], "starting 2 ranks"),
    ([hello(0)], "0 of 2 ranks ready"),
    ([phase(0, "ready")], "1 of 2 ranks ready"),
    ([phase(1, "ready")], "2 ranks running"),
    ([phase(0, "running", 5, 10)], "2 ranks running"),
    ([phase(1, "running", 3, 10)], "step 3 of 10"),
    ([Scalar(t=0, rank=0, step=3, name="loss", value=0.25)], "step 3 of 10, loss 0.25"),
    ([phase(0, "done")], "step 3 of 10, loss 0.25"),
    ([phase(1, "done")], "done"),
]


def test_the_state_follows_the_slowest_rank() -> None:
    tally = Tally(2)
    assert tally.state() == "loading torch"
    tally.warm = True
    for events, state in STORY:
        tally.add(events)
        assert tally.state() == state
    assert tally.share == 1.0


def test_the_first_failure_is_named_and_not_its_victims() -> None:
    tally = Tally(2)
    tally.add([Failure(t=0, rank=0, kind="exception", message="peer", victim=True)])
    assert tally.failure is None
    tally.add([Failure(t=0, rank=1, kind="exception", message="bad")])
    tally.add([Failure(t=0, rank=0, kind="exception", message="later")])
    assert tally.state() == "rank 1 failed"


def test_a_failure_of_no_rank_names_none() -> None:
    tally = Tally(2)
    tally.add([Failure(t=0, rank=-1, kind="signal", message="the launcher agent was killed")])
    assert tally.state() == "the run failed"


def test_lines_come_with_news_and_not_with_every_step() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, "dp", 1, clock)
    progress.warm()
    progress.add([phase(0, "ready")])
    for step in range(100):
        clock.now += 0.1
        progress.add([phase(0, "running", step + 1, 100)])
    progress.add([phase(0, "done")])
    progress.close()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "dp: 1 rank running (0.0 s)"
    assert lines[-1] == "dp: done (10.0 s)"
    assert 5 <= len(lines) <= 15
    assert all(line.startswith("dp: ") for line in lines)


def test_a_slow_run_says_every_five_seconds_that_it_lives() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream, "dp", 1, clock)
    progress.add([phase(0, "running", 1, 100_000)])
    for _ in range(20):
        clock.now += 1.0
        progress.add([])
    assert len(stream.getvalue().splitlines()) == 5


def test_the_bar_fits_the_line_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    stream, clock = Screen(), Clock()
    progress = Progress(stream, "dp", 1, clock)
    check = Check(t=0, rank=0, name="x", passed=False)
    progress.add([phase(0, "running", 6, 10), check])
    drawn = stream.getvalue()
    assert drawn.startswith("\r\x1b[K")
    assert "step 6 of 10" in drawn
    assert len(drawn.removeprefix("\r\x1b[K")) < 60
    assert "\n" not in drawn
    progress.add([phase(0, "running", 7, 10)])
    assert stream.getvalue() == drawn, "not drawn more often than ten times a second"
    clock.now += 0.2
    progress.add([])
    assert "step 7 of 10" in stream.getvalue()
    progress.note("ending the run")
    assert stream.getvalue().endswith("\r\x1b[Kdp: ending the run\n")
    progress.close()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Screen()
    Progress(stream, "dp", 1).add([])
    assert stream.getvalue() == "dp: loading torch (0.0 s)\n"


def test_a_warning_of_the_lab_is_said_once() -> None:
    """By rank 0; what ranks print besides stays in their logs."""
    stream = io.StringIO()
    progress = Progress(stream, "3d", 2)
    said = [(0, "warning: a tp group crosses nodes"), (1, "warning: the same"), (0, "hello")]
    progress.add([Log(t=0, rank=rank, stream="stdout", line=line) for rank, line in said])
    assert "3d: warning: a tp group crosses nodes\n" in stream.getvalue()
    assert "the same" not in stream.getvalue()
    assert "hello" not in stream.getvalue()
