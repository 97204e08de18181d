"""One rank of a check: joins the group as in a lab's run, judges the learner's file, writes the verdict.

The launcher calls `main` in each rank; `python -m labs.exercise_worker JSON` is the same under plain
`torchrun`. Here, and nowhere else, a learner's code runs.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import msgspec
import torch.distributed as dist

from labs import worker
from labs.eager import spare_the_compiler
from labs.exercise_judge import Judge
from labs.exercises import EXIT_CODES, Verdict, exercise_of, read
from launcher import emitter, events

VERDICT = "verdict.json"
AFTER_S = 0.5
"""How much longer than the time limit a call of torch's own may wait: then the limit is told."""
FAILURES: dict[str, events.FailureKind] = {"late": "hang", "stuck": "hang", "mismatch": "mismatch"}


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank is told; the same for all ranks."""

    exercise: str
    file: str
    folder: str
    """Where `verdict.json` goes."""
    limit_s: float = 10.0
    source: str = ""
    """The exercise's own folder, where it is not one of the course."""


def main(argument: dict[str, Any]) -> None:
    """Be one rank of a check; `RANK` and the rest are set."""
    asked = msgspec.convert(argument, Argument)
    rank = int(os.environ["RANK"])
    emit = emitter.connect(rank)
    emit.emit(events.Phase(t=time.monotonic_ns(), rank=rank, phase="starting"))
    exercise = read(Path(asked.source)) if asked.source else exercise_of(asked.exercise)
    joined = worker.Argument(lab="", pg_timeout_s=asked.limit_s + AFTER_S)
    ctx = worker.join(joined, rank, emit, debug_detail=False)
    spare_the_compiler()
    emit.emit(events.Phase(t=time.monotonic_ns(), rank=rank, phase="running"))
    judge = Judge(exercise, ctx.recorder, ctx.rank, ctx.world_size, "check")
    verdict = judge.judge_file(Path(asked.file), asked.limit_s)
    _tell(ctx.rank, verdict, emit)
    _write(Path(asked.folder) / VERDICT, verdict, rank)
    emit.emit(
        events.End(
            t=time.monotonic_ns(), rank=rank, status="passed" if verdict.passed else "failed", exit_code=0
        )
    )
    dist.destroy_process_group()
    emit.close()


def _tell(rank: int, verdict: Verdict, emit: emitter.Emitter) -> None:
    """Put the verdict into the run's record: a check by rank 0, a failure by the rank that failed."""
    now = time.monotonic_ns()
    if verdict.kind in EXIT_CODES and rank == 0:
        emit.emit(
            events.Check(
                t=now,
                rank=rank,
                name=f"{verdict.exercise} {verdict.item}".strip(),
                passed=verdict.passed,
                measured=verdict.got or verdict.message,
                expected=verdict.expected,
                shows=verdict.meaning,
            )
        )
    elif verdict.kind not in EXIT_CODES and rank == max(0, verdict.rank):
        emit.emit(
            events.Failure(
                t=now,
                rank=rank,
                kind=FAILURES.get(verdict.kind, "exception"),
                message=verdict.message,
                traceback=verdict.traceback,
                advice=verdict.meaning,
            )
        )


def _write(path: Path, verdict: Verdict, rank: int) -> None:
    """Write by rename, on every rank: all have the same verdict, and any of them may have been ended."""
    temporary = path.with_name(f".{path.name}.{rank}")
    temporary.write_bytes(msgspec.json.encode(verdict))
    temporary.replace(path)


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except Exception:
        traceback.print_exc()
        sys.exit(1)
