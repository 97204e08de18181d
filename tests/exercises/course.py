"""What the ranks of the exercises' tests run: many files and mistakes of the course, one after another."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from labs.context import Context
from labs.exercise_files import mistakes_of, solution_of
from labs.exercise_judge import Judge
from labs.exercises import Verdict, exercise_of

LIMIT_S = 60.0
"""Generous: these tests ask what is said, not how soon."""


def judge_course(ctx: Context, names: Iterable[str]) -> dict[tuple[str, str], Verdict]:
    """Check stub, solution and every mistake of some exercises; returns (exercise, what) -> verdict."""
    found = {}
    for name in names:
        exercise = exercise_of(name)
        judge = Judge(exercise, ctx.recorder, ctx.rank, ctx.world_size, f"course/{name}")
        found[name, "stub"] = judge.judge_file(exercise.stub, LIMIT_S)
        found[name, "solution"] = judge.judge_file(exercise.folder / "solution.py", LIMIT_S)
        file = Path(str(solution_of(exercise).__file__))
        for mistake, (functions, _) in mistakes_of(exercise).items():
            found[name, mistake] = judge.judge(functions, file, time.monotonic() + LIMIT_S)
    return found


def judge_files(ctx: Context, files: dict[str, tuple[str, float]]) -> dict[str, Verdict]:
    """Check files (path -> exercise, and time limit in seconds); returns verdicts by stem."""
    found = {}
    for path, (name, limit_s) in files.items():
        label = Path(path).stem
        judge = Judge(exercise_of(name), ctx.recorder, ctx.rank, ctx.world_size, f"files/{label}")
        found[label] = judge.judge_file(Path(path), limit_s)
    return found
