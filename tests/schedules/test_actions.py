"""The text form both ways, and what may be asked of a schedule."""

from __future__ import annotations

import subprocess
import sys

import pytest

from labs.parallel.schedule_actions import (
    Action,
    ScheduleError,
    format_row,
    format_rows,
    parse_action,
    parse_row,
    parse_rows,
    rank_of,
    stages_of,
)
from labs.parallel.schedules import NAMES, build


def test_an_action_reads_as_torch_writes_it() -> None:
    assert str(Action(2, "F", 0)) == "2F0"
    assert parse_action("13W407") == Action(13, "W", 407)


@pytest.mark.parametrize("name", NAMES)
def test_rows_survive_the_text_form(name: str) -> None:
    rows = build(name, 4, 8).rows
    assert parse_rows(format_rows(rows)) == rows


def test_an_overlapped_pair_is_a_forward_then_a_backward() -> None:
    assert format_row(parse_row("0F6, (0F7;7B3)OVERLAP_F_B 7B4")) == "0F6 0F7 7B3 7B4"


@pytest.mark.parametrize("text", ["", "F0", "2X0", "2F", "2F0x", "-1F0", "2f0"])
def test_what_is_no_action_is_refused(text: str) -> None:
    with pytest.raises(ScheduleError, match="is not an action"):
        parse_action(text)


def test_a_bad_word_names_its_rank() -> None:
    with pytest.raises(ScheduleError, match=r"rank 1: '1Q1' is not an action"):
        parse_rows("0F0 0F1\n1F0 1Q1")


def test_stages_by_rank_and_back() -> None:
    assert [stages_of(rank, 4, 2, "loop") for rank in range(4)] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert [stages_of(rank, 4, 2, "v") for rank in range(4)] == [(0, 7), (1, 6), (2, 5), (3, 4)]
    for placement in ("loop", "v"):
        for rank in range(4):
            assert {rank_of(stage, 4, placement) for stage in stages_of(rank, 4, 2, placement)} == {rank}


@pytest.mark.parametrize(
    ("name", "p", "m", "v", "words"),
    [
        ("interleaved", 4, 6, 2, "needs a multiple of the 4 ranks, not 6; 4 or 8 would fit"),
        ("interleaved_zb", 4, 3, 2, "needs a multiple of the 4 ranks, not 3; 4 would fit"),
        ("dualpipev", 4, 7, 2, "needs at least as many as there are stages, not 7; 8 or more would fit"),
        ("1f1b", 4, 0, 1, "needs at least 1 micro-batch, not 0"),
        ("1f1b", 4, 8, 2, "has exactly 1 chunk a rank, not 2"),
        ("zbv", 4, 8, 3, "has exactly 2 chunks a rank, not 3"),
        ("looped_bfs", 4, 8, 1, "has 2 to 16 chunks a rank, not 1"),
        ("1f1b", 0, 8, 1, "needs at least 1 rank, not 0"),
        ("zigzag", 4, 8, 1, "no schedule named 'zigzag'; schedules: naive, gpipe"),
    ],
)
def test_numbers_that_do_not_fit_say_which_would(name: str, p: int, m: int, v: int, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        build(name, p, m, v)


def test_schedules_load_no_torch() -> None:
    code = (
        "import sys, labs.parallel.schedules, labs.parallel.schedule_validator;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
