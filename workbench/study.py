"""Studying one lab: where one is in its guide, what was answered, what the runs measured. No textual.

The app's guide panel draws this and tells it what the person did; each change is kept in the progress file.
"""

from __future__ import annotations

import msgspec

from launcher.rundir import Result
from workbench.answers import Row, Value, measured, read_answer, row_of
from workbench.course import Course, LabProgress, RunDone, now
from workbench.expressions import ExpressionError
from workbench.guides import Guide, Setup, Step


class Study:
    """A person's way through one guide. `place` is the step in view; past the last step is the summary."""

    def __init__(self, guide: Guide, course: Course) -> None:
        self.guide = guide
        self.course = course
        self.progress: LabProgress = course.lab(guide.lab)
        self._kept = guide.lab in course.labs()
        self.place = self._resumed()

    def _resumed(self) -> int:
        """The step that was in view, if it is still open; else the next open one; past the end if none is."""
        ids = [step.id for step in self.guide.steps]
        start = ids.index(self.progress.place) if self.progress.place in ids else 0
        order = [*range(start, len(ids)), *range(start)]
        return next((at for at in order if ids[at] not in self.progress.done), len(ids))

    @property
    def step(self) -> Step | None:
        """The step in view; None for the summary at the end."""
        return self.guide.steps[self.place] if self.place < len(self.guide.steps) else None

    @property
    def open_steps(self) -> list[Step]:
        """The steps that are not done."""
        return [step for step in self.guide.steps if step.id not in self.progress.done]

    def is_done(self, step: Step) -> bool:
        """Whether a step was read, answered or run."""
        return step.id in self.progress.done

    def go(self, by: int) -> None:
        """Turn to another step; leaving a text for the next one counts as having read it."""
        self._notice_reset()
        step = self.step
        if by > 0 and step is not None and step.kind in ("read", "observe", "change"):
            self._done(step)
        self.place = max(0, min(self.place + by, len(self.guide.steps)))
        self._keep(place=self.step.id if self.step is not None else "")

    def show(self, step: Step) -> None:
        """Turn to this step."""
        self._notice_reset()
        self.place = self.guide.steps.index(step)
        self._keep(place=step.id)

    def answer(self, text: str) -> Row:
        """Take the answer to the question in view.

        Raises:
            AnswerError: it is not an answer to this question.
        """
        step = self.step
        assert step is not None
        assert step.question is not None
        self._notice_reset()
        value = read_answer(step.question, text)
        assert value is not None
        self._keep(answers={**self.progress.answers, step.id: value})
        self._done(step)
        return self.row(step)

    def row(self, step: Step) -> Row:
        """Return prediction, theory and measurement of a question.

        Raises:
            ExpressionError: the guide's expression does not fit the lab's theory.
        """
        run = self.run_of(step)
        found = run.values.get(step.id) if run is not None else None
        missing = run.missing.get(step.id, "") if run is not None else ""
        return row_of(self.guide, step, self.progress.answers.get(step.id), found, missing)

    def found_out(self) -> list[tuple[Step, Row]]:
        """Return the questions that were answered or measured, each with its row."""
        rows = [(step, self.row(step)) for step in self.guide.questions]
        return [(step, row) for step, row in rows if row.predicted is not None or row.measured is not None]

    def run_of(self, step: Step) -> RunDone | None:
        """Return the run that a question speaks of, if it was made."""
        assert step.question is not None
        return self.progress.runs.get(step.question.run)

    def setup_before(self, step: Step) -> Setup | None:
        """Return the run that a question after a run still waits for; None where it can be answered."""
        assert step.question is not None
        waits = step.kind == "explain" and self.run_of(step) is None
        return self.guide.setup_of(step.question) if waits else None

    def finished(self, result: Result, seed: int = 0) -> list[Step]:
        """Take what a run measured, where its parameters are those of a run step; returns those steps."""
        if result.status not in ("passed", "failed"):
            return []
        self._notice_reset()
        matching = [
            step for step in self.guide.steps if step.setup is not None and fits(step.setup, result, seed)
        ]
        for step in matching:
            assert step.setup is not None
            self._keep(runs={**self.progress.runs, step.setup.name: self._told(step.setup.name, result)})
            self._done(step)
        if self.step in matching:
            self.go(1)
        return matching

    def _told(self, name: str, result: Result) -> RunDone:
        values: dict[str, float | str | bool] = {}
        missing: dict[str, str] = {}
        for step in self.guide.questions:
            if step.question is None or step.question.run != name:
                continue
            try:
                value: Value = measured(self.guide, step.question, result)
            except ExpressionError as error:
                missing[step.id] = str(error)
            else:
                values |= {step.id: value} if value is not None else {}
        return RunDone(run_id=result.run_id, status=result.status, at=now(), values=values, missing=missing)

    def _done(self, step: Step) -> None:
        if step.id not in self.progress.done:
            self._keep(done=(*self.progress.done, step.id))

    def _notice_reset(self) -> None:
        """Begin anew where another process (`--reset`) has taken this lab out of the file meanwhile."""
        if self._kept and self.guide.lab not in self.course.labs() and not self.course.problem:
            self.progress, self._kept = LabProgress(), False

    def _keep(self, **changes: object) -> None:
        changed = msgspec.structs.replace(self.progress, **changes)
        known = {step.id for step in self.guide.steps}
        state = "done" if known <= set(changed.done) else "started"
        self.progress = msgspec.structs.replace(changed, state=state)
        self.course.keep_lab(self.guide.lab, self.progress)
        self._kept = not self.course.problem


def fits(setup: Setup, result: Result, seed: int) -> bool:
    """Whether a run had the ranks, the seed and the parameters of a run step."""
    asked = msgspec.to_builtins(setup.params)
    told = {name: result.params.get(name) for name in asked}
    return result.world_size == setup.nproc and seed == setup.seed and told == asked
