"""The merged log: order by time, folding of what several ranks say, one rank alone, searching."""

from __future__ import annotations

from launcher.events import Log
from launcher.rundir import read_manifest
from tests.app.conftest import RECORDED
from workbench.views import logbook
from workbench.views.logbook import LogbookView, matches, of_rank

SECOND = 1_000_000_000


def book(*lines: tuple[float, int, str]) -> LogbookView:
    """A logbook with lines as (seconds, rank, text)."""
    view = LogbookView(read_manifest(RECORDED / "dp"))
    for seconds, rank, text in lines:
        view.feed(Log(t=int(seconds * SECOND), rank=rank, stream="stdout", line=text))
    return view


def said(view: LogbookView) -> list[tuple[str, str]]:
    return [(entry.who, entry.text) for entry in view.snapshot().entries]


def test_what_several_ranks_say_is_one_line_with_a_count() -> None:
    view = book((1, 0, "hello"), (1.1, 2, "hello"), (1.2, 1, "mine"), (1.3, 1, "hello"), (1.4, 7, "hello"))
    assert said(view) == [("r0-2, 7 x4", "hello"), ("r1", "mine")]


def test_scattered_ranks_are_counted() -> None:
    assert said(book(*((1, rank, "x") for rank in (0, 2, 4, 6)))) == [("4 ranks", "x")]


def test_the_same_rank_saying_it_again_is_a_new_line() -> None:
    assert said(book((1, 0, "step"), (1.1, 1, "step"), (1.2, 0, "step"), (1.3, 1, "step"))) == [
        ("r0-1 x2", "step"),
        ("r0-1 x2", "step"),
    ]


def test_another_occasion_is_a_new_line() -> None:
    assert said(book((1, 0, "late"), (9, 1, "late"))) == [("r0", "late"), ("r1", "late")]


def test_empty_lines_and_other_streams_are_not_folded() -> None:
    view = book((1, 0, ""), (1, 1, ""), (1, 0, "x"))
    view.feed(Log(t=SECOND, rank=1, stream="stderr", line="x"))
    assert [who for who, _ in said(view)] == ["r0", "r1", "r0", "r1"]


def test_lines_that_arrive_late_go_to_their_time() -> None:
    view = book((1, 0, "a"), (3, 0, "c"), (2, 1, "b"))
    assert [text for _, text in said(view)] == ["a", "b", "c"]


def test_one_rank_alone_and_the_launcher() -> None:
    view = book((1, 0, "both"), (1, 1, "both"), (2, -1, "launcher"), (3, 1, "one"))
    entries = view.snapshot().entries
    assert [entry.text for entry in of_rank(entries, 0)] == ["both"]
    assert [entry.text for entry in of_rank(entries, 1)] == ["both", "one"]
    assert of_rank(entries, None) == entries
    assert entries[1].who == "--"


def test_searching_minds_capitals_only_where_they_are_given() -> None:
    entries = book((1, 0, "Loss 1"), (2, 0, "loss 2"), (3, 0, "a.b"), (4, 0, "axb")).snapshot().entries
    assert matches(entries, "loss") == [0, 1]
    assert matches(entries, "Loss") == [0]
    assert matches(entries, "a.b") == [2]
    assert matches(entries, "") == []


def test_memory_is_bounded_and_what_was_let_go_is_counted() -> None:
    view = LogbookView(read_manifest(RECORDED / "dp"))
    for number in range(logbook.CAPACITY + logbook.TRIM):
        view.feed(Log(t=number, rank=0, stream="stdout", line=f"{number}"))
    snapshot = view.snapshot()
    assert snapshot.older == logbook.TRIM
    assert len(snapshot.entries) == logbook.CAPACITY
    assert snapshot.entries[-1].text == str(logbook.CAPACITY + logbook.TRIM - 1)


def test_a_joined_rank_is_news_for_the_screen() -> None:
    view = book((1, 0, "x"))
    before = view.snapshot()
    view.feed(Log(t=SECOND, rank=1, stream="stdout", line="x"))
    assert view.snapshot() is not before
    assert view.snapshot().version == 2


def test_control_sequences_are_taken_out() -> None:
    assert said(book((1, 0, "\x1b[31mred\x1b[0m"), (2, 0, "10%\r20%"))) == [("r0", "red"), ("r0", "20%")]
