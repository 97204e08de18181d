"""Every run step of every guide on real ranks: what is measured is what theory says."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path

import pytest

from labs.catalog import catalog, spec_of
from launcher.client import AgentClient
from launcher.rundir import Result, read_result
from workbench import guides, session
from workbench.answers import measured, row_of
from workbench.course import Course
from workbench.guides import Guide, Setup
from workbench.headless import Headless, Inbox
from workbench.machine import Machine, probe
from workbench.study import Study

ON_TIME = ("measured bubble is the simulated one", "t = alpha + S/beta fits", "take as long as all together")
"""Checks about time: on a busy machine they may be red, and the guides say so."""
SLOWEST = 20.0
"""How far a measured time may be from theory on a busy machine, as a factor."""


class Warm:
    """One agent for all runs of this file."""

    def __init__(self, runs_dir: Path) -> None:
        self.inbox: Inbox = queue.SimpleQueue()
        self.client = AgentClient(self.inbox.put)
        self.runs_dir = runs_dir
        self.machine: Machine = probe()

    def run(self, guide: Guide, setup: Setup) -> Result:
        """Run a step as the app would, and return its result."""
        options = session.RunOptions(
            nproc=setup.nproc, seed=setup.seed, device="cpu", runs_dir=str(self.runs_dir), timeout_s=60
        )
        prepared = session.prepare(
            spec_of(guide.lab), setup.params, options, self.machine, self.client.identity
        )
        Headless(prepared, self.client, self.inbox, quiet=True).follow()
        result = read_result(prepared.folder)
        assert result is not None
        return result


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """A warm agent, left at the end."""
    agent = Warm(tmp_path_factory.mktemp("guides") / "runs")
    agent.client.start()
    yield agent
    agent.client.close()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("lab", list(catalog()))
def test_every_run_of_the_guide_measures_what_theory_says(lab: str, warm: Warm, tmp_path: Path) -> None:
    guide = guides.load(spec_of(lab))
    course = Course(tmp_path / "progress.json")
    study = Study(guide, course)
    for setup in guide.runs.values():
        result = warm.run(guide, setup)
        red = [c.name for c in result.checks if not c.passed and not any(one in c.name for one in ON_TIME)]
        assert result.exit_code in (0, 1), result.failure
        assert not red
        assert [step.setup for step in study.finished(result, setup.seed)] == [setup]
        compare(guide, setup, result)
    for step in guide.questions:
        run = study.run_of(step)
        assert run is not None
        assert not run.missing


def compare(guide: Guide, setup: Setup, result: Result) -> None:
    """Hold what this run measured against the theory of each question that speaks of it."""
    for step in guide.questions:
        question = step.question
        assert question is not None
        if question.run != setup.name or not question.measured:
            continue
        found = measured(guide, question, result)
        row = row_of(guide, step, None, found)
        if question.timing and row.theory is not None:
            assert isinstance(row.theory, float)
            assert isinstance(found, float)
            assert row.theory / SLOWEST < found < row.theory * SLOWEST, (step.id, row)
        elif row.theory is not None:
            assert row.agrees, (step.id, row)
