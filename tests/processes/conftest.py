"""Agents for the process tests: one warm one a module and worker, or a fresh one for a test that kills it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.harness import Runner, session_members, until


def _serve(folder: Path) -> Iterator[Runner]:
    runner = Runner(folder)
    runner.warm()
    yield runner
    runner.client.close()
    until(lambda: not session_members(runner.session), 3.0, "the agent's session empty")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """A warm agent that the tests of a module share, one run after another."""
    yield from _serve(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def runner(shared: Runner) -> Runner:
    """The shared agent; where a test before has lost it, one failure is told and not one a test."""
    if not session_members(shared.session):
        pytest.fail("the agent of this module is gone: see the test that failed before")
    return shared


@pytest.fixture
def fresh_runner(tmp_path: Path) -> Iterator[Runner]:
    """A warm agent for one test."""
    yield from _serve(tmp_path)
