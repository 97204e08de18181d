"""Break a good schedule in each way there is and see the sentence, with action and rank, that says so."""

from __future__ import annotations

import dataclasses

import pytest

from labs.parallel.schedule_actions import Schedule, ScheduleError, format_rows, parse_rows
from labs.parallel.schedule_simulator import simulate
from labs.parallel.schedule_validator import check, problems
from labs.parallel.schedules import NAMES, build


def edited(name: str, *edits: tuple[str, str], p: int = 2, m: int = 2) -> Schedule:
    """Return the schedule with words of its text form replaced."""
    schedule = build(name, p, m)
    text = format_rows(schedule.rows)
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return dataclasses.replace(schedule, rows=parse_rows(text))


@pytest.mark.parametrize("name", NAMES)
def test_every_generated_schedule_is_sound(name: str) -> None:
    assert problems(build(name, 4, 8)) == ()


@pytest.mark.parametrize(
    ("schedule", "sentence"),
    [
        (edited("gpipe", ("0F1 0B0", "0B0 0F1"), ("0F0 0B0", "0B0 0F0")), "rank 0: 0B0 comes before 0F0"),
        (edited("zb_h1", ("0I0 0W0", "0W0 0I0")), "rank 0: 0W0 comes before 0I0"),
        (edited("gpipe", ("0F1", "0F0")), "rank 0: 0F0 comes twice"),
        (edited("gpipe", ("0F1", "1F1")), "rank 0: 1F1 is not its stage; it holds 0"),
        (edited("gpipe", ("0F1", "0F2")), "rank 0: 0F2 is beyond the 2 micro-batches"),
        (edited("zb_h1", ("0I0", "0B0")), "rank 0: 0W0 comes before 0I0"),
        (edited("zb_h1", (" 0W0", " 0W0 0B0")), "rank 0: 0B0 repeats a gradient that is done already"),
        (edited("zb_h1", (" 1W1", "")), "rank 1: 1W1 is missing"),
        (
            edited("gpipe", (" 0F1", ""), (" 0B1", "")),
            "rank 0: 0F1 is missing; the forward of stage 1 on rank 1 has a receive without its send",
        ),
        (
            edited("gpipe", (" 1B1", "")),
            "rank 1: 1B1 is missing; the backward of stage 0 on rank 0 has a receive without its send",
        ),
        (
            edited("gpipe", ("0F1 0B0", "0B0 0F1")),
            "rank 0: deadlock in 0B0, which waits for the backward of micro-batch 0 on stage 1 (rank 1)",
        ),
        (
            edited("gpipe", ("0F1 0B0", "0B0 0F1")),
            "rank 1: deadlock in 1F1, which waits for the forward of micro-batch 1 on stage 0 (rank 0)",
        ),
    ],
)
def test_a_broken_schedule_is_described(schedule: Schedule, sentence: str) -> None:
    assert sentence in problems(schedule)


def test_check_raises_the_first_problem() -> None:
    with pytest.raises(ScheduleError, match=r"rank 1: 1W1 is missing"):
        check(edited("zb_h1", (" 1W1", "")))


def test_a_memory_bound_names_the_action_that_breaks_it() -> None:
    assert problems(build("1f1b", 4, 8), (4, 3, 2, 1)) == ()
    found = problems(build("gpipe", 4, 8), (4, 8, 8, 8))
    assert found == ("rank 0: 0F4 keeps 5 micro-batches alive, more than 4",)


def test_rows_for_other_ranks_are_refused() -> None:
    schedule = dataclasses.replace(build("1f1b", 4, 8), num_ranks=3)
    assert problems(schedule) == ("the schedule has 4 rows for 3 ranks",)


def test_the_simulator_refuses_a_deadlock() -> None:
    with pytest.raises(ScheduleError, match=r"rank 0 waits for ever in 0B0"):
        simulate(edited("gpipe", ("0F1 0B0", "0B0 0F1")))
