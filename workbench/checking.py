"""A check of a learner's file by the app's own agent: asked, awaited, given back as a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from labs.exercises import Verdict
from labs.params import ParameterError
from launcher.protocol import RunRequest
from workbench import exercises
from workbench.course import Course
from workbench.exercises import Prepared


class Asked(Protocol):
    """What a check needs of an agent."""

    def request(self, request: RunRequest) -> None:
        """Ask for a run."""


class Checking:
    """At most one check at a time; `begin` asks for it, `finished` or `failed` ends it."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._prepared: Prepared | None = None

    @property
    def exercise(self) -> str:
        """The exercise that is being checked; empty where none is."""
        return self._prepared.exercise.name if self._prepared is not None else ""

    def begin(self, agent: Asked, name: str, folder: Path) -> None:
        """Ask a warm agent to check the learner's copy in `folder`.

        Raises:
            ParameterError: there is no such file, or no temporary folder.
        """
        path = exercises.file_to_check(name, "", folder)
        try:
            self._prepared = exercises.prepare(name, path)
        except OSError as error:
            raise ParameterError("temporary folder", f"cannot be made: {error.strerror or error}") from None
        agent.request(self._prepared.request)

    def finished(self, run_id: str) -> Verdict | None:
        """Return the verdict of the check whose run this was, and keep it in the progress file."""
        prepared = self._prepared
        if prepared is None or prepared.request.run_id != run_id:
            return None
        self._prepared = None
        verdict = exercises.conclude(prepared)
        self._course.checked(verdict.exercise, passed=verdict.passed)
        return verdict

    def failed(self) -> bool:
        """The agent refused or was lost: forget the check; returns whether there was one."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            exercises.abandon(prepared)
        return prepared is not None
