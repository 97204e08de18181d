"""How long a check of a learner's file takes: by the warm agent, and by plain `torchrun`, in one run.

    python -m tests.bench.exercises [--exercise ring-all-reduce] [--runs 5]

The same entrypoint checks the same file, once right (the solution) and once not written (the stub).
From the request to the verdict; the command's own start and the agent's warming up
come first and are told apart. Budget on 2 idle cores with 4 ranks: 1.5 s by the warm agent.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from labs.exercises import Verdict, exercise_of
from tests.bench.launch import idle_share
from workbench.exercises import Checker, prepare

WARM_BUDGET_S = 1.5
TORCHRUN_LIMIT_S = 120.0


def by_torchrun(checker: Checker, name: str, file: Path) -> Verdict:
    """Check by the plain `torchrun` command, which the agent runs as its child."""
    prepared = prepare(name, file)
    words = ["torchrun", "--standalone", "--nproc-per-node", str(prepared.exercise.ranks)]
    command = [*words, "-m", "labs.exercise_worker", json.dumps(prepared.request.argument)]
    request = msgspec.structs.replace(
        prepared.request, launcher="torchrun", command=command, timeout_s=TORCHRUN_LIMIT_S
    )
    return checker.run(msgspec.structs.replace(prepared, request=request))


def typical(check: Callable[[], Verdict], runs: int, passes: bool) -> float:
    """Median seconds of a check, each of which must come to the right verdict."""
    verdicts = [check() for _ in range(runs)]
    wrong = [verdict for verdict in verdicts if verdict.passed != passes]
    if wrong:
        sys.exit(f"a check came to the wrong verdict: {wrong[0]}")
    return statistics.median(verdict.seconds for verdict in verdicts)


def main() -> None:
    """Print the table; exit code 1 where the budget is missed on an idle machine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--exercise", default="ring-all-reduce")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    exercise = exercise_of(options.exercise)
    right = exercise.folder / "solution.py"
    idle = idle_share()
    with tempfile.TemporaryDirectory() as temp, Checker() as checker:
        wrong = Path(temp) / exercise.file_name
        wrong.write_text(exercise.stub.read_text())
        began = time.monotonic()
        checker.warm()
        warming = time.monotonic() - began
        rows = {
            label: (
                typical(lambda f=file: checker.check(exercise.name, f), options.runs, passes),  # type: ignore[misc]
                typical(lambda f=file: by_torchrun(checker, exercise.name, f), 2, passes),  # type: ignore[misc]
            )
            for label, file, passes in (("the solution", right, True), ("the stub", wrong, False))
        }
    out = sys.stdout.write
    out(f"{exercise.name}, {exercise.ranks} gloo ranks ({idle:.0%} of the cores idle)\n")
    out(f"the agent was warm after {warming:.2f} s, once\n")
    out(f"{'':<14}{'warm agent s':>14}{'torchrun s':>12}{'share':>8}\n")
    for label, (warm, plain) in rows.items():
        out(f"{label:<14}{warm:>14.2f}{plain:>12.2f}{warm / plain:>8.0%}\n")
    sys.exit(1 if max(warm for warm, _ in rows.values()) > WARM_BUDGET_S else 0)


if __name__ == "__main__":
    main()
