"""The course checks itself: every stub fails, every solution passes, every mistake has its name."""

from __future__ import annotations

from collections import defaultdict

import pytest

from labs.exercise_files import mistakes_of
from labs.exercises import Exercise, exercises
from tests.exercises.course import judge_course
from tests.ranks import on_ranks, values

LIMIT_S = 220.0
"""Of a launch that checks a hundred programs; on two idle cores it takes a tenth of that."""
LAB = "bandwidth"  # runs without TORCH_DISTRIBUTED_DEBUG, as checks do


def by_ranks() -> dict[int, list[Exercise]]:
    """The exercises by the number of ranks they need: each number is one launch."""
    found = defaultdict(list)
    for exercise in exercises():
        found[exercise.ranks].append(exercise)
    return dict(found)


@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("ranks", list(by_ranks()))
def test_stubs_fail_solutions_pass_and_mistakes_are_recognised(ranks: int) -> None:
    course = by_ranks()[ranks]
    told = values(on_ranks(ranks, judge_course, [each.name for each in course], lab=LAB, limit_s=LIMIT_S))
    assert all(each == told[0] for each in told), "ranks came to different verdicts"
    wrong = []
    for (name, what), verdict in told[0].items():
        if what == "stub":
            fits = verdict.kind == "unwritten" and verdict.line.startswith("stub.py:")
        elif what == "solution":
            fits = verdict.passed
        else:
            fits = not verdict.passed and verdict.mistake == what and bool(verdict.meaning)
        if not fits:
            wrong.append(f"{name}, {what}: {verdict.kind} {verdict.mistake!r}: {verdict.message}")
    assert not wrong, "\n".join(wrong)
    for exercise in course:
        assert len(mistakes_of(exercise)) >= 2, exercise.name
